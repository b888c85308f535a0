"""Who holds a session: its live process, also while that is idle or was stopped for a while."""

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from batten.contract.envelope import timestamp
from batten.contract.ids import SessionId, session_stream
from tests.agent.stage import Stage, bash, say
from tests.journal.reading import at_once
from tests.session.processes import batten

from .abusing import DIALECTS, Client, Dialect, abused, until
from .conversing import Conversation, eventually

LEASE_S = 1.0
SHORT = {"BATTEN_LEASE_S": str(LEASE_S), "BATTEN_WATCHDOG_S": "3"}
FRAMES = ("--output-format", "stream-json")
TAKEN = "in use by another process now"


EACH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, SHORT)


def outlast(stage: Stage, session_id: str) -> None:
    """Wait until the leases that are held now would have run out."""
    journal = stage.journal()
    row = journal.run_now(session_stream(SessionId(session_id)))
    assert row is not None
    until_at = max(one.lease_until for one in (row, *at_once(journal.runs())))
    journal.close()
    eventually(lambda: timestamp() > until_at)


def stop(stage: Stage, pid: int) -> None:
    """Stop a process, but not in the middle of a commit: the store would be locked meanwhile."""

    def is_stopped() -> bool:
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: _state(pid) == "T")
        if _is_free(stage.home / "journal.db.lock"):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    eventually(is_stopped)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def outcomes(stage: Stage) -> Sequence[str | None]:
    journal = stage.journal()
    found: list[str | None] = [row.outcome for row in at_once(journal.runs())]
    assert at_once(journal.verify()) == []
    journal.close()
    return found


def resumed(stage: Stage, session_id: str) -> "tuple[int, bytes, bytes]":
    other = stage.scenario([say("Mine.")], [say("Mine.")], name="other")
    ended = batten(stage, "-p", "mine now", "--resume", session_id, "--model", other)
    return ended.returncode, ended.stdout, ended.stderr


def test_an_idle_conversation_keeps_its_session_past_its_lease(stage: Stage) -> None:
    model = stage.scenario([say("First.")], [say("Second.")])
    with Conversation(stage, "--model", model, *FRAMES) as talk:
        session_id = talk.until("init")["session_id"]
        talk.ask("one")
        eventually(lambda: outcomes(stage) == ["completed"])
        outlast(stage, session_id)
        code, _, err = resumed(stage, session_id)
        assert (code, b"is in use by another process" in err) == (1, True)
        talk.ask("two")
        talk.until("message")
        talk.close()
        assert talk.end() == 0
    assert outcomes(stage) == ["completed", "completed"]


def test_a_stopped_conversation_goes_on_when_it_is_woken(stage: Stage) -> None:
    """Longer than its lease and than the patience with a blocked loop; nobody came meanwhile."""
    model = stage.scenario([say("First.")], [say("Second.")])
    with Conversation(stage, "--model", model, *FRAMES) as talk:
        session_id = talk.until("init")["session_id"]
        talk.ask("one")
        eventually(lambda: outcomes(stage) == ["completed"])
        stop(stage, talk.pid)
        pause(stage, session_id)
        talk.signal(signal.SIGCONT)
        talk.ask("two")
        talk.until("message")
        talk.close()
        assert talk.end() == 0
    assert outcomes(stage) == ["completed", "completed"]


def test_a_run_that_is_stopped_goes_on_when_it_is_woken(stage: Stage) -> None:
    waits = "touch began; until [ -e go ]; do sleep 0.05; done; echo went"
    model = stage.scenario([bash(waits)], [say("Done.")])
    with Conversation(stage, "--model", model, "--allow", "bash", *FRAMES) as talk:
        session_id = talk.until("init")["session_id"]
        talk.ask("one")
        eventually(lambda: (stage.workspace / "began").exists())
        stop(stage, talk.pid)
        pause(stage, session_id)
        talk.signal(signal.SIGCONT)
        (stage.workspace / "go").touch()
        talk.until("message")
        talk.close()
        assert talk.end() == 0
    (told,) = [one for one in talk.frames() if one["type"] == "tool_result"]
    assert told["content"][0]["text"] == "went"
    assert outcomes(stage) == ["completed"]


def pause(stage: Stage, session_id: str) -> None:
    """Longer than the lease, and than a blocked loop is borne."""
    woken_at = time.monotonic() + 4.5
    outlast(stage, session_id)
    eventually(lambda: time.monotonic() > woken_at)


