"""The process of sinks: reads for all of them until it is told to stop, or its parent is gone."""

import asyncio
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from batten.control.pool import beat, leave_with_parent
from batten.control.supervisor import Staff, Supervisor
from batten.journal.contract import Journal
from batten.journal.opening import has_store, open_store
from batten.settings.reader import read_settings
from batten.sinks.after_run import position_before
from batten.sinks.configuration import SinkSettings, configured_sinks, read_sinks
from batten.sinks.running import Sinks, begin
from batten.sinks.store import SinkStore
from batten.sinks.wanted import has_sinks

_LOOK_EVERY_S = 1.0
_NICENESS = 10
"""Where there is no idle class."""
_SLICE_S = 0.00025
"""CPU time that is used at a stretch beside runs, about: rounds of the loop are not cut."""
_LONGEST_REST_S = 0.1
_STOP_S = 1.0
"""In the idle class it may not get to its end while all cores are busy, and it loses nothing if it
is killed: what was on its way is sent again."""


def sink_settings(
    home: str, environ: Mapping[str, str], cwd: str, flag: str | None = None
) -> SinkSettings:
    """The sinks that the user, the machine's owner and a flag name; a workspace names none."""
    return read_sinks(sink_table(home, environ, cwd, flag))


def sink_table(
    home: str, environ: Mapping[str, str], cwd: str, flag: str | None = None
) -> dict[str, Any]:
    """The table `[sinks]`, as it is written."""
    found = read_settings(
        workspace=cwd,
        home=home,
        environ=environ,
        flag=flag,
        sources=("managed", "user"),
        without=frozenset(("hooks", "skills", "mcp", "plugins")),
    )
    return found.sinks


def read_until_stopped(
    home: str,
    environ: Mapping[str, str],
    settings: SinkSettings,
    parent_pipe: int | None,
    since: str | None = None,
) -> None:
    """Run every sink of a home until SIGTERM or SIGINT, behind everything else on the machine.

    New ones begin with facts of `since`.
    """
    # Importing it takes minutes in the idle class while all cores are busy.
    import_module("batten.tools.guard")
    give_way()
    selector = _RestingSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(_read(home, environ, settings, parent_pipe, since, selector))


async def _read(
    home: str,
    environ: Mapping[str, str],
    settings: SinkSettings,
    parent_pipe: int | None,
    since: str | None,
    selector: "_RestingSelector",
) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    if parent_pipe is not None:
        leave_with_parent(loop, parent_pipe)
        beat(loop)
    if not has_store(home):
        open_store(home).close()
    journal = open_store(home, read_only=True)
    store = SinkStore.open(home)
    try:
        begin_at = None if since is None else await position_before(journal, since)
        configured = partial(configured_sinks, settings, environ, store, home)
        sinks = Sinks(journal, store, configured, begin_at)
        selector.rest = sinks.rest
        await sinks.run()
    except asyncio.CancelledError:
        return
    finally:
        store.close()
        journal.close()


def give_way() -> None:
    """Let runs go first where they and this process want the same core.

    In the idle class a thread gives up its core as soon as any other wants it. At a low priority of
    the usual class it first uses up its slice: slow appends beside it waited 2 to 3 ms for a core.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):  # not Linux, or a sandbox that refuses it
        with suppress(OSError):
            os.nice(_NICENESS)


class _RestingSelector(selectors.DefaultSelector):
    """Rests between rounds of the loop while runs append, and always offers the core to others.

    What works for milliseconds on the core beside an append slows all of it: they share caches and
    more. In slices that are shorter than an append the same work goes unnoticed. A scheduler may
    also let an idle thread have its turn when another one goes to sleep, and then for milliseconds.
    """

    rest: Callable[[], float] = float
    """How long to rest now, in terms of the CPU time that was used."""
    _used_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        used_s = time.thread_time() - self._used_s
        if used_s > _SLICE_S and (rest := self.rest()):
            time.sleep(min(rest * used_s, _LONGEST_REST_S))
            self._used_s = time.thread_time()
        else:
            os.sched_yield()
        return super().select(timeout)


class SinkProcess:
    """Keeps the process of sinks running beside a service, once there is a sink."""

    def __init__(
        self, staff: Staff, home: str, environ: Mapping[str, str], settings: Mapping[str, Any]
    ) -> None:
        self._home = home
        self._environ = environ
        self._settings = settings
        self._supervisor = Supervisor(replace(staff, grace_s=_STOP_S), lambda: None)

    async def begin(self, journal: Journal) -> None:
        """Let new sinks begin here: their process may start later than the first run."""
        if not has_sinks(self._home, self._environ, self._settings):
            return
        store = SinkStore.open(self._home)
        try:
            settings = read_sinks(self._settings)
            for sink in configured_sinks(settings, self._environ, store, self._home):
                await begin(sink, journal, store)
        finally:
            store.close()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if has_sinks(self._home, self._environ, self._settings):
                await self._supervisor.run()
            await asyncio.sleep(_LOOK_EVERY_S)


def check_sinks(home: str, environ: Mapping[str, str], table: Mapping[str, Any]) -> None:
    """Raise why the settings of sinks cannot be used, if they cannot. Opens nothing without any."""
    if not has_sinks(home, environ, table):
        return
    store = SinkStore.open(home)
    try:
        configured_sinks(read_sinks(table), environ, store, home)
    finally:
        store.close()
