"""Known values in a text: where they are, and where one may have begun.

A value has two dozen spellings, and an environment may hold twenty values. To search a text for
each of them would cost more than the rest of a scan, so the text is sampled first: a value that is
long enough covers a sampled word of eight bytes, wherever it stands. A text without such a word,
which is almost every text, has no such value.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

_WORD = 8
_START = 6
"""Characters that are compared before a whole beginning is."""

_SHORT = 2048
"""Up to this length every word is sampled: less is left to compare at the end of the text."""

_STRIDES = range(1, 9)
_SEARCH_COST = 8.0
"""The cost of searching a text for one value, in the same unit as the next."""
_SAMPLE_COST = 200.0
"""The cost of looking up every eighth byte of the same text."""


class KnownValues:
    """Finds known values. Compiled once, immutable; the sampled words are built at first use."""

    __slots__ = ("_longest", "_sampler", "_sorted", "_starts", "_values")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = sorted(values, key=len)
        self._sorted = sorted(self._values)
        self._longest = len(self._values[-1]) if self._values else 0
        self._starts = _starts(self._values)
        self._sampler: _Sampler | None = None

    def search(self, text: str, start: int, *, final: bool) -> tuple[list[tuple[int, int]], int]:
        """The spans of known values that begin at or after `start`, and the earliest place where
        one may have begun that the text does not end: the end of the text if there is none."""
        if not self._values:
            return [], len(text)
        if self._sampler is None:
            self._sampler = _Sampler(self._values)
        fresh = text[start:] if start else text
        values, longest = self._sampler.sample(fresh) or (self._values, self._longest)
        spans: list[tuple[int, int]] = []
        for value in values:
            if len(value) > len(fresh):
                break
            if value in fresh:
                spans += _occurrences(value, text, start)
        if final:
            return spans, len(text)
        return spans, self._beginning(text, max(start, len(text) - longest + 1))

    def _beginning(self, text: str, start: int) -> int:
        starts = self._starts
        for place in range(start, len(text)):
            if text[place : place + _START] in starts and self._begins(text[place:]):
                return place
        return len(text)

    def _begins(self, text: str) -> bool:
        """Whether a longer known value begins with this text."""
        place = bisect_right(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)


class _Sampler:
    """Words of eight bytes, at every offset of every long value at which a sample may begin."""

    __slots__ = ("_coarse", "_coarse_stride", "_fine", "_words")

    def __init__(self, values: list[str]) -> None:
        """`values` are sorted by length."""
        encoded = [(_bytes(value), value) for value in values]
        self._coarse_stride = stride = _best_stride(sorted([len(data) for data, _ in encoded]))
        self._coarse = _missed(encoded, stride)
        self._fine = _missed(encoded, 1)
        parts: list[bytes] = []
        for data, _ in encoded:
            size = min(stride, (len(data) - _WORD + 1) // _WORD) * _WORD
            if size > 0:
                parts += [data[offset : offset + size] for offset in range(_WORD)]
        self._words = frozenset(memoryview(b"".join(parts)).cast("Q"))

    def sample(self, text: str) -> tuple[list[str], int] | None:
        """The values that the samples of a text may miss, and a length that the beginning of any
        value at its end does not reach; None if the text may have any value."""
        data = _bytes(text)
        words = memoryview(data)[: len(data) // _WORD * _WORD].cast("Q")
        if len(data) <= _SHORT:
            return self._fine if self._words.isdisjoint(words) else None
        return self._coarse if self._words.isdisjoint(words[:: self._coarse_stride]) else None


def _starts(values: list[str]) -> frozenset[str]:
    """The beginnings of values, up to `_START` characters."""
    starts: set[str] = set()
    level: Iterable[str] = values
    for length in range(_START, 0, -1):
        level = {value[:length] for value in level}
        starts |= level
    return frozenset(starts)


def _missed(encoded: list[tuple[bytes, str]], stride: int) -> tuple[list[str], int]:
    least = _least(stride)
    return [value for data, value in encoded if len(data) < least], least


def _least(stride: int) -> int:
    """The bytes of the shortest value that must cover a sample."""
    return (stride + 1) * _WORD - 1


def _best_stride(lengths: list[int]) -> int:
    """The distance of samples, in words, for sorted lengths of values. Fewer samples leave more
    values to search for."""

    def cost(stride: int) -> float:
        short = bisect_left(lengths, _least(stride))
        return short * _SEARCH_COST + _SAMPLE_COST / stride

    return min(_STRIDES, key=cost)


def _occurrences(value: str, text: str, start: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    place = text.find(value, start)
    while place >= 0:
        spans.append((place, place + len(value)))
        place = text.find(value, place + 1)
    return spans


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
