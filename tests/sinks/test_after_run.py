"""`batten -p` tells its sinks before it ends, within a bound; the next process tells the rest."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.journal.bundles.checking import check
from batten.journal.bundles.transfer import (
    Source,
    export_session,
    import_session,
    last_position,
)
from batten.journal.sqlite import SqliteJournal
from batten.sinks.imported import happened_here, silently
from batten.sinks.store import SinkStore
from tests.agent.stage import Stage, end, say
from tests.journal.sessions import ended_session
from tests.session.processes import batten, environment
from tests.sinks.http_receiver import Behaviour, HttpReceiver, Received, http_receiver

PATIENCE_S = 60
TOLD = ["run.queued", "run.started", "run.completed"]


def settings(url: str, within_s: float) -> str:
    table = {
        "webhooks": {"all": {"url": url, "secret": "s"}},
        "allow": ["127.0.0.0/8"],
        "tell_within_s": within_s,
    }
    return msgspec.json.encode({"sinks": table}).decode()


async def begun(
    stage: Stage, url: str, within_s: float, more: Sequence[str] = ()
) -> asyncio.subprocess.Process:
    """A run as a process of its own."""
    model = stage.scenario([say("Done."), end()])
    flags = ("--model", model, "--sandbox", "none", "--settings", settings(url, within_s))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "batten", "-p", "go", *flags, *more),
        env=environment(stage),
        cwd=stage.workspace,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def play(
    stage: Stage, url: str, within_s: float = 30.0, more: Sequence[str] = ()
) -> tuple[bytes, bytes]:
    """One run to its end; what it said."""
    process = await begun(stage, url, within_s, more)
    async with asyncio.timeout(PATIENCE_S):
        said, complained = await process.communicate()
    assert process.returncode == 0, complained.decode()
    return said, complained


def events(received: list[Received]) -> dict[str, list[str]]:
    """The events of each run as they were taken."""
    found: dict[str, list[str]] = {}
    for one in received:
        body: dict[str, Any] = msgspec.json.decode(one.body)
        found.setdefault(body["runId"], []).append(body["event"])
    return found


@pytest.mark.parametrize("behaviour", ["hang", "cut", 500])
async def test_a_dead_receiver_holds_up_the_end_for_a_bounded_time_only(
    tmp_path: Path, behaviour: Behaviour
) -> None:
    stage = Stage(tmp_path)
    async with http_receiver() as receiver:
        receiver.behave = lambda one: behaviour
        said, complained = await play(stage, receiver.url, within_s=0.5)
        assert said == b"Done.\n"
        assert b"not everything was told to the sinks" in complained
        assert receiver.taken == []
        receiver.behave = lambda one: 200
        await play(stage, receiver.url)
        assert list(events(receiver.taken).values()) == [TOLD, TOLD]


async def test_nobody_listens_and_the_next_process_tells_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    _, complained = await play(stage, "http://127.0.0.1:9/hook", within_s=0.5)
    assert b"not everything was told" in complained
    async with http_receiver() as receiver:
        await play(stage, receiver.url)
        assert list(events(receiver.taken).values()) == [TOLD, TOLD]


async def test_a_process_that_is_killed_while_it_tells_leaves_the_rest_to_the_next(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    async with http_receiver() as receiver:
        asked = asyncio.Event()
        receiver.behave = hanging_after(receiver, 1, asked)
        process = await begun(stage, receiver.url, within_s=30)
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        assert len(receiver.taken) == 1
        receiver.behave = lambda one: 200
        await play(stage, receiver.url)
        killed, after = events(receiver.taken).values()
        assert killed == [TOLD[0], *TOLD]  # the first one again: its acknowledgement is lost
        assert after == TOLD


def hanging_after(receiver: HttpReceiver, count: int, asked: asyncio.Event) -> Any:
    """Take so many, then hang; `asked` is set by the first that hangs."""

    def behave(one: Received) -> Behaviour:
        if len(receiver.taken) < count:
            return 200
        asked.set()
        return "hang"

    return behave


async def test_an_imported_session_is_not_told_again_and_what_it_does_then_is(
    tmp_path: Path,
) -> None:
    stage, bundle = Stage(tmp_path / "stage"), str(tmp_path / "b.tar.gz")
    async with http_receiver() as receiver:
        await play(stage, receiver.url)
        for command in (
            ("export", "last", "-o", bundle),
            ("delete", "last", "--yes"),
            ("import", bundle),
        ):
            done = await asyncio.to_thread(batten, stage, *command)
            assert done.returncode == 0, done.stderr
        assert len(receiver.taken) == len(TOLD)
        await play(stage, receiver.url, more=("--resume", "last"))
        assert list(events(receiver.taken).values()) == [TOLD, TOLD]
    with closing(SinkStore.open(str(stage.home))) as store:
        assert [row.pending for row in store.sinks()] == [0]


async def test_an_import_that_fails_keeps_nothing_from_being_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    journal = SqliteJournal.open(tmp_path / "there")
    session_id = await ended_session(journal)
    journal.close()
    with open(tmp_path / "b", "wb") as file:
        export_session(str(tmp_path / "there"), session_id, file, None)
    limit = 1 << 30
    source = Source(str(tmp_path / "b"), limit, check(str(tmp_path / "b"), limit, None), None)
    with closing(SqliteJournal.open(home)) as journal, closing(SinkStore.open(str(home))) as store:
        end = last_position(journal)
        with pytest.raises(ZeroDivisionError), silently(str(home), source, end):
            _ = 1 / 0
        import_session(journal, source, None)
        facts = await journal.feed()
        assert happened_here(store, facts) == {fact.position for fact in facts} != set()
