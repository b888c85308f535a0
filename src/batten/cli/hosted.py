"""A session in this process that any number of connections share."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from batten.client.arguments import start_of
from batten.contract.errors import CallerError

if TYPE_CHECKING:
    from batten.cli.headless import LazyHost
    from batten.client.transport import Start
    from batten.runner.drain import Record
    from batten.runner.identity import Identity
    from batten.runner.restore import Restored
    from batten.serve.maestro.runtime import Runtime
    from batten.tools.contract import Tool

LEAVE_S = 15.0
"""How long it may take to end by itself once it is left; it ends its run meanwhile."""
_LOADED = ("batten.cli.hosting", "batten.serve.maestro.runtime")
"""What takes long to load, and is loaded beside the embedder's loop."""


@asynccontextmanager
async def hosted(
    *,
    model: str = "",
    workspace: str | os.PathLike[str] | None = None,
    resume: str = "",
    env: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
    tools: "Sequence[Tool]" = (),
    runner: "Identity | None" = None,
    restore: str | os.PathLike[str] | None = None,
    record: "Record | None" = None,
    now: Callable[[], float] = time.time,
) -> "AsyncGenerator[Runtime, None]":
    """One session for many connections, for as long as the context lasts.

    `model`, `workspace`, `resume`, `env` and `flags` are those of `Worker.start`; `tools` are
    offered to the model beside Batten's own. With a `runner` it can be drained, in that runner's
    workspace; `record` is given the evidence of each drain. `restore` is the manifest of a runner
    that was drained: its session goes on, from the same journal. Otherwise a runner that was
    started for a session goes on with that. `now` is the clock by which connections are missed.
    """
    for name in _LOADED:
        await asyncio.to_thread(import_module, name)
    from batten.serve.maestro.runtime import Runtime

    place = _workspace(workspace, runner)
    start = start_of(model, place, resume or _bound(runner), flags, env or {}, ())
    host = _host(start, tools)
    try:
        restored = None if restore is None else await _restored(restore, host, runner)
        runtime = Runtime(
            host,
            start.environ,
            identity=runner,
            restored=restored,
            session_file=_session_file(host),
            record=record,
            now=now,
        )
        async with _running(runtime):
            yield runtime
    finally:
        host.close()


@asynccontextmanager
async def _running(runtime: "Runtime") -> AsyncGenerator[None, None]:
    """Its task, beside the embedder's own."""
    group = asyncio.TaskGroup()
    # Held open by hand: an error of whoever uses the runtime is raised as it is.
    await group.__aenter__()
    running = group.create_task(runtime.run())
    try:
        await runtime.opened()
        yield
    finally:
        try:
            await _seen_through(group.create_task(_leave(runtime, running)))
        finally:
            await group.__aexit__(None, None, None)


async def _leave(runtime: "Runtime", running: "asyncio.Task[None]") -> None:
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await runtime.close()
                await asyncio.wait([running])  # a drain may be on its way
    finally:
        running.cancel()


async def _seen_through(leaving: "asyncio.Task[None]") -> None:
    """Wait for it. Who is cancelled meanwhile is so afterwards: what was started must end."""
    cancelled: asyncio.CancelledError | None = None
    while not leaving.done():
        try:
            await asyncio.wait([leaving])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _host(start: "Start", tools: "Sequence[Tool]") -> "LazyHost":
    from batten.cli.arguments import parse_headless
    from batten.cli.headless import LazyHost

    parse = partial(parse_headless, ["--protocol", "maestro", *start.flags], start.environ)
    host = LazyHost(parse, None, start.environ, tools)
    host.tell({}, host.options)
    return host


async def _restored(
    manifest: str | os.PathLike[str], host: "LazyHost", runner: "Identity | None"
) -> "Restored":
    from batten.cli.home import absolute
    from batten.runner.restore import load

    named = None if runner is None else runner.maestro_session_id
    workspace = absolute(host.workspace or ".")
    return await asyncio.to_thread(load, os.fspath(manifest), workspace, named)


def _bound(runner: "Identity | None") -> str:
    """The session that a runner was started for, if it was for one."""
    return "" if runner is None else runner.maestro_session_id or ""


def _session_file(host: "LazyHost") -> str | None:
    from batten.cli.home import batten_home

    stored = os.path.join(batten_home(host.environ), "journal.db")
    return None if host.options.no_save else stored


def _workspace(
    workspace: str | os.PathLike[str] | None, runner: "Identity | None"
) -> str | os.PathLike[str] | None:
    if runner is None or workspace is None:
        return workspace if runner is None else runner.workspace_root
    if os.path.realpath(workspace) != os.path.realpath(runner.workspace_root):
        raise CallerError(
            f"workspace is {os.fspath(workspace)}, and the runner's is {runner.workspace_root}; "
            "leave one of them out"
        )
    return workspace
