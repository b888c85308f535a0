"""What comes through the pipes when somebody misbehaves: typed errors, bounded memory, no hang."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from batten.session.history import facts_of
from tests.agent.stage import Stage, bash, end, say
from tests.heddle.working import PATIENCE_S, Worker, checked, events, init, working
from tests.session.processes import environment

SHUTDOWN = b'{"type":"shutdown","id":"z"}\n'
GARBAGE = [
    (b"garbage", "Invalid JSON", "unknown"),
    (b'{"type":"send","id":"s"', "Invalid JSON", "unknown"),
    (b'"a text"', "Expected JSON object", "unknown"),
    (b"[1,2]", "Expected JSON object", "unknown"),
    (b"null", "Expected JSON object", "unknown"),
    (b"12", "Expected JSON object", "unknown"),
    (b'{"id":"x"}', "Missing 'type' field", "unknown"),
    (b'{"type":7,"id":"x"}', "Missing 'type' field", "unknown"),
    (b'{"type":"send"}', "Missing 'id' field", "unknown"),
    (b'{"type":"send","id":7}', "Missing 'id' field", "unknown"),
    (b'{"type":"dance","id":"x"}', "Unknown message type: dance", "x"),
    (b'{"type":"send","id":"x"}', "Invalid send request", "x"),
    (b'{"type":"cancel","id":"x"}', "Invalid cancel request", "x"),
    (b'{"type":"init","id":"x","config":{"tools":[]}}', "Invalid init request", "x"),
    (b'{"type":"init","id":"x","config":{"model":"\xff\xfe"}}', "Invalid JSON", "unknown"),
    (b'{"type":"init","id":"x","config":{"model":"\\ud800"}}', "Invalid JSON", "unknown"),
    (b'{"a":' * 100_000, "Invalid JSON", "unknown"),
    (b"\x00\x01\x02", "Invalid JSON", "unknown"),
]


async def test_garbage_between_valid_lines_is_answered_line_by_line(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("Hello."), end()])) as worker:
        for line, message, request_id in GARBAGE:
            await worker.write(line + b"\n")
            refusal = await worker.hear()
            assert (refusal["type"], refusal["id"]) == ("result", request_id), line
            assert refusal["error"]["code"] == "protocol_error"
            assert refusal["error"]["message"].startswith(message), line
        await worker.write(b"\n  \n\r\n")
        assert (await worker.ask(init(), "init_ok"))["session_id"]
        await worker.write(b"garbage\n")
        assert (await worker.send("s"))[-1]["response"] == "Hello."


async def test_a_line_that_comes_byte_by_byte_is_one_line(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        for byte in msgspec.json.encode(init()):
            await worker.write(bytes([byte]))
        await worker.write(b"\r\n")
        assert (await worker.hear())["type"] == "init_ok"


async def test_half_a_line_at_the_end_of_input_is_an_error_and_no_hang(stage: Stage) -> None:
    async with working(stage) as worker:
        await worker.write(b'{"type":"shutdown","i')
        (refusal,) = await worker.rest()
        assert refusal["error"]["message"] == "Invalid JSON"
        assert await worker.code() == 0


async def test_a_line_of_100_megabytes_is_refused_in_bounded_memory(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("Hello."), end()])) as worker:
        await worker.ask(init(), "init_ok")
        piece = b"x" * (1 << 20)
        await worker.write(b'{"type":"send","id":"s","message":"')
        for _ in range(100):
            await worker.write(piece)
        await worker.write(b'"}\n')
        refusal = await worker.hear()
        assert refusal["error"]["message"].startswith("Invalid JSON: the line has")
        assert (await worker.send("t"))[-1]["response"] == "Hello."
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        peak_kib = int(status.partition("VmHWM:")[2].split()[0])
        assert peak_kib < 300 * 1024


async def test_a_large_message_is_no_error(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("Long."), end()])) as worker:
        await worker.ask(init(), "init_ok")
        assert (await worker.send("s", "word " * 60_000))[-1]["response"] == "Long."


async def test_a_reader_that_goes_away_ends_the_worker(stage: Stage) -> None:
    model = stage.scenario([bash("sleep 0.2")], [say("x"), end()])
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("batten")), "headless", "--protocol", "heddle"),
        *("--model", model, "--sandbox", "none"),
        stdin=asyncio.subprocess.PIPE,
        stdout=writing,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment(stage),
        cwd=stage.workspace,
    )
    os.close(writing)
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(init()) + b"\n")
    await process.stdin.drain()
    greeted = await asyncio.to_thread(os.read, reading, 65536)
    assert checked(greeted)["type"] == "init_ok"
    os.close(reading)
    process.stdin.write(b'{"type":"send","id":"s","message":"go"}\n')
    await process.stdin.drain()
    async with asyncio.timeout(PATIENCE_S):
        assert await process.wait() == 124
    process.stdin.close()
    journal = stage.journal()
    try:
        (run,) = [row for row in journal.runs() if row.session_id is not None]
        assert run.outcome == "cancelled"
        assert journal.verify(run.run_id) == []
    finally:
        journal.close()


async def test_a_reader_that_stops_loses_nothing_and_stops_no_run(stage: Stage) -> None:
    piece, count = "0123456789" * 40, 4000
    fifo = stage.directory / "fifo"
    os.mkfifo(fifo)
    told = bash(f"echo told > {fifo}")
    model = stage.scenario([*[say(piece)] * count, told], [say("Done."), end()])
    async with working(stage, "--model", model, limit=4096) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"})
        # Nothing is read, and the run comes to its tool.
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(fifo.read_text) == "told\n"
        await worker.write(SHUTDOWN)
        heard = await worker.rest()
        sent = [frame for frame in heard if frame["type"] == "event"]
        assert [frame["event_seq"] for frame in sent] == list(range(len(sent)))
        text = "".join(event["text"] for event in events(heard, "content_delta"))
        assert text == piece * count + "Done."
        assert heard[-1] == {"type": "shutdown_ok", "id": "z"}


async def test_what_a_client_saw_survives_a_kill(stage: Stage) -> None:
    model = stage.scenario([*[say("word ")] * 500, bash("sleep 30")])
    async with working(stage, "--model", model) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"})
        heard = await worker.until("tool_start")
        worker.process.kill()
        await worker.process.wait()
    journal = stage.journal()
    try:
        (run,) = journal.runs()
        stored = [fact.type for fact in facts_of(journal, run.run_id)]
        assert stored.count("assistant.text_delta") >= len(events(heard, "content_delta")) == 500
        assert "tool.invoked" in stored
        assert journal.verify(run.run_id) == []
    finally:
        journal.close()


async def test_a_client_that_asks_and_never_reads_is_not_read_for_ever(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        await worker.ask(init(), "init_ok")
        with pytest.raises(TimeoutError):
            await _ask_without_end(worker)
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        resident_kib = int(status.partition("VmRSS:")[2].split()[0])
        assert resident_kib < 200 * 1024


async def _ask_without_end(worker: Worker) -> None:
    assert worker.process.stdin is not None
    question = b'{"type":"status","id":"' + b"q" * 1000 + b'"}\n'
    async with asyncio.timeout(1.5):
        while True:
            worker.process.stdin.write(question * 100)
            await worker.process.stdin.drain()


PRINTING = """
import os, subprocess, sys
from batten.cli import run
from batten.models.contract import ToolSpec
from batten.tools.contract import ToolOutput

