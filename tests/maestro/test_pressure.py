"""Clients that read slowly, leave, or come twice: bounded memory, nothing lost, nothing left."""

import asyncio
import os
from pathlib import Path

from tests.agent.stage import Stage, bash, end, say
from tests.maestro.speaking import speaking

DONE = [say("Done."), end()]
_FLOOD = 40_000_000


def resident(pid: int) -> int:
    """Kilobytes the process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


async def test_a_flood_waits_for_a_slow_reader_and_all_of_it_arrives(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        before = resident(client.pid)
        made = stage.workspace / "made"
        flood = f"head -c {_FLOOD} /dev/zero | tr '\\0' x; touch {made}"
        client.say("utility_command_start", command_id="u", command=flood)
        beside = stage.workspace / "beside"
        os.mkfifo(beside)
        client.say("utility_command_start", command_id="other", command="echo other > beside")
        assert await asyncio.to_thread(beside.read_text) == "other\n"  # it runs all the same
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
    (run,) = journal.runs()
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
