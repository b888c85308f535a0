"""One scan of a text: its secret spans, and where more text could still change the result.

Each secret is found independently of others that overlap it, and the hidden part is their union.
Therefore the result does not depend on how a text is cut into pieces.
"""

import re
from bisect import bisect_right

from msgspec import Struct

from batten.redact import assignments, guesses, keys, shapes
from batten.redact.shapes import LOOKBEHIND, SHORT_LOOKBEHIND, Family, Shape, compiled

MARK = "<redacted>"
_SHORT = 4096
"""Up to this length a quick check, which usually finds nothing, is cheaper than a full scan."""

CERTAIN = shapes.FAMILIES
"""Tokens of known formats and private keys."""
FAMILIES = (*CERTAIN, *guesses.FAMILIES, *assignments.FAMILIES)
_LONGEST_REACH = max(shape.reach for family in FAMILIES for shape in family.shapes)


class Scan(Struct):
    """The result of one scan. Places are indices into the scanned text."""

    spans: list[tuple[int, int]]
    """Secret spans, in any order; they may overlap."""
    open_classes: set[str]
    """Character classes of secrets that continue past the end of the text."""
    keep_from: int
    """The earliest place that the next scan must still see."""
    hold_from: int
    """The earliest place that may still become secret."""
    key_from: int
    """The earliest place that may still be part of a key, unless it is secret already."""
    runs: dict[str, tuple[int, int]]
    """The last run found of each class: a run that begins inside it also ends at its end."""


class Scanner:
    """Finds shapes and known values. Compiled once, immutable."""

    def __init__(self, values: tuple[str, ...], families: tuple[Family, ...] = FAMILIES) -> None:
        self._values = sorted(values, key=len)
        self._families = families
        self._exact = tuple(family for family in families if not family.folded)
        self._folded = tuple(family for family in families if family.folded)
        self._longest = max(map(len, values), default=0)
        self._sorted = sorted(values)
        self._starts = frozenset(value[:3] for value in values)
        self.context = LOOKBEHIND if self._folded else SHORT_LOOKBEHIND
        """Characters before a trigger that a decision may inspect."""
        firsts = "".join(sorted({value[0] for value in values}))
        self._firsts = f"[{re.escape(firsts)}]"

    def is_clean(self, text: str) -> bool:
        """Whether the text has no trigger and no known value: the usual case."""
        if keys.NEEDS in text:
            return False
        for family in self._exact:
            if family.needs in text and compiled(family.trigger).search(text):
                return False
        if self._folded:
            folded = _fold(text)
            for family in self._folded:
                if family.needs in folded and compiled(family.trigger).search(folded):
                    return False
        for value in self._values:
            if len(value) > len(text):
                break
            if value in text:
                return False
        return True

    def look(self, text: str, start: int, *, final: bool) -> Scan:
        """Scan a text whose first `start` characters are only context."""
        scan = Scan([], set(), len(text), len(text), len(text), {})
        if not final:
            scan.keep_from, scan.key_from = keys.unsettled(text, start)
        if len(text) <= _SHORT and self.is_clean(text):
            self._look_for_beginnings(text, scan, final=final)
            return scan
        scan.spans += keys.key_lines(text, start, final=final)
        self._look_for_values(text, scan)
        self._look_for_beginnings(text, scan, final=final)
        folded = _fold(text) if self._folded else text
        unsure_from = len(text) - (0 if final else _LONGEST_REACH)
        for family in self._families:
            searched = folded if family.folded else text
            if family.needs not in searched:
                continue
            begins = compiled(family.beginning).match
            for found in compiled(family.trigger).finditer(searched, start):
                place = found.start()
                if place >= unsure_from or begins(text, place):
                    for shape in family.shapes:
                        _try_shape(shape, text, place, scan, final=final)
        return scan

    def _look_for_values(self, text: str, scan: Scan) -> None:
        for value in self._values:
            if len(value) > len(text):
                break
            place = text.find(value)
            while place >= 0:
                scan.spans.append((place, place + len(value)))
                place = text.find(value, place + 1)

    def _look_for_beginnings(self, text: str, scan: Scan, *, final: bool) -> None:
        if final or not self._values:
            return
        tail = max(0, len(text) - self._longest + 1)
        for found in compiled(self._firsts).finditer(text, tail):
            start = found.start()
            if text[start : start + 3] not in self._starts and start < len(text) - 2:
                continue
            if self._begins(text[start:]):
                scan.hold_from = found.start()
                scan.keep_from = min(scan.keep_from, scan.hold_from)
                return

    def _begins(self, text: str) -> bool:
        """Whether a longer known value begins with this text."""
        place = bisect_right(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)


def _fold(text: str) -> str:
    # U+0130 is the only letter whose lower case has another length: it would shift all later
    # places.
    return text.lower() if text.isascii() else text.replace("\u0130", "I").lower()


def _try_shape(shape: Shape, text: str, place: int, scan: Scan, *, final: bool) -> None:
    opening = compiled(shape.opening).match(text, place)
    if opening is None:
        if not final and len(text) - place <= shape.reach:
            scan.keep_from = min(scan.keep_from, place)
        return
    begin = opening.end()
    head = compiled(shape.value + "{0,%d}" % shape.head).match(text, begin)
    assert head is not None
    end = head.end()
    if end == len(text) and not final:
        scan.keep_from = min(scan.keep_from, place)
        scan.hold_from = min(scan.hold_from, begin)
        return
    if not shape.accept(opening, head[0], text[end : end + 1]):
        if shape.settled_late and not final and len(text) - place <= shape.reach:
            scan.keep_from = min(scan.keep_from, place)
            scan.hold_from = min(scan.hold_from, begin)
        return
    if end - begin == shape.head:
        end = _run_end(shape.value, text, end, scan)
        if end == len(text) and not final:
            scan.open_classes.add(shape.value)
    scan.spans.append((begin, end))


def _run_end(value: str, text: str, place: int, scan: Scan) -> int:
    begin, end = scan.runs.get(value, (0, -1))
    if not begin <= place <= end:
        end = end_of_run(value, text, place)
        scan.runs[value] = (place, end)
    return end


def end_of_run(value: str, text: str, place: int) -> int:
    """The end of the run of a character class that begins at `place`."""
    run = compiled(value + "*").match(text, place)
    return run.end() if run else place