class Noisy:
    kind, effect = "custom", "none"
    spec = ToolSpec("noisy", "prints", {"type": "object", "properties": {}})
    def subject(self, arguments):
        return ""
    async def run(self, arguments, context):
        print("stray print", flush=True)
        os.write(1, b"stray write\\n")
        subprocess.run(["sh", "-c", "echo stray child; cat"], check=True)
        return ToolOutput(text="done")

import batten.protocols.heddle.approval as approval
approval.DEFAULT_TOOLS += ("noisy",)
sys.exit(run(sys.argv[1:], tools=[Noisy()]))
"""


def test_what_else_is_printed_goes_to_standard_error(stage: Stage) -> None:
    model = stage.scenario([{"kind": "tool_call", "tool": "noisy", "input": {}}], [say("x"), end()])
    asked = [init(tools=["noisy"]), {"type": "send", "id": "s", "message": "go"}]
    ended = subprocess.run(
        [sys.executable, "-c", PRINTING, "headless", "--protocol", "heddle", "--model", model],
        input=b"".join(msgspec.json.encode(one) + b"\n" for one in asked) + SHUTDOWN,
        capture_output=True,
        env=environment(stage),
        cwd=stage.workspace,
        timeout=PATIENCE_S,
        check=True,
    )
    heard = [checked(line) for line in ended.stdout.splitlines(keepends=True)]
    assert heard[-2]["tool_calls_made"] == [{"name": "noisy", "args": {}}]
    assert heard[-2]["status"] == "ok"
    for stray in (b"stray print", b"stray write", b"stray child"):
        assert stray in ended.stderr
