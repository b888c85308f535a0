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
}


def test_every_conversation_is_played() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(REPLIES)


@pytest.mark.parametrize("name", REPLIES)
async def test_a_conversation_goes_as_it_is_written_down(stage: Stage, name: str) -> None:
    (stage.workspace / "a.txt").write_text("x")
    written = (GOLDEN / f"{name}.txt").read_text().splitlines()
    async with ModelServer(REPLIES[name]) as server:
        environ = {"HEDDLE_BASE_URL": f"{server.url}/v1", "OPENROUTER_API_KEY": "k"}
        async with working(stage, environ=environ) as worker:
            assert await played(worker, written) == written
            assert await worker.rest() == []
            assert await worker.code() == (1 if name == "mismatch" else 0)


async def played(worker: Worker, written: list[str]) -> list[str]:
    """Say what the client says; the conversation with what was really answered."""
    heard: list[str] = []
    for line in written:
        if line.startswith("> "):
            await worker.write(line[2:].encode() + b"\n")
            heard.append(line)
        else:
            heard.append(f"< {normal(await worker.line())}")
    return heard


def normal(line: str) -> str:
    """Without what differs from one time to the next."""
    line = re.sub(r'"session_id":"[^"]+"', '"session_id":"…"', line)
    return re.sub(r'("\w+_latency_ms"):\d+', r"\1:0", line)
