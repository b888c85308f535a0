"""The words of a command read by what is known of its program: options, their values, operands.

An option that is not known in this very spelling is not read at all: an abbreviation may stand for
one that writes, and behind an option of unknown arity any word may be its value.
"""

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from batten.agent.rules.shell import HOLE, NAMES, PIPE, is_known

Words = tuple[str, ...]
Kind = Literal["flag", "text", "path", "number", "optional"]

MANY = 99_999
_TOKEN = re.compile(r"(--[a-z][a-z0-9-]*|-[A-Za-z0-9.#]+)(\?|=(?:PATH|NUMBER)?)?")
_KINDS: dict[str, Kind] = {
    "": "flag",
    "?": "optional",
    "=": "text",
    "=PATH": "path",
    "=NUMBER": "number",
}
_NUMBER = re.compile(r"[+-]?(?:0x)?[0-9a-fA-F]+[A-Za-z]{0,3}")


class Program(Struct, frozen=True):
    """A program that reads and prints, as far as these options and operands go."""

    options: str = ""
    """Those that make it do nothing else, with blanks between them. `-ab` are two flags, `-n=` and
    `--lines=` have a value, `-f=PATH` one that is a file to read, `-U?` and `--color?` may have one
    in the same word, `-#` is a number."""
    operands: Literal["paths", "text", "none"] = "paths"
    text: str = ".*"
    """What an operand that is no path must look like."""
    skipped: int = 0
    """Operands at the beginning that are no paths: a pattern, a filter."""
    instead: str = ""
    """Options in the place of those."""
    most: int = MANY
    """Operands it may have; behind them would be a file to write."""
    below: str = ""
    """Options that make it read below a folder, also files that are not named."""
    follows: str = ""
    """Options that make it read what is behind links in a folder."""
    is_recursive: bool = False
    always_follows: bool = False
    may_write: bool = False
    """Other options of it write or run something: a wildcard must not stand for one."""
    one_by_one: bool = False
    """Options stand before operands, and each in a word of its own."""
    values_apart: bool = False
    """The value of a short option is a word of its own."""
    expands: str = ""
    """How a word begins that stands for others, which a file holds."""


class Option(Struct, frozen=True):
    name: str
    value: str
    is_apart: bool = False
    """The value is a word of its own."""


class Given(Struct, frozen=True):
    """The words behind a program."""

    options: tuple[Option, ...]
    operands: Words
    files: Words
    """Values of options that are files to read."""
    behind: int
    """How many of the operands stand behind `--`."""

    def has(self, names: str) -> bool:
        return not {option.name for option in self.options}.isdisjoint(names.split())


@lru_cache(maxsize=256)
def known_options(options: str) -> dict[str, Kind]:
    """The options of a program by their names."""
    found: dict[str, Kind] = {}
    for token in options.split():
        read = _TOKEN.fullmatch(token)
        if read is None:
            raise ValueError(f"{token!r} is not an option")
        names, kind = read[1], _KINDS[read[2] or ""]
        for name in (names,) if names.startswith("--") else (f"-{each}" for each in names[1:]):
            found[name] = kind
    return found


def given(program: Program, words: Words) -> Given | None:
    """The words by what the program knows; None if one of them cannot be told."""
    if program.expands and any(word.startswith((program.expands, NAMES)) for word in words):
        return None
    reader = _Words(program, words)
    return reader.found() if reader.all() else None


class _Words:
    def __init__(self, program: Program, words: Words) -> None:
        self._program = program
        self._known = known_options(program.options)
        self._words = words
        self._at = 0
        self._options: list[Option] = []
        self._operands: list[str] = []
        self._behind: int | None = None

    def found(self) -> Given:
        files = (each.value for each in self._options if self._known[each.name] == "path")
        behind = 0 if self._behind is None else len(self._operands) - self._behind
        return Given(tuple(self._options), tuple(self._operands), tuple(files), behind)

    def all(self) -> bool:
        while self._at < len(self._words):
            word = self._words[self._at]
            self._at += 1
            if HOLE in word:
                return False
            if self._behind is not None or word == "-" or not word.startswith("-"):
                if word.startswith(NAMES) and self._program.may_write and self._behind is None:
                    # A file may be named like an option.
                    return False
                self._operands.append(word)
            elif self._operands and self._program.one_by_one:
                return False
            elif word == "--":
                self._behind = len(self._operands)
            elif not (self._long(word) if word.startswith("--") else self._short(word)):
                return False
        return True

    def _long(self, word: str) -> bool:
        name, mark, value = word.partition("=")
        kind = self._known.get(name)
        if kind is None or not is_known(name) or (mark and kind == "flag"):
            return False
        if kind == "flag" or (kind == "optional" and not mark):
            self._options.append(Option(name, ""))
            return True
        return self._value(name, kind, value) if mark else self._apart(name, kind)

    def _short(self, word: str) -> bool:
        if "-#" in self._known and re.fullmatch(r"-[0-9]+", word):
            self._options.append(Option("-#", word[1:]))
            return True
        at = 1
        while at < len(word):
            name = f"-{word[at]}"
            at += 1
            kind = self._known.get(name)
            if kind is None or name == "-#":
                return False
            if kind == "flag":
                self._options.append(Option(name, ""))
                if self._program.one_by_one and len(word) > 2:
                    return False
                continue
            rest = word[at:]
            if not rest and kind != "optional":
                return self._apart(name, kind)
            return not self._program.values_apart and self._value(name, kind, rest)
        return True

    def _apart(self, name: str, kind: Kind) -> bool:
        if self._at >= len(self._words):
            return False
        value = self._words[self._at]
        self._at += 1
        if not is_known(value) and value != PIPE:
            return False
        return self._value(name, kind, value, is_apart=True)

    def _value(self, name: str, kind: Kind, value: str, *, is_apart: bool = False) -> bool:
        # A wildcard in the word of an option stands for words with the same option.
        if kind in ("path", "number") and not is_known(value) and value != PIPE:
            return False
        if kind == "number" and not _NUMBER.fullmatch(value):
            return False
        self._options.append(Option(name, value, is_apart))
        return True
