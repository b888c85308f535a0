"""Scripts of sed: whether all that one does is to print, by its whole text.

sed parses a script before it runs it, and so is it done here, command by command: what ends an
expression is its delimiter and not a semicolon. `e`, `r`, `R`, `w` and `W`, as commands and as
flags, are not read, nor is anything else that is not listed.
"""

import re

_BLANKS = re.compile(r"[ \t]*")
_GAPS = re.compile(r"[ \t\n;]*")
_ADDRESS = re.compile(r"[0-9]+(?:[ \t]*~[ \t]*[0-9]+)?|\$")
_SECOND = re.compile(r"[+~][0-9]+")
_REGEX_FLAGS = re.compile(r"[IM]*")
_FLAGS = re.compile(r"[gpiImM0-9]*")
_LABEL = re.compile(r"[A-Za-z0-9_.-]+")
_DELIMITERS = frozenset("/|,#:@!%~_+=^-")
_CLASS = re.compile(r"\[:[a-z]+:\]")
_SINGLE = frozenset("=dDgGhHnNpPxzF")
_NUMBERED = frozenset("lqQ")
_MOST_NESTED = 20


class _Unproven(Exception):
    """The script may do more than print."""


def only_prints(script: str) -> bool:
    """Whether sed does nothing with a script but read its input and print."""
    try:
        _Script(script).all()
    except _Unproven:
        return False
    return True


class _Script:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def all(self) -> None:
        depth = 0
        while True:
            self._skip(_GAPS)
            if self._at >= len(self._text):
                break
            if self._peek() == "}":
                self._at += 1
                depth -= 1
                self._end()
            elif self._peek() == "#":
                self._rest_of_line()
            else:
                self._addresses()
                if self._peek() == "{":
                    self._at += 1
                    depth += 1
                else:
                    self._command()
            if not 0 <= depth <= _MOST_NESTED:
                raise _Unproven
        if depth:
            raise _Unproven

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def _end(self) -> None:
        """The end of a command, which the next one may follow."""
        self._skip(_BLANKS)
        if self._peek() not in ("", ";", "\n", "}", "#"):
            raise _Unproven

    def _rest_of_line(self) -> str:
        start = self._at
        end = self._text.find("\n", start)
        self._at = len(self._text) if end < 0 else end
        return self._text[start : self._at]

    def _addresses(self) -> None:
        if self._address():
            self._skip(_BLANKS)
            if self._peek() == ",":
                self._at += 1
                self._skip(_BLANKS)
                if not self._skip(_SECOND) and not self._address():
                    raise _Unproven
                self._skip(_BLANKS)
            if self._peek() == "!":
                self._at += 1
        elif self._peek() == "!":
            self._at += 1
        self._skip(_BLANKS)

    def _address(self) -> bool:
        if self._skip(_ADDRESS):
            return True
        if self._peek() == "\\":
            self._at += 1
        elif self._peek() != "/":
            return False
        self._regex(self._delimiter())
        self._skip(_REGEX_FLAGS)
        return True

    def _command(self) -> None:
        name = self._peek()
        self._at += 1
        if name in _SINGLE:
            self._end()
        elif name in _NUMBERED:
            self._skip(_BLANKS)
            self._skip(re.compile("[0-9]*"))
            self._end()
        elif name == "s":
            delimiter = self._delimiter()
            self._regex(delimiter)
            self._replacement(delimiter)
            self._skip(_FLAGS)
            self._end()
        elif name == "y":
            delimiter = self._delimiter()
            self._replacement(delimiter)
            self._replacement(delimiter)
            self._end()
        elif name in ("b", "t", "T", ":"):
            self._skip(_BLANKS)
            if not self._skip(_LABEL) and name == ":":
                raise _Unproven
            self._end()
        elif name in ("a", "i", "c"):
            self._inserted()
        else:
            raise _Unproven

    def _delimiter(self) -> str:
        delimiter = self._peek()
        if delimiter not in _DELIMITERS:
            raise _Unproven
        self._at += 1
        return delimiter

    def _regex(self, delimiter: str) -> None:
        """An expression up to its delimiter, which may stand within brackets."""
        while (character := self._peek()) != delimiter:
            if character == "[":
                self._brackets()
            else:
                self._one(character)
        self._at += 1

    def _replacement(self, delimiter: str) -> None:
        while (character := self._peek()) != delimiter:
            self._one(character)
        self._at += 1

    def _one(self, character: str) -> None:
        if character in ("", "\n"):
            raise _Unproven
        if character == "\\":
            self._at += 1
            # `\cX` is a control character, and X may be a backslash.
            if self._peek() in ("", "c"):
                raise _Unproven
        self._at += 1

    def _brackets(self) -> None:
        self._at += 1
        if self._peek() == "^":
            self._at += 1
        if self._peek() == "]":
            self._at += 1
        while (character := self._peek()) != "]":
            if character in ("", "\n"):
                raise _Unproven
            following = self._text[self._at + 1 : self._at + 2]
            if character == "[" and following in (".", ":", "="):
                if not self._skip(_CLASS):
                    raise _Unproven
                continue
            if character == "\\" and following in ("]", "[", "\\"):
                # Programs differ on whether it is escaped there.
                raise _Unproven
            self._at += 1
        self._at += 1

    def _inserted(self) -> None:
        """The text of `a`, `i` and `c`, up to the end of its line."""
        self._skip(_BLANKS)
        if self._text.startswith("\\\n", self._at):
            self._at += 2
        text = self._rest_of_line()
        if not text or text.endswith("\\") or text.startswith(("\\ ", "\\\t")):
            raise _Unproven
