"""The part of the seam that removes sessions and sums up, and what `verify` finds.

Its values are loaded when something is removed: a run needs none of them.
"""

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from batten.journal.removal import (
        Bounds,
        Extent,
        Grouping,
        OldArtifact,
        OnRemoved,
        Removable,
        Removal,
        RemovalLimits,
        UsageSum,
    )


class Damage(Struct, frozen=True):
    """One finding of `verify`."""

    run_id: str
    sequence: int | None
    message: str


class Removing(Protocol):
    """Deleting sessions, and what is needed to prune old runs and artifacts.

    One process at a time removes: `open_for_removal` opens a store for it.
    """

    async def delete_session(self, session_id: str, *, only_ended: bool = False) -> int:
        """Delete a session and return its space. How many bodies are too young to go yet.

        Raises `Conflict` while a living process holds it, or if another session continues it; with
        `only_ended`, also while a run has not ended.
        """
        ...

    async def remove_sessions(self, limits: "RemovalLimits", on_removed: "OnRemoved") -> "Removal":
        """Delete old sessions that have ended, and return their space."""
        ...

    async def plan_removal(self, limits: "RemovalLimits", on_removed: "OnRemoved") -> "Removal":
        """The same without changing anything; sizes are estimates."""
        ...

    async def extent(self, one: "Removable") -> "Extent":
        """Measure a session by the lengths of all its facts."""
        ...

    def old_runs(self, bounds: "Bounds") -> AsyncGenerator[str, None]:
        """Ended runs to prune, oldest first, until what is left is within the bounds.

        The caller prunes each before it asks for the next, or leaves it as it is.
        """
        ...

    async def old_artifacts(self, bounds: "Bounds") -> "list[OldArtifact]":
        """Artifacts of ended runs whose bodies have to go, oldest first; pinned ones never."""
        ...

    async def drop_released(self, run_id: str, before_step: Callable[[], None]) -> None:
        """Delete the bodies that a run's artifacts no longer need. `before_step` may raise."""
        ...

    async def compact(self, before_step: Callable[[], None]) -> None:
        """Delete bodies that no artifact needs, and return free space. `before_step` may raise."""
        ...


class Measuring(Protocol):
    """Sums over the whole store."""

    async def usage(self, by: "Grouping", since: str | None, until: str | None) -> "list[UsageSum]":
        """The usage of runs created from `since` until before `until`, in order of name.

        A run counts for the day it was created, and for the model of its first call. Pruned
        sessions are included, to the hour.
        """
        ...

    async def file_bytes(self) -> int:
        """The size of the store's main file; 0 without one."""
        ...
