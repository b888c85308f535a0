"""One scan of a text: its secret spans, and where more text could still change the result.

Each secret is found independently of others that overlap it, and the hidden part is their union.
Therefore the result does not depend on how a text is cut into pieces.
"""

from msgspec import Struct

from batten.redact import assignments, formats, guesses, keys, shapes
from batten.redact.known import KnownValues
from batten.redact.shapes import LOOKBEHIND, SHORT_LOOKBEHIND, Shape, compiled
from batten.redact.triggers import Trigger, triggers_of

MARK = "<redacted>"
_LONGEST_WORD = 64
_LONGEST_PART = 13
_SHORT = 4096
"""Up to this length it is cheaper to test for literals than to search for triggers."""

CERTAIN = triggers_of(shapes.FAMILIES)
"""Tokens of known formats and private keys."""
GUESSED = triggers_of((*guesses.FAMILIES, *assignments.FAMILIES))


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
    known_from: int
    """The earliest place where a known value may begin that the text does not hold whole."""
    shapes_from: int
    """The earliest trigger whose shapes more text could still change."""
    runs: dict[str, tuple[int, int]]
    """The last run found of each class: a run that begins inside it also ends at its end."""


class Scanner:
    """Finds shapes and known values. Compiled once, immutable."""

    __slots__ = ("_exact", "_folded", "_guesses", "_known", "_needs", "_needs_folded", "context")

    def __init__(self, known: KnownValues, *, guesses: bool = True) -> None:
        triggers = (*CERTAIN, *GUESSED) if guesses else CERTAIN
        self._known = known
        self._guesses = guesses
        self._exact = tuple(one for one in triggers if not one.folded)
        self._folded = tuple(one for one in triggers if one.folded)
        self._needs = _by_literal(self._exact)
        self._needs_folded = _by_literal(self._folded)
        self.context = LOOKBEHIND if guesses else SHORT_LOOKBEHIND
        """Characters before a trigger that a decision may inspect."""

    def look(
        self, text: str, start: int = 0, known_from: int = 0, shapes_from: int = 0, *, final: bool
    ) -> Scan:
        """Scan a text whose first `start` characters are only context.

        `known_from` and `shapes_from` are of the scan before: what begins earlier is settled.
        """
        length = len(text)
        spans, place = self._known.search(text, known_from, final=final)
        scan = Scan(spans, set(), place, place, length, place, length, {})
        if not final:
            keep_from, scan.key_from = keys.unsettled(text, start)
            scan.keep_from = min(place, keep_from)
        if keys.NEEDS in text:
            spans += keys.key_lines(text, start, final=final)
        if final and not start and _is_word(text):
            return scan
        self._look_for_shapes(text, max(start, shapes_from), scan, final=final)
        scan.keep_from = min(scan.keep_from, scan.shapes_from)
        return scan

    def _look_for_shapes(self, text: str, start: int, scan: Scan, *, final: bool) -> None:
        # A trigger looks back no further than this.
        base = max(0, start - SHORT_LOOKBEHIND)
        near = text[base:] if base else text
        folded = _fold(near) if self._folded else ""
        if len(near) <= _SHORT:
            present = [one for needs, one in self._needs if needs in near]
            if folded:
                present += [one for needs, one in self._needs_folded if needs in folded]
        else:
            present = [one for one in self._exact if one.first in near]
            present += [one for one in self._folded if one.first in folded]
        for trigger in dict.fromkeys(present):
            searched = folded if trigger.folded else near
            found = trigger.search(searched, start - base)
            while found is not None:
                place = base + found.start()
                for family in trigger.matching(searched, found.start()):
                    is_cut = not final and len(text) - place <= family.beginning_reach
                    if is_cut or compiled(family.beginning).match(text, place):
                        for shape in family.shapes:
                            _try_shape(shape, text, place, scan, final=final)
                found = trigger.search(searched, found.end())
        found_formats = formats.candidates(
            near, start - base, at_beginning=start == 0, guesses=self._guesses, final=final
        )
        for place, possible in found_formats:
            for shape in possible:
                _try_shape(shape, text, base + place, scan, final=final)


def _is_word(text: str) -> bool:
    """Whether a text is a name of letters: every shape needs a digit, another sign, or many letters
    on end. Keys of values and names of variables are such, and no pattern is compiled for them.
    """
    if len(text) > _LONGEST_WORD or not text.replace("_", "").isalpha():
        return False
    return len(text) <= _LONGEST_PART or max(map(len, text.split("_"))) <= _LONGEST_PART


def _by_literal(triggers: tuple[Trigger, ...]) -> tuple[tuple[str, Trigger], ...]:
    """The literals that matches need, each with its trigger."""
    return tuple(
        (needs, one) for one in triggers for family in one.families for needs in family.needs
    )


def _fold(text: str) -> str:
    # U+0130 is the only letter whose lower case has another length: it would shift all later
    # places.
    return text.lower() if text.isascii() else text.replace("\u0130", "I").lower()


def _try_shape(shape: Shape, text: str, place: int, scan: Scan, *, final: bool) -> None:
    opening = compiled(shape.opening).match(text, place)
    if opening is None:
        if not final and len(text) - place <= shape.reach:
            scan.shapes_from = min(scan.shapes_from, place)
        return
    begin = opening.end()
    head = compiled(shape.value + "{0,%d}" % shape.head).match(text, begin)
    assert head is not None
    end = head.end()
    if end == len(text) and not final:
        scan.shapes_from = min(scan.shapes_from, place)
        scan.hold_from = min(scan.hold_from, begin)
        return
    if not shape.accept(opening, head[0], text[end : end + 1]):
        if shape.settled_late and not final and len(text) - place <= shape.reach:
            scan.shapes_from = min(scan.shapes_from, place)
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
