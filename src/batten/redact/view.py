"""A text as known values are searched in it: without what may stand between the characters of a
value, and without the difference of capital and small letters.

Between them may stand: line ends (wrapped lines), also as strings spell them, colours and other
escapes of terminals, zero-width characters, the zeros of UTF-16, and overstriking backspaces.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from batten.redact.shapes import compiled

_INVISIBLE = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e007f"
)
_NOISE = (
    ("\x1b", r"\x1b(?:\[[0-9;:?]{0,32}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|[()][A-Z0-9])?"),
    ("\b", r"\x08(?:(?<=(?P<struck>[^\x08])\x08)(?P=struck))?|_\x08"),
    ("\0", r"\x00"),
)
"""What may stand between the characters of a value, by the characters that it has."""

_SPELLED_NOISE = (
    ("1b[", r"\\(?:u00|x)1b\[[0-9;]{0,32}m"),
    ("033[", r"\\033\[[0-9;]{0,32}m"),
    ("\\e[", r"\\e\[[0-9;]{0,32}m"),
)
"""Colours as strings spell them."""

_LINE_ENDS = (("\\r\\n", "\n\n\n\n"), ("\\n", "\n\n"), ("\\\n", "\n\n"))
"""Line ends as strings and shells spell them. No place moves."""

_UNFINISHED = (
    r"(?:\x1b(?:\[[0-9;:?]{0,32}|\][^\x07\x1b\n]{0,256}\x1b?|[()])?"
    r"|\\(?:u(?:0(?:0(?:1b?)?)?)?|x(?:1b?)?|0(?:33?)?|e|r\\?)?(?:\[[0-9;]{0,32})?"
    r"|.\x08|_|\r)\Z"
)
"""The end of a text that may be the beginning of something between two characters."""
_LONGEST_UNFINISHED = 300


class View:
    """The text to search, and the places of its characters in the original."""

    __slots__ = ("_hard", "_joined", "_original", "text")

    def __init__(self, original: str) -> None:
        self._original = original
        self.text = folded(_even(without_noise(original)).replace("\n", ""))
        self._hard: tuple[list[int], list[int]] | None = None
        self._joined: tuple[list[int], list[int]] | None = None

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """The span of characters in the original."""
        return self._place(begin), self._place(end - 1) + 1

    def _place(self, place: int) -> int:
        if self._joined is None or self._hard is None:
            hard = without_noise(self._original)
            self._joined = _starts(_lines(_even(hard)))
            kept = [(0, len(hard))] if hard is self._original else _kept(self._original)
            self._hard = _starts(kept)
        for starts, origins in (self._joined, self._hard):
            part = bisect_right(starts, place) - 1
            place = origins[part] + place - starts[part]
        return place


def folded(text: str) -> str:
    """With small ASCII letters. No other letters: their small form depends on their neighbours."""
    if text.isascii():
        return text.lower()
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def without_noise(text: str) -> str:
    """The text without what terminals do not show; lines stay."""
    if text.isascii() and not ("\x1b" in text or "\\" in text or "\b" in text or "\0" in text):
        return text  # as nearly every piece of a stream
    noise = _noise(text)
    return compiled(noise).sub("", text) if noise else text


def _noise(text: str) -> str:
    """The pattern of what may be left out of this text."""
    noise = "|".join([pattern for mark, pattern in _NOISE if mark in text])
    if "\\" in text:
        spelled = [pattern for mark, pattern in _SPELLED_NOISE if mark in text]
        noise = "|".join([noise, *spelled] if noise else spelled)
    if text.isascii():
        return noise
    return f"{noise}|[{_INVISIBLE}]" if noise else f"[{_INVISIBLE}]"


def finished(text: str) -> set[str]:
    """The text without ends that may belong to what stands between two characters."""
    last = text[-_LONGEST_UNFINISHED:]
    if not (last.endswith(("_", "\r")) or "\x1b" in last or "\\" in last or "\b" in last):
        return set()  # as nearly every piece of a stream
    tail = compiled(_UNFINISHED).search(text, max(0, len(text) - _LONGEST_UNFINISHED))
    if tail is None:
        return set()
    ends = {text[: tail.start()], text.rstrip("\r")}
    return ends | {end.rstrip("\\") for end in ends}


def _even(text: str) -> str:
    """The text with plain line ends."""
    if "\\" in text:
        for spelled, plain in _LINE_ENDS:
            text = text.replace(spelled, plain)
    return text.replace("\r\n", "\n\n") if "\r" in text else text


def _kept(text: str) -> Iterator[tuple[int, int]]:
    place = 0
    for found in compiled(_noise(text)).finditer(text):
        yield place, found.start()
        place = found.end()
    yield place, len(text)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    place = 0
    for line in text.split("\n"):
        yield place, place + len(line)
        place += len(line) + 1


def _starts(parts: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Where the parts begin in the text that is made of them, and in the original."""
    starts, origins = [0], [0]
    length = 0
    for begin, end in parts:
        if end > begin:
            starts.append(length)
            origins.append(begin)
            length += end - begin
    return starts, origins
