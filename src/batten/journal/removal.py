"""What leaves a store and what it holds: values of removal and of usage."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct


class Removable(Struct, frozen=True):
    """A session with its runs, or a run without a session: what is removed as a whole."""

    name: str
    is_session: bool
    used_at: str
    """When it was last used."""
    workspace_path: str


class Extent(Struct, frozen=True):
    """How much there is of a session."""

    runs: int
    bytes: int
    """Of its facts and bodies, about; other sessions may share bodies."""
    prompt: str
    """The beginning of its first prompt."""


class StoreSize(Struct, frozen=True):
    """How much the store takes, without space that is free inside its files."""

    database: int
    bodies: int
    """Of bodies beside it."""

    @property
    def total(self) -> int:
        return self.database + self.bodies


class RemovalLimits(Struct, frozen=True, kw_only=True):
    """Which sessions to remove."""

    used_before: str | None = None
    """Sessions last used before this time."""
    keep: int | None = None
    """So many of the most recently used sessions stay in any case."""
    max_bytes: int | None = None
    """The oldest sessions, until the store is no larger."""
    most: int | None = None
    """No more sessions than these, the oldest, of those last used before a time."""
    but: frozenset[str] = frozenset()
    """Sessions that stay."""

    def split(self, known: list[Removable]) -> tuple[list[Removable], list[Removable]]:
        """Of all, most recently used first, those to remove, and those that may follow, oldest
        first.
        """
        begin = self.keep or 0
        if self.used_before is not None:
            old = [
                one
                for one in known[begin:]
                if one.used_at < self.used_before and one.name not in self.but
            ]
            if self.most is not None:
                old = old[-self.most :]
        else:
            old = known[begin:] if self.keep is not None and self.max_bytes is None else []
        names = {one.name for one in old}
        rest = [one for one in known[begin:] if one.name not in names]
        return old, rest[::-1]


class Removal(Struct, kw_only=True):
    """The result of removing sessions."""

    removed: list[Removable] = []
    spared: list[tuple[Removable, str]] = []
    """Sessions within the limits that stay, and why."""
    young_bodies: int = 0
    """Bodies that stay until the next time: they were written in the last minute."""
    before: StoreSize
    after: StoreSize


OnRemoved = Callable[[Removable, Extent], None]
"""Called with each session that goes."""


class Bounds(Struct, frozen=True, kw_only=True):
    """How much to keep of runs or artifacts; what is None does not matter."""

    since: str | None = None
    """Nothing that ended or was made before this time."""
    most: int | None = None
    most_bytes: int | None = None

    @property
    def is_open(self) -> bool:
        return self == Bounds()


class OldArtifact(Struct, frozen=True):
    artifact_id: str
    run_id: str
    size_bytes: int
    is_deleted: bool
    """A client has deleted it; its body is still there."""


Grouping = Literal["all", "day", "local_day", "model", "workspace"]


class UsageSum(Struct, frozen=True, kw_only=True):
    """The usage of one group of runs."""

    name: str = ""
    """The day, model or workspace; empty for all."""
    runs: int = 0
    calls: int = 0
    """Calls of models."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micros_usd: int = 0
    cost_unknown: bool = False
    """Whether the price of a call is unknown: the cost is at least this."""
