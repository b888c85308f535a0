"""Recorded pairs of input and output, played against a real worker: all lines at once, and what is
answered compared line by line, without what differs from one time to the next.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.agent.stage import Stage
from tests.heddle.working import Json, working
from tests.models.server import ModelServer, Reply

OURS = Path(__file__).parent / "pairs"
FAILURE = {"error": {"message": "Model error", "type": "error", "code": 500}}
_DIFFERS = (
    "session_id",
    "timestamp",
    "usage.prompt_tokens",
    "usage.completion_tokens",
    "usage.total_tokens",
    "event.result_preview",
    "event.details",
    "event.provider",
    "task_id",
    "worker_id",
    "model_latency_ms",
    "tool_latency_ms",
    "total_latency_ms",
)


def published() -> Path:
    """Where the published pairs are: named by a variable, or beside this checkout."""
    named = os.environ.get("HEDDLE_FIXTURES")
    beside = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "heddle"
    return (Path(named) if named else beside) / "seed-0.2.0"


class SlowServer(ModelServer):
    """Thinks for a while before each reply."""

    delay_s = 0.0

    async def _play(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        await asyncio.sleep(self.delay_s)
        return await super()._play(reply, reader, writer)


def pair(directory: Path, name: str) -> tuple[bytes, list[Json]]:
    """What is said, and what is to be heard."""
    said = (directory / f"{name}.in.jsonl").read_bytes()
    heard = (directory / f"{name}.out.jsonl").read_bytes()
    return said, [msgspec.json.decode(line) for line in heard.splitlines()]


async def replayed(
    stage: Stage, said: bytes, replies: Sequence[Reply], *, delay_s: float = 0.0, **environ: str
) -> tuple[list[Json], int]:
    """What a worker answers to these lines, and its exit code."""
    home = stage.directory / "heddle"
    home.mkdir()
    slow = SlowServer(replies)
    slow.delay_s = delay_s
    async with slow as server:
        variables = {
            "HEDDLE_BASE_URL": f"{server.url}/v1",
            "OPENROUTER_API_KEY": "fake",
            "HEDDLE_HOME": str(home),
            "HEDDLE_PROTOCOL_VERSION": "0.2.0",
            **environ,
        }
        async with working(stage, environ=variables) as worker:
            await worker.write(said)
            return await worker.rest(), await worker.code()


def normal(frames: Sequence[Json], *, numbered: bool = True) -> list[Json]:
    """Frames without what differs, and, unless they are numbered, without the order of events."""
    kept = [msgspec.json.decode(msgspec.json.encode(frame)) for frame in frames]
    for frame in kept:
        for path in (*_DIFFERS, *(() if numbered else ("event_seq",))):
            *into, last = path.split(".")
            held: Json = frame
            for name in into:
                held = held.get(name, {})
            held.pop(last, None)
    return kept


def beats(frames: Sequence[Json]) -> list[Json]:
    return [frame for frame in frames if _is_beat(frame)]


def without_beats(frames: Sequence[Json]) -> list[Json]:
    return [frame for frame in frames if not _is_beat(frame)]


def _is_beat(frame: Json) -> bool:
    return frame["type"] == "event" and bool(frame["event"]["event"] == "heartbeat")