@pytest.mark.parametrize("asks", [False, True], ids=["idle", "asked meanwhile"])
def test_a_conversation_that_was_relieved_says_so_when_it_is_woken(
    stage: Stage, asks: bool
) -> None:
    model = stage.scenario([say("First.")], [say("Never.")])
    with Conversation(stage, "--model", model, *FRAMES) as talk:
        session_id = talk.until("init")["session_id"]
        talk.ask("one")
        eventually(lambda: outcomes(stage) == ["completed"])
        stop(stage, talk.pid)
        outlast(stage, session_id)
        if asks:
            talk.ask("two")
        assert resumed(stage, session_id) == (0, b"Mine.\n", b"")
        talk.signal(signal.SIGCONT)
        assert talk.end() == 1
    result = talk.frames()[-1]
    assert (result["type"], result["subtype"]) == ("result", "error")
    assert TAKEN in result["error"]
    assert outcomes(stage) == ["completed", "completed"]


def test_a_run_whose_process_was_relieved_begins_no_effect_and_has_one_ending(
    stage: Stage,
) -> None:
    words = say("slow words " * 20, streamMs=4000)
    model = stage.scenario([words, bash("touch made")], [say("Never.")])
    flags = ("--model", model, "--allow", "bash", "--include-partial-messages", *FRAMES)
    with Conversation(stage, *flags) as talk:
        session_id = talk.until("init")["session_id"]
        talk.ask("one")
        talk.until("content_block_delta")
        stop(stage, talk.pid)
        outlast(stage, session_id)
        assert resumed(stage, session_id) == (0, b"Mine.\n", b"")
        talk.signal(signal.SIGCONT)
        assert talk.end() == 1
    assert talk.frames()[-1]["subtype"] == "error"
    assert outcomes(stage) == ["completed", "interrupted"]
    assert not (stage.workspace / "made").exists()


def the_session(stage: Stage) -> str:
    """The one session of the stage."""
    journal = stage.journal()
    (row,) = at_once(journal.sessions())
    journal.close()
    return row.session_id


async def a_prompt(client: Client, dialect: Dialect) -> None:
    await client.say(dialect.prompt(client))
    await until(client, dialect.is_over)


@EACH
async def test_an_idle_headless_session_is_kept_and_goes_on_after_a_pause(
    stage: Stage, dialect: Dialect
) -> None:
    model = stage.scenario([say("First.")], [say("Second.")])
    async with abused(stage, dialect, model) as client:
        await dialect.greet(client)
        await a_prompt(client, dialect)
        session_id = the_session(stage)
        await asyncio.to_thread(outlast, stage, session_id)
        code, _, err = await asyncio.to_thread(resumed, stage, session_id)
        assert (code, b"is in use by another process" in err) == (1, True)
        stop(stage, client.process.pid)
        await asyncio.to_thread(pause, stage, session_id)
        client.process.send_signal(signal.SIGCONT)
        await a_prompt(client, dialect)
        await client.rest()
        await client.code()
    assert outcomes(stage) == ["completed", "completed"]


@EACH
async def test_a_headless_session_that_was_relieved_says_so_when_it_is_woken(
    stage: Stage, dialect: Dialect
) -> None:
    model = stage.scenario([say("First.")], [say("Never.")])
    async with abused(stage, dialect, model) as client:
        await dialect.greet(client)
        await a_prompt(client, dialect)
        session_id = the_session(stage)
        stop(stage, client.process.pid)
        await asyncio.to_thread(outlast, stage, session_id)
        taken = await asyncio.to_thread(resumed, stage, session_id)
        assert taken == (0, b"Mine.\n", b"")
        client.process.send_signal(signal.SIGCONT)
        if dialect.name == "acp":  # it may hold other sessions, and has no word for this one
            await client.say(dialect.prompt(client))
            refused = await until(client, lambda frame: "error" in frame)
            assert TAKEN in str(refused)
            await client.rest()
        else:
            while await client.hear() is not None:
                pass
            assert TAKEN in str(client.heard[-1])
            assert await client.code() == 1
    assert outcomes(stage) == ["completed", "completed"]


@pytest.mark.soak
@pytest.mark.parametrize("stopped", [False, True], ids=["idle", "stopped"])
def test_a_session_outlasts_a_minute_with_the_usual_lease_and_patience(
    tmp_path: Path, stopped: bool
) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("First.")], [say("Second.")])
    with Conversation(stage, "--model", model, *FRAMES) as talk:
        session_id = talk.until("init")["session_id"]
        talk.ask("one")
        eventually(lambda: outcomes(stage) == ["completed"])
        if stopped:
            stop(stage, talk.pid)
        time.sleep(65)
        if stopped:
            talk.signal(signal.SIGCONT)
        else:
            assert resumed(stage, session_id)[0] == 1
        talk.ask("two")
        talk.close()
        assert talk.end() == 0
    assert outcomes(stage) == ["completed", "completed"]
