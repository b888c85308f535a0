"""Replaces a piece of text: exact matches first, then ever looser comparison of whole lines.

Pure. Work is linear in the text, also when nothing matches.
"""

import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from batten.contract.errors import CallerError

Level = Literal["exact", "whitespace-normalized", "indent-flexible", "line-fuzzy"]
Failure = Literal["not_found", "not_unique", "empty", "unchanged"]

_HINT_CHARS = 1_000_000
_HINT_WORDS = 32
_HINT_WORD_CHARS = 64
_HINT_SCORE = 3
_SNIPPET_LINES = 3
_SNIPPET_CHARS = 200


class Edited(Struct, frozen=True):
    text: str
    count: int
    """Number of replacements."""
    level: Level
    """How loose the match was."""


class Closest(Struct, frozen=True):
    """The most similar place, shown when nothing matches."""

    line: int
    snippet: str


class EditFailed(CallerError):
    """The edit does not fit the text. Nothing was changed."""

    code = "edit_failed"

    def __init__(self, kind: Failure, closest: Closest | None = None) -> None:
        self.kind: Failure = kind
        self.closest = closest
        super().__init__(self.explain("the text"))

    def explain(self, path: str) -> str:
        """The reason, worded for the model or person that requested the edit."""
        match self.kind:
            case "empty":
                return f"old_string is empty: name the text to replace in {path}"
            case "unchanged":
                return f"old_string and new_string leave {path} as it is"
            case "not_unique":
                return (
                    f"old_string is not unique in {path} (found multiple matches). "
                    "Use replace_all: true to replace all, or provide more context."
                )
            case "not_found" if self.closest is not None:
                return (
                    f"old_string not found in {path}. "
                    f"Closest match near line {self.closest.line}:\n{self.closest.snippet}"
                )
            case "not_found":
                return f"old_string not found in {path}"


def replace(text: str, old: str, new: str, *, replace_all: bool = False) -> Edited:
    """`text` with `old` replaced by `new`, once or everywhere. Raises `EditFailed`.

    The first level that finds anything decides: a looser one never overrules it. `old` and
    `new` written with LF fit a text with CRLF.
    """
    if not old:
        raise EditFailed("empty")
    if "\r\n" in text and "\r" not in old:
        # Models write LF. In a text with CRLF the LF spelling may still match exactly.
        if old not in text:
            old = old.replace("\n", "\r\n")
        is_mostly_crlf = text.count("\r\n") * 2 > text.count("\n")
        if "\r" not in new and is_mostly_crlf:
            new = new.replace("\n", "\r\n")
    edited = _replace_exact(text, old, new, replace_all) or _replace_lines(
        text, old, new, replace_all
    )
    if edited is None:
        raise EditFailed("not_found", _closest(text, old))
    if edited.text == text:
        raise EditFailed("unchanged")
    return edited


def _replace_exact(text: str, old: str, new: str, replace_all: bool) -> Edited | None:
    first = text.find(old)
    if first < 0:
        return None
    if replace_all:
        return Edited(text.replace(old, new), text.count(old), "exact")
    if text.find(old, first + 1) >= 0:
        raise EditFailed("not_unique")
    return Edited(text[:first] + new + text[first + len(old) :], 1, "exact")


_inner_space = re.compile(r"\s+")


def _normalized(line: str) -> str:
    body = line.strip()
    return _indent(line) + _inner_space.sub(" ", body) if body else ""


_LEVELS: tuple[tuple[Level, Callable[[str], str]], ...] = (
    ("whitespace-normalized", _normalized),
    ("indent-flexible", lambda line: line.lstrip().rstrip("\r")),
    ("line-fuzzy", lambda line: "".join(line.split())),
)


def _replace_lines(text: str, old: str, new: str, replace_all: bool) -> Edited | None:
    lines = text.split("\n")
    wanted = old.split("\n")
    takes_newline = len(wanted) > 1 and not wanted[-1]
    if takes_newline:
        wanted.pop()
    for level, key in _LEVELS:
        keys = [key(line) for line in lines]
        found = _find_lines(keys, [key(line) for line in wanted], apart=replace_all)
        if len(found) > 1 and not replace_all:
            raise EditFailed("not_unique")
        if found:
            edited = _spliced(lines, found, wanted, new, takes_newline)
            return Edited(edited, len(found), level)
    return None


