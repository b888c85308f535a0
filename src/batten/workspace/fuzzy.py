"""Finds files by a few letters of their name: tiers of similarity, best first."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing

from msgspec import Struct

from batten.workspace.root import ResolvedPath
from batten.workspace.search import listing

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
_FRESH_S = 30.0
_KEPT_LISTINGS = 8


class Hit(Struct, frozen=True):
    path: str
    """Relative to the searched directory."""
    score: int


class Hits(Struct, frozen=True):
    hits: tuple[Hit, ...]
    truncated: bool
    """More files matched than are listed."""


class Finder:
    """Fuzzy search over directories; caches each listing for half a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._listings: dict[str, tuple[float, list[str]]] = {}

    async def search(self, place: ResolvedPath, query: str, *, limit: int = DEFAULT_LIMIT) -> Hits:
        query = query.strip()
        if not query:
            return Hits((), False)
        paths = await self._paths(place)
        # Scoring a large tree would block the loop too long.
        return await asyncio.to_thread(rank, paths, query, limit)

    async def _paths(self, place: ResolvedPath) -> list[str]:
        kept = self._listings.get(place.path)
        if kept is not None and self._clock() - kept[0] < _FRESH_S:
            return kept[1]
        listed_at = self._clock()
        async with aclosing(listing(place)) as found:
            paths = [path async for path in found]
        self._listings.pop(place.path, None)
        while len(self._listings) >= _KEPT_LISTINGS:
            del self._listings[next(iter(self._listings))]
        self._listings[place.path] = (listed_at, paths)
        return paths


def rank(paths: list[str], query: str, limit: int = DEFAULT_LIMIT) -> Hits:
    """The matching paths, by score, then length, then name."""
    limit = min(max(1, limit), MAX_LIMIT)
    query = query.strip().lower()
    tokens = query.split()
    hits = [
        Hit(path, value) for path in paths if (value := _score(path.lower(), query, tokens)) > 0
    ]
    hits.sort(key=lambda hit: (-hit.score, len(hit.path), hit.path))
    return Hits(tuple(hits[:limit]), len(hits) > limit)


def _score(path: str, query: str, tokens: list[str]) -> int:
    """0 or less means no match."""
    if not query:
        return 0
    name = path.rpartition("/")[2]
    tier = _whole_tier(path, name, query)
    if not tier and len(tokens) > 1 and all(token in path for token in tokens):
        tier = 5000
    if not tier:
        tier = _subsequence_tier(path, name, query)
    return tier - len(path) if tier else 0


def _whole_tier(path: str, name: str, query: str) -> int:
    """Matches of the query as one piece: the closer to the whole file name, the higher."""
    if name == query:
        return 10_000
    if path == query:
        return 9_500
    if name.startswith(query):
        return 8_000
    if (at := name.find(query)) >= 0:
        return 7_000 - 10 * at
    if (at := path.find(query)) >= 0:
        return 6_000 - 10 * at
    return 0


def _subsequence_tier(path: str, name: str, query: str) -> int:
    if closeness := _closeness(name, query):
        return 3_000 + closeness
    if closeness := _closeness(path, query):
        return 2_000 + closeness
    return 0


def _closeness(text: str, query: str) -> int:
    """How close together the query's letters are in `text`; 0 if they do not occur in order."""
    total, after = 0, 0
    for letter in query:
        at = text.find(letter, after)
        if at < 0:
            return 0
        total += 12 - min(10, at - after)
        after = at + 1
    return max(1, total)
