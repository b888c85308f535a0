"""Tokens of vendors, from the facts in `formats.json`: found by a mark at their beginning, by a
word near them, or by their whole form.

The file is written by `scripts/generate_formats.py`. It is read when a text first has a place where
a token may begin, and the pattern of a format is compiled when its mark was found.
"""

import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain

from msgspec import Raw, Struct, json

from batten.redact.shapes import Shape, before, compiled, is_mixed

_LONGEST_MARK = 24
"""The generator cuts longer marks: their last characters are enough."""
_SHORT_MARK = 3
"""Up to this length a mark is a word of its own: no part of a name with hyphens or underscores."""
_CLEAR_WORDS = ("AKIA", "ASIA", "AIza")
_LONGEST_BEFORE = 20
_SHORTEST_PIECE = 12
_LEAST_LETTERS = 8
"""Different letters of a token that has no digit."""
_SHORT = 4096
_ANCHORS = "-_./=:~|$"
"""The last characters of marks. A mark without one of them is a word."""
_NEXT = (
    r"(?=[_+/=-]{0,2}[A-Za-z0-9][A-Za-z0-9_+/=-]{4}[A-Za-z0-9_+/=.:-]{5})"
    r"(?:(?=[A-Za-z_+/=.:~-]{0,64}+(?:[0-9]|\Z))|(?=[A-Za-z]{14})"
    r"|(?=[a-z_-]{0,12}+[A-Z]{1,9}+[a-z_-]{1,12}+[A-Z]))"
)
"""What follows a mark: digits, many letters, or changing case. Few names of ordinary text have
those, so that no more is looked at."""
_END = r"(?=[A-Za-z0-9_+/=.:-]{0,11}+\Z)"
_FOLLOWING = f"(?:{_NEXT}|{_END})"
_WORD_NEXT = r"(?:[A-Za-z0-9_+/-]{12}|[A-Za-z0-9_+/-]{0,11}\Z)"
_ALNUM = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-"
_SIGNED = r"[=:\"'>`][ \t]{0,4}$"
"""What stands before a token that is known by its whole form or by a word near it. Behind anything
else its first letters stay readable: a stream need not hold back every word."""
_SIGN_LENGTH = 5
_RUN_BYTES = f"{_ALNUM}+/".encode()
_AS_RUN = bytes(b"a"[0] if byte in _RUN_BYTES else b" "[0] for byte in range(256))
_LEAST_RUN = 13
_RUN_START = b" " + b"a" * _LEAST_RUN
_HAS_DIGIT = r"[A-Za-z_+/.:=-]{0,110}+(?:[0-9]|\Z)"
_RUN_END = r"(?<![A-Za-z0-9_+/-])[A-Za-z0-9_+/-]{1,12}+\Z"
_RUN_CLASS = "[A-Za-z0-9_+/=.:-]"
_LONGEST_RUN = 110
_SHORTEST_RUN = 14
_SHORTEST_ALONE = 34
_NO_SECRET = (
    r"(?i)(?:\b(?:sha(?:1|224|256|384|512)|md5)[:=-]|[\w.-]/[\w./-]{1,100}@"
    r"|\b(?:\w{1,40}[_-])??(?:request|trace|span|correlation|commit|build|run|job|test)[_ -]?id"
    r"[\"']?[ ]?[=:][ ]?[\"']?)$"
)
"""Behind these a digest, a pinned commit (`owner/action@…`) or an id of a log is no token of the
vendor near it."""
_LONGEST_NO_SECRET = 160
_SECRET_WORDS = r"key|token|secret|passw|cred|auth"
"""A person or a model names a secret so; without such a word a vendor's name proves nothing."""
_ESCAPE = r"(?:\\[nrtbfv]|%[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\[[0-9;]{0,12}[mK])$"
_LONGEST_ESCAPE = 16


class Row(Struct, frozen=True, array_like=True):
    before: str
    """The pattern of what stands before the mark."""
    characters: str
    """The class of the characters of the value."""
    pattern: str
    """The first characters of the value."""
    ends: bool
    """The value has no other characters."""


class Facts(Struct, frozen=True):
    """The file. What few texts need is decoded when one needs it."""

    prefixes: dict[str, Raw]
    words: dict[str, Raw]
    near: Raw
    near_starts: frozenset[str]
    """The first letters of the words in `near`, up to three: the cheapest test."""
    runs: tuple[str, ...]


class _Index(Struct, frozen=True):
    facts: Facts
    endings: frozenset[str]
    """The last three characters of marks, and whole shorter ones: the cheapest test."""
    lengths: tuple[int, ...]
    """Of marks that are no words."""
    words: dict[str, tuple[str, ...]]
    """Marks that are words, by their first letter."""


@cache
def _index() -> _Index:
    with open(os.path.join(os.path.dirname(__file__), "formats.json"), "rb") as file:
        facts = json.decode(file.read(), type=Facts)
    words: dict[str, tuple[str, ...]] = {}
    for word in facts.words:
        words[word[0]] = (*words.get(word[0], ()), word)
    return _Index(
        facts,
        frozenset([mark[-3:] for mark in facts.prefixes]),
        tuple(sorted(set(map(len, facts.prefixes)))),
        words,
    )


