"""Recorded pairs, the published ones and our own, answered as they were recorded."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.agent.stage import Stage
from tests.heddle.replaying import (
    FAILURE,
    OURS,
    beats,
    normal,
    pair,
    published,
    replayed,
    without_beats,
)
from tests.heddle.working import Json, calling, saying
from tests.models.server import Fault, Reply, refusal

PUBLISHED = published()
NEEDS_PUBLISHED = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="not beside this checkout")
DIRECTORIES = [pytest.param(PUBLISHED, marks=NEEDS_PUBLISHED, id="published"), OURS]
BOTH = pytest.mark.parametrize("directory", DIRECTORIES, ids=["published", "ours"])


def words(frames: list[Json]) -> str:
    """What the model is to say for this to be heard."""
    return str(next(frame["response"] for frame in frames if "response" in frame))


def tool(frames: list[Json]) -> Reply:
    """The call the model is to make."""
    made = next(frame["tool_calls_made"][0] for frame in frames if frame["type"] == "result")
    return calling(made["name"], made["args"])


def tokens(frames: list[Json]) -> tuple[int, int]:
    (used,) = [frame["usage"] for frame in frames if "usage" in frame]
    return used["prompt_tokens"], used["completion_tokens"]


@BOTH
async def test_a_send_with_a_tool_goes_as_recorded(stage: Stage, directory: Path) -> None:
    said, expected = pair(directory, "normal")
    replies = [tool(expected), saying(words(expected), tokens=tokens(expected))]
    heard, code = await replayed(stage, said, replies)
    assert normal(heard) == normal(expected)
    assert code == 0


@BOTH
async def test_a_provider_that_fails_goes_as_recorded(stage: Stage, directory: Path) -> None:
    said, expected = pair(directory, "error")
    heard, code = await replayed(stage, said, [refusal(500, FAILURE)])
    assert normal(heard) == normal(expected)
    assert code == 0


@BOTH
@pytest.mark.parametrize("replies", [[saying("Much", " too", " late.")], [[Fault.STALL]]])
async def test_a_cancel_right_behind_its_send_goes_as_recorded(
    stage: Stage, directory: Path, replies: Sequence[Reply]
) -> None:
    said, expected = pair(directory, "cancel")
    heard, code = await replayed(stage, said, replies)
    assert normal(heard) == normal(expected)
    assert code == 0


@BOTH
async def test_heartbeats_come_beside_what_was_recorded(stage: Stage, directory: Path) -> None:
    said, expected = pair(directory, "heartbeat")
    replies = [tool(expected), saying(words(expected), tokens=tokens(expected))]
    slowly = {"HEDDLE_HEARTBEAT_INTERVAL": "100"}
    heard, code = await replayed(stage, said, replies, delay_s=0.25, **slowly)
    found = beats(heard)
    assert found
    for beat in found:
        assert beat["event"]["duration_ms"] > 0
        assert beat["send_id"] == found[0]["send_id"]
    numbers = [frame["event_seq"] for frame in heard if frame["type"] == "event"]
    assert numbers == list(range(len(numbers)))
    rest = without_beats(heard)
    assert normal(rest, numbered=False) == normal(without_beats(expected), numbered=False)
    assert code == 0


@BOTH
async def test_another_major_is_refused_with_the_code_recorded(
    stage: Stage, directory: Path
) -> None:
    """The published pair has the frame of the program; the seed's is another, and wins."""
    said, expected = pair(directory, "version-mismatch")
    heard, code = await replayed(stage, said, [saying("never asked")])
    (refused,) = heard
    asked = msgspec.json.decode(said)
    assert refused["error"]["code"] == expected[0]["error"]["code"]
    assert refused == {
        "type": "init_ok",
        "id": asked["id"],
        "session_id": "",
        "protocol_version": "0.2.0",
        "error": {
            "code": "protocol_version_mismatch",
            "message": f"Client requested {asked['protocol_version']}, server is 0.2.0",
            "retryable": False,
        },
    }
    assert code == 1
