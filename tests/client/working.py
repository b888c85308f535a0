"""Workers on a stage, and their events."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from batten.client import Event, Launch, Run, Worker, own_process
from tests.agent.stage import Stage, Statement

PATIENCE_S = 120.0
"""More than the slowest machine needs: it ends what hangs, and measures nothing."""
Kind = TypeVar("Kind", bound=Event)


@asynccontextmanager
async def working(
    stage: Stage,
    *frames: Sequence[Statement],
    launch: Launch = own_process,
    model: str | None = None,
    flags: Sequence[str] = ("--sandbox", "none"),
    **more: Any,
) -> AsyncGenerator[Worker, None]:
    """A worker that plays these frames."""
    async with Worker.start(
        model=model or stage.scenario(*frames),
        workspace=stage.workspace,
        env={"BATTEN_HOME": str(stage.home), "HOME": str(stage.directory)},
        flags=flags,
        launch=launch,
        starts_within_s=PATIENCE_S,
        **more,
    ) as worker:
        yield worker


async def until(run: Run, kind: type[Kind], that: Callable[[Kind], bool] | None = None) -> Kind:
    """Read up to an event of this type."""
    async for event in run:
        if isinstance(event, kind) and (that is None or that(event)):
            return event
    raise AssertionError(f"the run ended without {kind.__name__}")


def of(events: Sequence[Event], kind: type[Kind]) -> list[Kind]:
    return [event for event in events if isinstance(event, kind)]