@cache
def _last() -> dict[str, str]:
    """The characters before the last one of marks, as a class, by the last one."""
    last: dict[str, set[str]] = {anchor: set() for anchor in _ANCHORS}
    for mark in _index().facts.prefixes:
        last[mark[-1]].update(mark[-2:-1] or _ALNUM)
    return {anchor: re.escape("".join(sorted(those))) for anchor, those in last.items()}


@cache
def _near() -> dict[str, tuple[str, ...]]:
    """The patterns of tokens near each word."""
    return json.decode(_index().facts.near, type=dict[str, tuple[str, ...]])


def candidates(
    text: str, start: int, *, at_beginning: bool, guesses: bool, final: bool
) -> Iterator[tuple[int, list[Shape]]]:
    """The places where a token may begin, with the shapes that may be there."""
    for pattern in _anchors(text):
        for found in compiled(pattern).finditer(text, start):
            end, endings = found.end(), _index().endings
            if (
                text[end - 3 if end > 3 else 0 : end] in endings
                or text[end - 2 if end > 2 else 0 : end] in endings
                or text[end - 1] in endings
            ):
                shapes = _marked(text, end)
                if shapes:
                    yield end - 1, shapes
    data = b" " + text.encode("latin-1", "replace").translate(_AS_RUN)
    # The blank is one place before, so that a place in the data is that of a run in the text.
    if data.find(_RUN_START) >= 0:
        yield from _words(text, start)
    elif final or data.endswith(b" "):
        return
    else:  # only the last run, which may grow, can be one
        yield from _words(text, max(start, data.rfind(b" ")))
    yield from _runs(text, data, start, at_beginning=at_beginning, guesses=guesses)


def _anchors(text: str) -> Iterator[str]:
    """Patterns of the ends of marks. A long text is searched for one after another, at memory
    speed; for a short one that would be more patterns to compile than text to search."""
    if len(text) <= _SHORT:
        yield f"[{_ANCHORS}]{_FOLLOWING}"
    else:
        last = _last()
        for anchor in _ANCHORS:
            if anchor in text:
                yield f"[{anchor}](?<=[{last[anchor]}][{anchor}]){_FOLLOWING}"


def _runs(
    text: str, data: bytes, start: int, *, at_beginning: bool, guesses: bool
) -> Iterator[tuple[int, list[Shape]]]:
    """The beginnings of long runs of characters of tokens that have a digit, and of the last run
    of a text, which may grow."""
    behind_sign = _GUESSED_RUN if guesses else _CERTAIN_RUN
    behind_other = _GUESSED_BLANK if guesses else _CERTAIN_BLANK
    for place in _places(text, data, start):
        if (place or at_beginning) and compiled(_HAS_DIGIT).match(text, place):
            earlier = text[place - _SIGN_LENGTH if place > _SIGN_LENGTH else 0 : place]
            is_signed = compiled(_SIGNED).search(earlier) is not None
            yield place, behind_sign if is_signed else behind_other


def _places(text: str, data: bytes, start: int) -> Iterator[int]:
    place = data.find(_RUN_START, start)
    while place >= 0:
        yield place
        place = data.find(_RUN_START, place + _LEAST_RUN)
    last = compiled(_RUN_END).search(text, max(start, len(text) - _LEAST_RUN))
    if last is not None:
        yield last.start()


def _marked(text: str, end: int) -> list[Shape]:
    """The shapes of the marks that end before a place."""
    index = _index()
    found: list[Shape] = []
    for length in index.lengths:
        if length > end:
            break
        mark = text[end - length : end]
        if mark in index.facts.prefixes and (
            _rows(mark)[0].before or _begins(text, end - length, mark)
        ):
            found += _shapes_of(mark)
    return found


def _words(text: str, start: int) -> Iterator[tuple[int, list[Shape]]]:
    """The places of marks that are words. Those in small letters are searched one by one: one
    pattern for all would stop at every fourth letter."""
    index = _index()
    if len(text) <= _SHORT:
        present = [words for first, words in index.words.items() if text.find(first, start) >= 0]
        small: Iterable[str] = chain.from_iterable(present)
    else:
        small = [word for word in index.facts.words if word[0].islower()]
        for first, words in index.words.items():
            if first in text and not first.islower():
                rests = "|".join(word[1:] for word in words)
                for found in compiled(
                    f"{first}(?<!{first}{first})(?=(?:{rests}){_WORD_NEXT})"
                ).finditer(text, start):
                    place = found.start()
                    for word in words:
                        if text.startswith(word, place) and _begins(text, place, word):
                            yield place, _shapes_of(word)
    for word in small:
        place = text.find(word, start)
        while place >= 0:
            if _begins(text, place, word):
                yield place, _shapes_of(word)
            place = text.find(word, place + 1)


