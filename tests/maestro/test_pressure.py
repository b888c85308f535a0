"""Clients that read slowly, leave, or come twice: bounded memory, nothing lost, nothing left."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.stage import Stage, bash, end, say
from tests.maestro.speaking import PATIENCE_S, speaking

DONE = [say("Done."), end()]
_FLOOD = 40_000_000


def resident(pid: int) -> int:
    """Kilobytes the process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


@contextmanager
def word_in(path: Path) -> Generator[Callable[[], Awaitable[bytes]], None, None]:
    """A pipe of this name: how to hear of what somebody does while we read nothing else."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    loop = asyncio.get_running_loop()
    written = asyncio.Event()
    loop.add_reader(descriptor, written.set)

    async def word() -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            await written.wait()
        return os.read(descriptor, 100)

    try:
        yield word
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def test_a_flood_waits_for_a_slow_reader_and_all_of_it_arrives(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        before = resident(client.pid)
        made = stage.workspace / "made"
        flood = f"head -c {_FLOOD} /dev/zero | tr '\\0' x; touch {made}"
        client.say("utility_command_start", command_id="u", command=flood)
        other = "echo other > beside"
        with word_in(stage.workspace / "beside") as word:
            client.say("utility_command_start", command_id="other", command=other)
            assert await word() == b"other\n"  # it runs all the same
        assert not made.exists()
        assert resident(client.pid) - before < 32_000
        await client.until("utility_command_exited", command_id="u", success=True)
        output = client.of("utility_command_output", command_id="u")
        assert sum(len(one["content"]) for one in output) == _FLOOD
        assert resident(client.pid) - before < 48_000


async def test_a_client_that_no_longer_listens_ends_what_it_started(stage: Stage) -> None:
    async with speaking(stage, [bash("echo begun; sleep 60", "c1")], DONE) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        client.say("utility_command_start", command_id="u", command="while :; do echo on; done")
        pid = (await client.until("utility_command_started"))["pid"]
        client.say("prompt", content="go")
        await client.until("tool_output")
        client.stop_listening()
        code = await client.gone()
    assert code != 0
    assert not os.path.exists(f"/proc/{pid}")
    journal = stage.journal()
    (run,) = await journal.runs()
    journal.close()
    assert run.outcome == "cancelled"


async def test_a_line_beyond_all_measure_is_refused_and_the_next_one_taken(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        before = resident(client.pid)
        piece = b"x" * (1 << 20)
        client.write(b'{"type":"prompt","content":"')
        for _ in range(100):
            client.write(piece)
            await client.drained()
        client.write(b'"}\n')
        error = await client.until("error")
        assert (error["fatal"], error["error_type"]) == (False, "protocol")
        assert resident(client.pid) - before < 160_000
        await client.prompt()


async def test_an_interrupt_ends_what_floods_a_client_that_reads_nothing(stage: Stage) -> None:
    frames = [[bash("echo ran > word", "c1")], DONE]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        client.say("utility_file_watch_start", watch_id="w", debounce_ms=1)
        await client.until("utility_file_watch_started")
        client.say("utility_command_start", command_id="u", command="yes")
        await client.until("utility_command_output")
        client.hear_nothing()
        with word_in(stage.workspace / "word") as word:
            client.say("interrupt")
            client.say("prompt", content="go")
            assert await word() == b"ran\n"
        client.listen_again()
        if not client.of("response_end"):
            await client.until("response_end")
    (exited,) = client.of("utility_command_exited")
    assert exited["reason"] == "Interrupted while utility command was still running"
    assert len(client.of("utility_file_watch_stopped")) == 1


@pytest.mark.soak
async def test_who_reads_nothing_keeps_no_shutdown_from_its_end(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        client.say("utility_command_start", command_id="u", command="yes")
        pid = (await client.until("utility_command_started"))["pid"]
        await client.until("utility_command_output")
        client.hear_nothing()
        client.say("shutdown")
        assert await client.gone() == 1  # it ended well, and nobody was told
        client.listen_again()
    assert not os.path.exists(f"/proc/{pid}")


async def test_a_command_that_does_not_read_is_written_to_no_more_and_can_be_ended(
    stage: Stage,
) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        before = resident(client.pid)
        client.say(
            "utility_command_start", command_id="u", command="exec sleep 60", allow_stdin=True
        )
        for _ in range(300):
            client.say("utility_command_stdin", command_id="u", content="x" * 100_000)
        for _ in range(300):
            client.say("utility_command_stdin", command_id="u", content="")
        client.say("utility_command_terminate", command_id="u", force=True)
        await client.until("utility_command_exited", command_id="u", signal="SIGKILL")
        full = "Utility command does not read its stdin: u: "
        assert client.of("error")[0]["message"].startswith(full)
        assert {one["request_id"] for one in client.of("error")} == {"u"}
        assert resident(client.pid) - before < 48_000
        await client.prompt()


async def test_what_is_written_to_a_slow_command_waits_and_arrives(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        client.say("utility_command_start", command_id="u", command="wc -c", allow_stdin=True)
        for _ in range(200):
            client.say("utility_command_stdin", command_id="u", content="x" * 100_000)
        client.say("utility_command_stdin", command_id="u", content="", eof=True)
        counted = await client.until("utility_command_output")
        await client.until("utility_command_exited", success=True)
    assert counted["content"].strip() == str(200 * 100_000)
    assert client.of("error") == []
