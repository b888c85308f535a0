"""Whatever hangs, breaks or fills up: one ending, its exit code, and the process is gone."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batten.contract.outcomes import ENDINGS, Outcome
from tests.campaigns import embedder
from tests.campaigns.stage import (
    Finished,
    Json,
    Playing,
    Stage,
    assert_none_survive,
    at,
    bash,
    call,
    say,
    terminal,
)
from tests.models.server import Fault, ModelServer, Reply, cut, head
from tests.models.wire import anthropic_start, anthropic_text_block, sse

BETWEEN_ENDING_AND_EXIT_S = 2.0

_begun = sse(anthropic_start(), *anthropic_text_block(0, "Half an answer")[:-1], named=True)


@pytest.fixture(params=["json", "stream-json"])
def output(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _assert_ended(stage: Stage, ended: Finished, outcome: Outcome) -> list[Json]:
    """One terminal fact, its exit code, one result frame that agrees, and no lingering."""
    wanted = ENDINGS[outcome]
    (run,) = stage.runs()
    envelopes = stage.envelopes(run["run_id"])
    ending = terminal(envelopes)
    assert (run["outcome"], ending["type"], ended.code) == (
        outcome, wanted.terminal, wanted.exit_code,
    ), ended.err  # fmt: skip
    assert ended.ended_at - at(ending) < BETWEEN_ENDING_AND_EXIT_S
    frames = ended.frames()
    (result,) = [frame for frame in frames if frame["type"] == "result"]
    assert result is frames[-1]
    assert result["subtype"] == wanted.subtype
    assert result.get("error") == ending["data"].get("message")
    stage.verify()
    assert_none_survive(str(stage.workspace))
    return envelopes


async def _against(stage: Stage, reply: Reply, output: str, *argv: str, **environ: str) -> Finished:
    """A run whose model always answers like this."""
    async with ModelServer([reply]) as server:
        playing = stage.prompt(
            "anthropic/claude-sonnet-4-6", *argv, output=output, **server.environ(**environ)
        )
        return await asyncio.to_thread(playing.end)


async def test_a_model_that_never_answers_ends_the_run(stage: Stage, output: str) -> None:
    ended = await _against(stage, [Fault.STALL], output, BATTEN_MODEL_TIMEOUT_S="0.2")
    envelopes = _assert_ended(stage, ended, "model_error")
    assert [one["data"]["category"] for one in envelopes if one["type"] == "error.upstream"] == [
        "timeout",
        "timeout",
    ]


async def test_a_model_that_falls_silent_ends_the_run(stage: Stage, output: str) -> None:
    ended = await _against(stage, cut(_begun, Fault.STALL), output, BATTEN_MODEL_IDLE_S="0.2")
    _assert_ended(stage, ended, "model_error")


async def test_a_model_slower_than_the_run_may_take_ends_it(stage: Stage, output: str) -> None:
    ended = await _against(stage, [Fault.STALL], output, "--max-seconds", "0.5")
    _assert_ended(stage, ended, "timeout")


_broken: dict[str, Reply] = {
    "reset in an event": cut(_begun[:-20], Fault.RESET),
    "closed in an event": cut(_begun[:-20], Fault.CLOSE),
    "no final event": cut(_begun, Fault.CLOSE),
    "garbage for an event": cut(_begun + b"data: {]\xff\n\n", Fault.STALL),
    "garbage for a chunk": [head(content_type="text/event-stream", transfer_encoding="chunked"),
                            b"zz\r\n\0\0\0"],
    "garbage for an answer": [b"\x16\x03\x01 this is not HTTP\r\n\r\n"],
}  # fmt: skip


@pytest.mark.parametrize("reply", _broken.values(), ids=_broken.keys())
async def test_a_broken_stream_ends_the_run(stage: Stage, reply: Reply) -> None:
    ended = await _against(stage, reply, "stream-json")
    _assert_ended(stage, ended, "model_error")


def test_a_hanging_tool_ends_with_the_time_of_its_run(stage: Stage, output: str) -> None:
    model = stage.scenario([bash("sleep 1000")])
    ended = stage.prompt(model, "--max-seconds", "1", output=output).end()
    envelopes = _assert_ended(stage, ended, "timeout")
    assert [one["type"] for one in envelopes if one["type"].startswith("tool.")] == [
        "tool.invoked",
        "tool.started",
        "tool.shell.command",
        "tool.shell.exited",
        "tool.timed_out",
    ]


def test_a_hanging_tool_ends_with_its_own_time_and_the_run_goes_on(
    stage: Stage, output: str
) -> None:
    ignoring = "trap '' TERM INT HUP; while true; do sleep 1000; done"
    model = stage.scenario([bash(ignoring, timeout=0.5)], [say("It hung.")])
    ended = stage.prompt(model, output=output).end()
    envelopes = _assert_ended(stage, ended, "completed")
    assert [one["data"]["summary"] for one in envelopes if one["type"] == "tool.timed_out"] == [
        "timed out after 0.5 s"
    ]


@pytest.mark.parametrize("output", ["events", "stream-json"])
def test_a_reader_that_goes_away_cancels_the_run(stage: Stage, output: str) -> None:
    model = stage.scenario([say("x" * 500, stream_ms=1000), bash("sleep 1000")])
    playing = stage.prompt(model, output=output)
    playing.until(lambda one: True)
    playing.close()
    ended = playing.end()
    (run,) = stage.runs()
    ending = terminal(stage.envelopes(run["run_id"]))
    assert (ended.code, ending["type"], ending["data"]["reason"]) == (
        124, "run.cancelled", "output closed",
    ), ended.err  # fmt: skip
    assert ended.ended_at - at(ending) < BETWEEN_ENDING_AND_EXIT_S


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_reader_that_is_gone_before_the_answer_changes_nothing_stored(
    stage: Stage, output: str
) -> None:
    playing = stage.prompt(stage.scenario([bash("sleep 0.3")], [say("Done.")]), output=output)
    playing.close()
    ended = playing.end()
    (run,) = stage.runs()
    assert terminal(stage.envelopes(run["run_id"]))["type"] == "run.finished"
    assert b"Traceback" not in ended.err


def _embedding(stage: Stage, how: str, output: str) -> Playing:
    model = stage.scenario([say("Watch this."), call("stuck", how=how)], [say("Never said.")])
    return stage.start_program(
        (sys.executable, embedder.__file__),
        "-p", "go", "--model", model, "--allow", "stuck", "--output-format", output,
        BATTEN_WATCHDOG_S="1",
    )  # fmt: skip


@pytest.mark.parametrize("how", ["asleep", "spinning"])
def test_a_blocked_event_loop_is_ended_from_outside_it(stage: Stage, how: str, output: str) -> None:
    ended = _embedding(stage, how, output).end()
    _assert_ended(stage, ended, "timeout")


@pytest.mark.soak
def test_an_interpreter_held_by_c_code_is_ended_and_the_next_writer_says_so(stage: Stage) -> None:
    ended = _embedding(stage, "in_c", "events").end()
    assert ended.code < 0
    (run,) = stage.runs()
    assert run["state"] == "abandoned"
    assert stage.resume(run["run_id"], "go on").end().code == 0
    assert terminal(stage.envelopes(run["run_id"]))["data"]["outcome"] == "interrupted"
    stage.verify()


@pytest.fixture
def small_disk(stage: Stage) -> Iterator[Stage]:
    """A home on a file system of a megabyte and a half."""
    stage.home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", str(stage.home)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        yield stage
    finally:
        subprocess.run(["umount", str(stage.home)], check=True)


def _filling(stage: Stage) -> str:
    """A run that stores more than there is room for."""
    return stage.scenario(*([say("x" * 4000), bash(f"seq {n}000")] for n in range(1, 200)))


def test_a_full_disk_ends_the_run_in_its_reserved_room(small_disk: Stage, output: str) -> None:
    ended = small_disk.prompt(_filling(small_disk), output=output).end()
    _assert_ended(small_disk, ended, "store")


def test_output_that_finds_no_room_ends_the_run(small_disk: Stage, output: str) -> None:
    model = small_disk.scenario([bash("head -c 5000000 /dev/zero | tr '\\0' x")], [say("Done.")])
    ended = small_disk.prompt(model, output=output).end()
    _assert_ended(small_disk, ended, "store")


def test_an_ending_that_cannot_be_stored_is_said_and_written_by_the_next(
    small_disk: Stage, output: str
) -> None:
    stage = small_disk
    waiting = "until test -e full; do sleep 0.02; done; seq 10000"
    playing = stage.prompt(stage.scenario([bash(waiting)], [say("Done.")]), output=output)
    while not (stage.home / "journal.db-wal").exists() or not stage.runs():
        time.sleep(0.02)
    (stage.home / "ballast").unlink()
    _fill(stage.home / "filler")
    (stage.workspace / "full").touch()
    ended = playing.end()
    assert ended.code == 1, ended.err
    assert b"could not be stored" in ended.err
    (result,) = [frame for frame in ended.frames() if frame["type"] == "result"]
    assert (result["subtype"], result["durable"]) == ("error", False)
    (stage.home / "filler").unlink()
    (run,) = stage.runs()
    assert run["state"] == "abandoned"
    stage.verify()
    assert stage.resume(run["run_id"], "go on").end().code == 0
    assert terminal(stage.envelopes(run["run_id"]))["data"]["outcome"] == "interrupted"
    stage.verify()


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while shutil.disk_usage(path).free:
            file.write(bytes(4096))


def test_a_disk_that_is_full_from_the_start_is_said_in_one_frame(
    small_disk: Stage, output: str
) -> None:
    _fill(small_disk.home / "filler")
    ended = small_disk.prompt(small_disk.scenario([say("Done.")]), output=output).end()
    assert (ended.code, b"no room left" in ended.err) == (1, True), ended.err
    assert b"Traceback" not in ended.err
    (result,) = [frame for frame in ended.frames() if frame["type"] == "result"]
    assert result["subtype"] == "error"