@cache
def _shapes_of(mark: str) -> list[Shape]:
    return [_shape_of(mark, row) for row in _rows(mark)]


@cache
def _rows(mark: str) -> tuple[Row, ...]:
    facts = _index().facts
    rows = facts.prefixes[mark] if mark in facts.prefixes else facts.words[mark]
    return json.decode(rows, type=tuple[Row, ...])


def _shape_of(mark: str, row: Row) -> Shape:
    is_word = mark[-1].isalnum()
    # Letters alone are a token behind such a mark, and a name behind others.
    may_be_letters = mark[-1] == "_" or mark.isupper()
    needs_digit = len(mark) <= _SHORT_MARK and not may_be_letters

    def accept(opening: re.Match[str], head: str, _after: str) -> bool:
        begin = opening.end() - len(mark)
        if row.before and not _stands_behind(row.before, opening.string, begin):
            return False
        matches = compiled(row.pattern).fullmatch if row.ends else compiled(row.pattern).match
        if matches(head) is None:
            return False
        if needs_digit:
            return is_mixed(head)
        return _is_random(head, may_be_letters=may_be_letters)

    opening = re.escape(mark if is_word else mark[-1])
    return Shape(opening, len(mark) if is_word else 1, row.characters, accept)


def _stands_behind(pattern: str, text: str, place: int) -> bool:
    begin = max(0, place - _LONGEST_BEFORE)
    start = "(?:^|[^A-Za-z0-9])" if begin == 0 else "[^A-Za-z0-9]"
    return compiled(f"{start}(?:{pattern})$").search(text[begin:place]) is not None


def _begins(text: str, place: int, mark: str) -> bool:
    """Whether a mark is no part of a longer word: it stands alone, behind the last letter of an
    escape, or right behind another token."""
    if place == 0 or len(mark) == _LONGEST_MARK:
        return True
    last = text[place - 1]
    if not last.isalnum() or not last.isascii():
        return len(mark) > _SHORT_MARK or last not in "_-"
    earlier = text[max(0, place - _LONGEST_ESCAPE) : place]
    if compiled(_ESCAPE).search(earlier):
        return True
    is_clear = mark[-1] == "_" or mark in _CLEAR_WORDS
    return (
        is_clear
        and len(mark) > _SHORT_MARK
        and compiled("[A-Za-z0-9]{6}$").search(earlier) is not None
    )


def _is_random(head: str, *, may_be_letters: bool) -> bool:
    if is_mixed(head) or (len(head) >= 20 and head[:1].isdigit()):
        return True
    piece = max(compiled("[A-Za-z]+").findall(head), key=len, default="")
    if len(piece) < _SHORTEST_PIECE or len(set(piece)) < _LEAST_LETTERS:
        return False
    changes = compiled("[a-z].*[A-Z].*[a-z].*[A-Z]|[A-Z].*[a-z].*[A-Z].*[a-z]").search(piece)
    return may_be_letters or changes is not None


def _has_sign_or_capital(value: str) -> bool:
    """As every whole form has, and a digest has not."""
    return not (value.isalnum() and value.islower())


def _run(opening: str, reach: int, *, guesses: bool) -> Shape:
    def accept(opening: re.Match[str], head: str, _after: str) -> bool:
        value = opening["first"] + head.rstrip(".:")
        if not _SHORTEST_RUN <= len(value) < _LONGEST_RUN or not compiled("[0-9]").search(value):
            return False
        if (
            len(value) >= _SHORTEST_ALONE
            and _has_sign_or_capital(value)
            and any(compiled(one).fullmatch(value) for one in _index().facts.runs)
        ):
            return True
        earlier = before(opening).rpartition("\n")[2]
        words = compiled("[A-Z]?[a-z]+|[A-Z]+").findall(earlier)
        if not words or _index().facts.near_starts.isdisjoint(word[:3].lower() for word in words):
            return False
        folded = earlier.lower()
        if not guesses and compiled(_SECRET_WORDS).search(folded) is None:
            return False
        has_form = any(
            compiled(pattern).fullmatch(value)
            for word, patterns in _near().items()
            if word in folded
            for pattern in patterns
        )
        return has_form and not compiled(_NO_SECRET).search(earlier[-_LONGEST_NO_SECRET:])

    return Shape(opening, reach, _RUN_CLASS, accept, head=_LONGEST_RUN)


_BEHIND_SIGN = r"(?P<first>)", 0
_BEHIND_BLANK = r"(?P<first>[A-Za-z_+/-]{0,8}+)(?=[A-Za-z0-9_+/-])", 9
_GUESSED_RUN = [_run(*_BEHIND_SIGN, guesses=True)]
_CERTAIN_RUN = [_run(*_BEHIND_SIGN, guesses=False)]
_GUESSED_BLANK = [_run(*_BEHIND_BLANK, guesses=True)]
_CERTAIN_BLANK = [_run(*_BEHIND_BLANK, guesses=False)]
