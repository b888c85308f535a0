"""A session in the embedder's process, shared by any number of connections."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from batten.cli.embedding import spec_of_start
from batten.client.arguments import start_of
from batten.contract.errors import CallerError

if TYPE_CHECKING:
    from batten.runner.drain import Record
    from batten.runner.identity import Identity
    from batten.runner.restore import Restored
    from batten.runner.session_file import Keep
    from batten.serve.maestro.runtime import Runtime
    from batten.tools.contract import Tool
    from batten.wiring.opener import SessionOpener

LEAVE_S = 15.0
"""How long the runtime may take to end its run and exit by itself."""
_LOADED = ("batten.wiring.opening", "batten.serve.maestro.runtime", "batten.serve.maestro.served")
"""Modules that take long to import; imported in a thread, not on the embedder's loop."""


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
    """One session for many connections, for the duration of the context.

    `model`, `workspace`, `resume`, `env` and `flags` are those of `Worker.start`; `tools` are
    offered to the model beside Batten's own. With a `runner` the session can be drained, in that
    runner's workspace; `record` receives the evidence of each drain. `restore` is the manifest of a
    drained runner, whose session continues from the same journal or from its file in the workspace;
    without it, the session named by the runner is resumed. `now` is the clock for expiring
    connections.
    """
    for name in _LOADED:
        await asyncio.to_thread(import_module, name)
    from batten.runner.runner import Runner
    from batten.serve.maestro.runtime import Runtime
    from batten.serve.maestro.served import Served
    from batten.wiring.opener import SessionOpener

    place = _workspace(workspace, runner)
    bound = None if runner is None else runner.maestro_session_id
    start = start_of(model, place, resume or bound or "", flags, env or {}, ())
    opener = SessionOpener(replace(spec_of_start(start), own_tools=tuple(tools)))
    try:
        restored = None if restore is None else await _restored(restore, opener, bound)
        environ = opener.base.environ
        resumed = await _adopted(restored, opener)
        runtime = Runtime(
            lambda hub: Served(opener, hub, resumed, _keep(opener), restored),
            environ,
            runner=None
            if runner is None
            else Runner(runner, restored=restored, now=now, record=record, environ=environ),
            restored=restored,
            now=now,
        )
        async with _running(runtime):
            yield runtime
    finally:
        opener.close()


def _keep(opener: "SessionOpener") -> "Keep | None":
    """Writes a session into the workspace; None if sessions are not stored."""
    from batten.runner.session_file import PASSPHRASE, write
    from batten.wiring.home import absolute

    base = opener.base
    if not base.save:
        return None
    workspace = absolute(base.workspace or ".", base.cwd)
    return partial(write, opener.home, workspace, base.environ.get(PASSPHRASE))


@asynccontextmanager
async def _running(runtime: "Runtime") -> AsyncGenerator[None, None]:
    """Run the runtime in a task, and end it with the context."""
    group = asyncio.TaskGroup()
    # Entered by hand: a caller's error is raised as it is, not in an exception group.
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
                await asyncio.wait([running])  # a drain may be in progress
    finally:
        running.cancel()


async def _seen_through(leaving: "asyncio.Task[None]") -> None:
    """Wait for the task to end; a cancellation meanwhile is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not leaving.done():
        try:
            await asyncio.wait([leaving])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _restored(
    manifest: str | os.PathLike[str], opener: "SessionOpener", session_id: str | None
) -> "Restored":
    from batten.runner.restore import load
    from batten.wiring.home import absolute

    workspace = absolute(opener.base.workspace or ".", opener.base.cwd)
    environ = opener.base.environ
    return await asyncio.to_thread(load, os.fspath(manifest), workspace, session_id, environ)


async def _adopted(restored: "Restored | None", opener: "SessionOpener") -> str | None:
    """The session of a manifest; taken from the workspace if this home does not have it."""
    from batten.runner.session_file import PASSPHRASE, take_over
    from batten.wiring.home import absolute

    if restored is None or not restored.is_ready:
        return None
    base = opener.base
    workspace = absolute(base.workspace or ".", base.cwd)
    passphrase = base.environ.get(PASSPHRASE)
    return await asyncio.to_thread(take_over, opener.home, workspace, restored, passphrase)


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