def _find_lines(keys: list[str], wanted: list[str], *, apart: bool) -> list[int]:
    """The first line of each place where `wanted` occurs in `keys`: with `apart`, of all that do
    not overlap; otherwise of at most two, enough to tell whether the match is unique.

    Lines are joined into one string because string search is linear and list comparison is not.
    """
    if not any(wanted):
        return []
    haystack = "\n" + "\n".join(keys) + "\n"
    needle = "\n" + "\n".join(wanted) + "\n"
    found: list[int] = []
    line, counted, at = 0, 0, haystack.find(needle)
    while at >= 0 and (apart or len(found) < 2):
        line += haystack.count("\n", counted, at)
        found.append(line)
        counted = at
        at = haystack.find(needle, at + (len(needle) - 1 if apart else 1))
    return found


def _spliced(
    lines: list[str], found: list[int], wanted: list[str], new: str, takes_newline: bool
) -> str:
    pieces: list[str] = []
    done = 0
    for first in found:
        pieces.extend(line + "\n" for line in lines[done:first])
        done = first + len(wanted)
        put = _reindented(new, wanted, lines[first:done])
        at_end = done == len(lines)
        if takes_newline:
            pieces.append(put.removesuffix("\n").removesuffix("\r") if at_end else put)
            continue
        pieces.append(put)
        # A CR before the newline belongs to the line ending, not to the replaced text.
        if lines[done - 1].endswith("\r") and not put.endswith("\r"):
            pieces.append("\r")
        if not at_end:
            pieces.append("\n")
    pieces.append("\n".join(lines[done:]))
    return "".join(pieces)


def _reindented(new: str, wanted: list[str], matched: list[str]) -> str:
    """`new`, shifted by the difference between the indentation of `old` and of the matched text.

    Lines matched without regard to indentation would otherwise get the wrong one. If the lines do
    not all shift alike, `new` stays unchanged.
    """
    shifts = {
        (_indent(searched), _indent(there))
        for searched, there in zip(wanted, matched, strict=True)
        if there.strip()
    }
    added = {there.removesuffix(searched) for searched, there in shifts if there.endswith(searched)}
    removed = {
        searched.removesuffix(there) for searched, there in shifts if searched.endswith(there)
    }
    if len(added) == 1 and all(there.endswith(searched) for searched, there in shifts):
        prefix = added.pop()
        return "\n".join(prefix + line if line.strip() else line for line in new.split("\n"))
    if len(removed) == 1 and all(searched.endswith(there) for searched, there in shifts):
        prefix = removed.pop()
        return "\n".join(line.removeprefix(prefix) for line in new.split("\n"))
    return new


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _closest(text: str, old: str) -> Closest | None:
    """The line most similar to the first line of `old`, within the first million characters."""
    text = text[:_HINT_CHARS]
    first = next((line for line in old.splitlines() if line.strip()), "")
    words = [word[:_HINT_WORD_CHARS] for word in first.split()[:_HINT_WORDS]]
    lines = text.split("\n")
    if not words:
        return None
    if len(words) == 1:
        score, at = _longest_piece(text, words[0])
        index = text.count("\n", 0, at)
    else:
        scores = [sum(len(word) for word in words if word in line) for line in lines]
        score = max(scores)
        index = scores.index(score)
    if score < _HINT_SCORE:
        return None
    snippet = [line.rstrip("\r")[:_SNIPPET_CHARS] for line in lines[index : index + _SNIPPET_LINES]]
    # Bytes that are not UTF-8 appear here as lone surrogates, which no message can hold.
    shown = "\n".join(snippet).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return Closest(index + 1, shown)


def _longest_piece(text: str, word: str) -> tuple[int, int]:
    """The length of the longest piece of `word` in `text`, and the offset of its first match."""
    best, at = 0, 0
    low, high = 1, len(word)
    while low <= high:
        size = (low + high) // 2
        places = [text.find(word[i : i + size]) for i in range(len(word) - size + 1)]
        there = [place for place in places if place >= 0]
        if there:
            best, at = size, min(there)
            low = size + 1
        else:
            high = size - 1
    return best, at
