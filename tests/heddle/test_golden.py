"""Whole conversations, line by line: what the page on the protocol shows is what is said."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.stage import Stage
from tests.heddle.working import Worker, calling, saying, working
from tests.models.server import ModelServer, Reply, refusal

GOLDEN = Path(__file__).parent / "golden"
REPLIES: dict[str, Sequence[Reply]] = {
    "normal": [calling("glob", {"pattern": "*"}), saying("Only a.txt.")],
    "error": [refusal(401, {"error": {"message": "Wrong key", "code": 401}})],
    "cancel": [calling("bash", {"command": "sleep 30"})],
    "mismatch": [saying("never asked")],
    "newest": [saying("Hello.", model="vendor/model-x-2026")],
    "approval": [calling("bash", {"command": "echo ran"}), saying("It ran.")],
}
SUGGESTING = ("approval",)
"""Those in suggest mode."""


def test_every_conversation_is_played() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(REPLIES)


@pytest.mark.parametrize("name", REPLIES)
async def test_a_conversation_goes_as_it_is_written_down(stage: Stage, name: str) -> None:
    (stage.workspace / "a.txt").write_text("x")
    written = (GOLDEN / f"{name}.txt").read_text().splitlines()
    async with ModelServer(REPLIES[name]) as server:
        environ = {"HEDDLE_BASE_URL": f"{server.url}/v1", "OPENROUTER_API_KEY": "k"}
        if name in SUGGESTING:
            environ["HEDDLE_APPROVAL_MODE"] = "suggest"
        async with working(stage, environ=environ) as worker:
            assert await played(worker, written) == written
            assert await worker.rest() == []
            assert await worker.code() == (1 if name == "mismatch" else 0)


async def played(worker: Worker, written: list[str]) -> list[str]:
    """Say what the client says; the conversation with what was really answered."""
    heard: list[str] = []
    asked = ""
    for line in written:
        if line.startswith("> "):
            said = line[2:].replace('"request_id":"…"', f'"request_id":"{asked}"')
            await worker.write(said.encode() + b"\n")
            heard.append(line)
        else:
            answered = await worker.line()
            asked = answered.partition('"request_id":"')[2].partition('"')[0] or asked
            heard.append(f"< {normal(answered)}")
    return heard


def normal(line: str) -> str:
    """Without what differs from one time to the next."""
    line = re.sub(r'"(session_id|deadline_at)":"[^"]+"', r'"\1":"…"', line)
    line = re.sub(r'"request_id":"appr_[^"]+"', '"request_id":"…"', line)
    return re.sub(r'("\w+_latency_ms"):\d+', r"\1:0", line)
