"""A long transcript through a reader of four kilobytes at a time: complete, whole, and bounded."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.campaigns.stage import Json, Playing, Stage
from tests.models.server import ModelServer, Reply, answer
from tests.models.wire import anthropic_turn

MEGABYTE = 1 << 20
MOST_MEMORY = 150 * MEGABYTE
SIP = 4096
CALLS = 6
RESULT = 22_000
"""Characters of a tool's result, few enough to be told whole."""


def _turn(number: int) -> Reply:
    """Some words, and calls whose results are long and all different."""
    calls = [
        (f"c{number}_{place}", "bash", {"command": _command(number, place)})
        for place in range(CALLS)
    ]
    return answer(anthropic_turn(f"This is turn {number}, with a few words. " * 20, calls))


def _line(number: int, place: int) -> str:
    return f"turn {number} call {place} says: größe, and nothing secret"


def _command(number: int, place: int) -> str:
    return f"yes '{_line(number, place)}' | head -n {RESULT // len(_line(number, place))}"


class Reader:
    """Takes a few bytes at a time and knows where lines end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = bytearray()
        self.size = 0

    def frames(self) -> Iterator[Json]:
        taken = 0
        while piece := os.read(self._descriptor, SIP):
            self.size += len(piece)
            self._held += piece
            taken += 1
            if taken % 64 == 0:
                time.sleep(0.002)  # a little slower than it is written, so that the pipe is full
            yield from self._whole()
        assert not self._held, "the last line is cut"

    def _whole(self) -> Iterator[Json]:
        *lines, rest = bytes(self._held).split(b"\n")
        if lines:
            self._held = bytearray(rest)
        for line in lines:
            yield msgspec.json.decode(line)


class Transcript:
    """Holds the frames against what the model said and the tools wrote, one by one."""

    def __init__(self) -> None:
        self.turns = 0
        self.results = 0
        self.last: Json = {}
        self._pieces: dict[int, str] = {}
        self._uses: list[Json] = []

    def take(self, frame: Json) -> None:
        assert self.last.get("type") != "result", "nothing follows the result"
        self.last = frame
        match frame["type"]:
            case "content_block_delta":
                delta = frame["delta"]
                text = delta["text"] if delta["type"] == "text_delta" else delta["partial_json"]
                index = frame["index"]
                self._pieces[index] = self._pieces.get(index, "") + text
            case "tool_use":
                self._uses.append(frame)
            case "tool_result":
                self._check_result(frame)
            case "message":
                self._check_message(frame)
            case _:
                pass

    def _check_result(self, frame: Json) -> None:
        number, place = map(int, frame["tool_use_id"][1:].split("_"))
        line = _line(number, place)
        assert frame["content"][0]["text"].splitlines() == [line] * (RESULT // len(line))
        self.results += 1

    def _check_message(self, frame: Json) -> None:
        text, *uses = frame["content"]
        assert uses == self._uses
        assert self._pieces.pop(0) == text["text"]
        told = [msgspec.json.decode(piece) for _, piece in sorted(self._pieces.items())]
        assert told == [use["input"] for use in uses]
        self._pieces.clear()
        self._uses.clear()
        self.turns += 1


def _peak(pid: int) -> int:
    """The most memory a process ever held, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not say")


def _read(playing: Playing, transcript: Transcript) -> tuple[int, int]:
    """Read to the end; how much it was, and the most memory the process had."""
    reader = Reader(playing.descriptor)
    peak = 0
    for frame in reader.frames():
        transcript.take(frame)
        if frame["type"] == "message":
            peak = max(peak, _peak(playing.pid))
    return reader.size, peak


async def _campaign(stage: Stage, size: int) -> None:
    turns = size // (CALLS * RESULT)
    replies = [*map(_turn, range(turns)), answer(anthropic_turn("All is read."))]
    async with ModelServer(replies) as server:
        playing = stage.prompt(
            "anthropic/claude-sonnet-4-6", "--include-partial-messages",
            output="stream-json", **server.environ(),
        )  # fmt: skip
        transcript = Transcript()
        written, peak = await asyncio.to_thread(_read, playing, transcript)
        ended = await asyncio.to_thread(playing.end)
    assert ended.code == 0, ended.err
    assert (transcript.turns, transcript.results) == (turns + 1, turns * CALLS)
    result = transcript.last
    assert (result["type"], result["subtype"], result["result"]) == (
        "result", "success", "All is read.",
    )  # fmt: skip
    assert result["turns"] == turns + 1
    assert written > size
    sys.stdout.write(f"{written} bytes in {turns + 1} turns, {peak} bytes of memory\n")
    assert peak < MOST_MEMORY
    stage.verify()


async def test_a_long_transcript_is_whole_for_a_reader_of_little_at_a_time(stage: Stage) -> None:
    await _campaign(stage, 5 * MEGABYTE)


@pytest.mark.soak
async def test_fifty_megabytes_are_whole_for_a_reader_of_little_at_a_time(stage: Stage) -> None:
    await _campaign(stage, 50 * MEGABYTE)
