"""Known values in a text: where they are, and where one may have begun.

A value has dozens of spellings, and an environment may hold a thousand values. To search a text for
each of them would cost more than the rest of a scan, so the text is sampled: a value that is long
enough covers a sampled word wherever it stands, and the word tells which value and where.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Literal

from batten.redact.view import View, finished, without_noise

_START = 6
"""Characters that are compared before a whole beginning is. No value is shorter."""
_LEAST_FOLDED = 12
"""A shorter value is compared with its capital and small letters, and on one line."""
_FEW = 48
"""So many short values are searched for one by one."""
_MOST_BETWEEN = 32
_SPARE_BETWEEN = 256
"""Characters that may stand between those of a value: for each of its own, and for all."""


class KnownValues:
    """Finds known values. Compiled once, immutable; the sampled words are built at first use."""

    __slots__ = ("_exact", "_longest", "_samplers", "_sorted", "_starts", "_values")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._exact: dict[str, set[str]] = {}
        for value in values:
            text = View(value).text.strip()
            if len(text) >= _START:
                exact = self._exact.setdefault(text, set())
                if len(text) < _LEAST_FOLDED:
                    exact.add(without_noise(value))
        self._values = sorted(self._exact, key=len)
        self._sorted = sorted(self._values)
        self._longest = len(self._values[-1]) if self._values else 0
        self._starts = _starts(self._values)
        self._samplers: tuple[_Sampler | _Search, ...] | None = None

    def search(self, text: str, start: int, *, final: bool) -> tuple[list[tuple[int, int]], int]:
        """The spans of known values that begin at or after `start`, and the earliest place where
        one may have begun that the text does not end: the end of the text if there is none."""
        if not self._values:
            return [], len(text)
        fresh = text[start:] if start else text
        view = View(fresh)
        spans: list[tuple[int, int]] = []
        for place, value in self._found(view.text):
            begin, end = view.span(place, place + len(value))
            if self._is_meant(value, fresh[begin:end]):
                spans.append((start + begin, start + end))
        if final:
            return spans, len(text)
        # What begins before this tail would be too long.
        tail = text[max(start, len(text) - _longest_span(self._longest)) :]
        begun = self._beginning(view if tail == fresh else View(tail), len(tail))
        for whole in finished(tail):
            begun = min(begun, self._beginning(View(whole), len(tail)))
        return spans, len(text) - len(tail) + begun

    def _found(self, text: str) -> Iterator[tuple[int, str]]:
        if self._samplers is None:
            self._samplers = _samplers_of(self._values)
        data = text.encode("utf-8", "surrogatepass")
        for sampler in self._samplers:
            yield from sampler.find(text, data)

    def _is_meant(self, value: str, written: str) -> bool:
        if len(written) > _longest_span(len(value)):
            return False
        if len(value) >= _LEAST_FOLDED:
            return True
        return without_noise(written) in self._exact[value]

    def _beginning(self, view: View, end: int) -> int:
        """The earliest place where a value may have begun that goes on behind the text; `end` if
        there is none."""
        seen = view.text
        for place in range(max(0, len(seen) - self._longest + 1), len(seen)):
            if seen[place : place + _START] in self._starts and self._begins(seen[place:]):
                return view.span(place, place + 1)[0]
        return end

    def _begins(self, text: str) -> bool:
        """Whether a longer known value begins with this text."""
        place = bisect_right(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)


class _Sampler:
    """Words of a size, at every offset of values at which a sample of a text may begin."""

    __slots__ = ("_format", "_size", "_values", "_words")

    def __init__(self, values: list[str], size: int) -> None:
        """Every value has at least `2 * size - 1` bytes."""
        self._size = size
        self._format: Literal["Q", "I"] = "Q" if size == 8 else "I"
        self._values = [(value.encode("utf-8", "surrogatepass"), value) for value in values]
        words: dict[int, list[tuple[int, int]]] = {}
        for number, (data, _) in enumerate(self._values):
            first = memoryview(b"".join([data[at : at + size] for at in range(size)]))
            for offset, word in enumerate(first.cast(self._format)):
                words.setdefault(word, []).append((number, offset))
        self._words = words

    def find(self, text: str, data: bytes) -> Iterator[tuple[int, str]]:
        size, known = self._size, self._words
        samples = memoryview(data)[: len(data) // size * size].cast(self._format)
        if known.keys().isdisjoint(samples):
            return
        is_ascii = len(data) == len(text)
        for sample, word in enumerate(samples):
            if word in known:
                for number, offset in known[word]:
                    place = sample * size - offset
                    encoded, value = self._values[number]
                    if place >= 0 and data.startswith(encoded, place):
                        yield (
                            place
                            if is_ascii
                            else len(data[:place].decode("utf-8", "surrogatepass")),
                            value,
                        )


class _Search:
    """A few short values, one by one."""

    __slots__ = ("_values",)

    def __init__(self, values: list[str]) -> None:
        self._values = values

    def find(self, text: str, data: bytes) -> Iterator[tuple[int, str]]:
        for value in self._values:
            place = text.find(value)
            while place >= 0:
                yield place, value
                place = text.find(value, place + 1)


def _samplers_of(values: list[str]) -> tuple["_Sampler | _Search", ...]:
    """By size: long values, short ones, and what no sample is sure to meet."""
    sizes = [(len(value.encode("utf-8", "surrogatepass")), value) for value in values]
    short = [value for size, value in sizes if 7 <= size < 15]
    if len(short) <= _FEW:
        rest = [value for size, value in sizes if size < 15]
        short = []
    else:
        rest = [value for size, value in sizes if size < 7]
    long = [value for size, value in sizes if size >= 15]
    return tuple(
        found
        for found in (
            _Sampler(long, 8) if long else None,
            _Sampler(short, 4) if short else None,
            _Search(rest) if rest else None,
        )
        if found is not None
    )


def _longest_span(length: int) -> int:
    return length * _MOST_BETWEEN + _SPARE_BETWEEN


def _starts(values: list[str]) -> frozenset[str]:
    """The beginnings of values, up to `_START` characters."""
    starts: set[str] = set()
    level: Iterable[str] = values
    for length in range(_START, 0, -1):
        level = {value[:length] for value in level}
        starts |= level
    return frozenset(starts)
