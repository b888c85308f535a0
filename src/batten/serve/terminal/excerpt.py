"""The part of a command's output that people are shown: head, tail, and why it failed."""

import re
from collections import deque

from msgspec import Struct

HEAD = 4
_TAIL = 4
_TAIL_OF_FAILURE = 12
_MOST_TELLING = 6
_LONGEST_LINE = 2000
_COLORS = re.compile(r"\x1b\[[0-9;:]*m")
_TELLING = re.compile(
    r"^[>E]\s+\S|\b(?:Assertion\w*|\w*Error|\w*Exception|FAIL(?:ED|URE)?|panicked|fatal|error)\b"
    r"|^\s*(?:[Ee]xpected|[Rr]eceived|[Aa]ctual|left|right)\s*:"
)
"""Lines that say what went wrong, in the words of test runners and compilers."""


class _Numbered(Struct, frozen=True):
    number: int
    text: str


class Excerpt:
    """Takes the output of one command in pieces; memory is bounded whatever it writes."""

    def __init__(self, *, whole: bool = False) -> None:
        """`whole`: every line is shown."""
        self._whole = whole
        self._count = 0
        self._partial: dict[str, str] = {}
        """The unfinished line of each stream."""
        self._tail: deque[_Numbered] = deque(maxlen=_TAIL_OF_FAILURE + 1)
        self._telling: list[_Numbered] = []

    def feed(self, stream: str, data: str) -> list[str]:
        """The lines to show at once."""
        *complete, rest = (self._partial.get(stream, "") + data).split("\n")
        self._partial[stream] = rest[:_LONGEST_LINE]
        return [shown for text in complete for shown in self._take(text)]

    def finish(self) -> list[str]:
        """The output has ended: the unfinished lines, if they belong to the head."""
        rest = [text for text in self._partial.values() if text]
        self._partial.clear()
        return [shown for text in rest for shown in self._take(text)]

    def replace_tail(self, text: str) -> None:
        """Use the end of `text`: the pieces stopped before the end of the output."""
        lines = text.splitlines()
        self._count += len(lines)
        self._tail.clear()
        for number, one in enumerate(lines, self._count - len(lines) + 1):
            self._tail.append(_Numbered(number, _visible(one)))

    def rest(self, *, failed: bool) -> list[str]:
        """The lines after the head, with marks where some are left out."""
        if self._whole:
            return []
        most = _TAIL_OF_FAILURE if failed else _TAIL
        # A mark for one line takes the place of that line.
        tail = list(self._tail)[-most if self._count - HEAD > most + 1 else 0 :]
        first = tail[0].number if tail else self._count + 1
        telling = [*self._telling, *(one for one in self._tail if is_telling(one.text))]
        telling = [one for one in telling if one.number < first] if failed else []
        shown: list[str] = []
        last = min(HEAD, self._count)
        for one in (*telling, *tail):
            left_out = one.number - last - 1
            if left_out > 0:
                shown.append(left_out_mark(left_out))
            shown.append(one.text)
            last = one.number
        return shown

    def _take(self, text: str) -> list[str]:
        self._count += 1
        visible = _visible(text)
        if self._whole or self._count <= HEAD:
            return [visible]
        one = _Numbered(self._count, visible)
        if len(self._tail) == self._tail.maxlen:
            oldest = self._tail[0]
            if len(self._telling) < _MOST_TELLING and is_telling(oldest.text):
                self._telling.append(oldest)
        self._tail.append(one)
        return []


def is_telling(text: str) -> bool:
    """Whether a line of output says what went wrong."""
    return _TELLING.search(text) is not None


def left_out_mark(lines: int) -> str:
    return f"… {lines} {'line' if lines == 1 else 'lines'} …"


def _visible(text: str) -> str:
    """A line as a terminal would show it: without colours, and after its last carriage return."""
    text = text[:_LONGEST_LINE].rstrip("\r")
    return _COLORS.sub("", text.rpartition("\r")[2]).rstrip()
