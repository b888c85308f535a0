"""What comes through the pipes: lines that are no requests, in pieces or large, and stray prints.

What every protocol withstands is shown in `tests/serve/test_abuse.py`.
"""

import subprocess
import sys

import msgspec

from tests.agent.stage import Stage, end, fail, say
from tests.heddle.working import PATIENCE_S, checked, init, working
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
    (b'{"type":"init","id":"x","config":{"model":"\xed\xa0\x80"}}', "Invalid JSON", "unknown"),
    (b'{"type":"init","id":"x","config":{"model":"\\ud800"}}', "Invalid init request", "x"),
    (b'{"a":' * 100_000, "Invalid JSON", "unknown"),
    (b'{"type":"send","id":"x","message":' + b"[" * 100_000, "Invalid JSON", "x"),
    (b'{"type":"send","id":"x","message":" \\n"}', "Invalid send request", "x"),
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


async def test_an_answer_that_breaks_off_starts_again_and_the_result_is_whole(stage: Stage) -> None:
    broken = [say("Half."), fail("transient", "cut", times=1), say(" Whole."), end()]
    async with working(stage, "--model", stage.scenario(broken)) as worker:
        await worker.ask(init(), "init_ok")
        *events, result = await worker.send("s")
    told = [one["event"] for one in events if one["event"]["event"] in ("content_delta", "error")]
    (place,) = [place for place, one in enumerate(told) if one["event"] == "error"]
    assert told[place]["retryable"]
    assert "".join(one["text"] for one in told[:place]) == "Half."
    assert "".join(one["text"] for one in told[place + 1 :]) == "Half. Whole."
    assert (result["status"], result["response"]) == ("ok", "Half. Whole.")


async def test_a_line_that_comes_byte_by_byte_is_one_line(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        for byte in msgspec.json.encode(init()):
            await worker.write(bytes([byte]))
        await worker.write(b"\r\n")
        assert (await worker.hear())["type"] == "init_ok"


async def test_a_line_that_is_too_long_is_refused_with_its_id(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        await worker.ask(init(), "init_ok")
        (refused,) = await worker.send("s", "x" * (16 * 1024 * 1024))
        assert refused["error"]["code"] == "protocol_error"
        assert refused["error"]["message"].startswith("Invalid JSON: the line has more than")
        assert (await worker.send("t"))[-1]["response"] == "x"


async def test_a_large_message_is_no_error(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("Long."), end()])) as worker:
        await worker.ask(init(), "init_ok")
        assert (await worker.send("s", "word " * 60_000))[-1]["response"] == "Long."


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
approval.TOOLS += ("noisy",)
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
