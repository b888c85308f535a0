"""Splits a command line into words without a shell, or finds the shell to run it."""

import os

from batten.contract.errors import CallerError

MAX_COMMAND_CHARS = 100_000
_LITERAL_AFTER_BACKSLASH = frozenset('"\\$`\n')
"""Inside double quotes a backslash is literal before any other character."""


def check_command(text: str) -> None:
    """Reject text that cannot be a command line, before any process starts."""
    if not text.strip():
        raise CallerError("Command is empty; it must name something to run")
    if len(text) > MAX_COMMAND_CHARS:
        raise CallerError(
            f"Command has {len(text)} characters; at most {MAX_COMMAND_CHARS} are allowed"
        )
    for character in text:
        if (character < " " and character not in "\t\n\r") or character == "\x7f":
            raise CallerError(
                f"Command holds the control character U+{ord(character):04X}; "
                "only tab, newline and carriage return are allowed"
            )


def split_command(text: str) -> list[str]:
    """The words of a line, split by quotes and backslashes; expands nothing."""
    check_command(text)
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if quote == "'" and character != "'":
            word = _extended(word, character)
        elif character == "\\":
            if position == len(text):
                raise CallerError("Command ends in an unfinished escape")
            escaped = text[position]
            position += 1
            if quote and escaped not in _LITERAL_AFTER_BACKSLASH:
                escaped = "\\" + escaped
            word = _extended(word, escaped)
        elif character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
            word = _extended(word, "")
        elif not quote and character.isspace():
            if word is not None:
                words.append("".join(word))
            word = None
        else:
            word = _extended(word, character)
    if quote:
        raise CallerError(f"Command has an unterminated {quote} quote")
    if word is not None:
        words.append("".join(word))
    if not words or not words[0]:
        raise CallerError("Command must contain an executable to run")
    return words


def _extended(word: list[str] | None, text: str) -> list[str]:
    word = [] if word is None else word
    word.append(text)
    return word


def shell_argv(text: str) -> list[str]:
    """The words that run a line in bash, or in sh where bash is missing."""
    check_command(text)
    for shell in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if os.access(shell, os.X_OK):
            return [shell, "-c", text]
    return ["/bin/sh", "-c", text]
