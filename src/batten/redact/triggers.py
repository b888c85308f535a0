"""Triggers: the cheap patterns that tell where a shape may be.

Triggers that begin with the same character are one pattern. A pattern that begins with a literal
character is searched at memory speed, several times faster than one that begins with a class.
"""

import re
from collections.abc import Iterable
from itertools import groupby

from batten.redact.shapes import Family, compiled


class Trigger:
    """Finds the triggers of all families that begin with one character."""

    __slots__ = ("_pattern", "families", "first", "folded")

    def __init__(self, families: tuple[Family, ...]) -> None:
        self.families = families
        self.first = families[0].first
        self.folded = families[0].folded
        """The text to search is in lower case."""
        self._pattern: re.Pattern[str] | None = None

    def search(self, text: str, start: int) -> re.Match[str] | None:
        pattern = self._pattern
        if pattern is None:
            # Compiled at first use: a short process needs few of them.
            rests = "|".join(family.rest for family in self.families)
            pattern = self._pattern = re.compile(f"{re.escape(self.first)}(?:{rests})")
        return pattern.search(text, start)

    def matching(self, text: str, place: int) -> tuple[Family, ...] | list[Family]:
        """The families whose trigger is at this place."""
        if len(self.families) == 1:
            return self.families
        after = place + 1
        return [one for one in self.families if compiled(one.rest).match(text, after)]


def triggers_of(families: Iterable[Family]) -> tuple[Trigger, ...]:
    def key(family: Family) -> tuple[bool, str]:
        return family.folded, family.first

    return tuple(Trigger(tuple(group)) for _, group in groupby(sorted(families, key=key), key))
