"""The last words of a process whose loop no longer answers: one result, whatever was shown."""

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from batten.protocols.stream_json import FrameOptions
from batten.serve.claude.control_channel import ControlChannel
from batten.serve.claude.renderer import ClaudeRenderer
from batten.serve.output import Output

Json = dict[str, Any]
DESCRIBED: Json = {"cwd": "/", "tools": [], "model": "m", "permission_mode": "default"}


class Shown:
    """A renderer and what a reader of it was told."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._output = Output(self._writer)
        self.renderer = ClaudeRenderer(ControlChannel(self._output, seamless=False), FrameOptions())

    def errors(self) -> list[str]:
        """Of all results, once nothing more is written."""
        self._output.drain(5)
        self.close()
        with open(self._reader, "rb") as lines:
            frames: list[Json] = [msgspec.json.decode(line) for line in lines]
        return [one["errors"][0] for one in frames if one["type"] == "result"]

    def close(self) -> None:
        self._output.close()
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


@pytest.fixture
def shown() -> Iterator[Shown]:
    made = Shown()
    yield made
    made.close()


def test_a_prompt_that_is_worked_on_gets_its_result(shown: Shown) -> None:
    shown.renderer.begin("chat_1", lambda _: DESCRIBED)
    shown.renderer.prompted("go")
    shown.renderer.last_words("timeout", "the loop is blocked", durable=False)
    assert shown.errors() == ["the loop is blocked"]


def test_the_end_is_told_before_there_is_a_prompt_too(shown: Shown) -> None:
    shown.renderer.last_words("timeout", "the loop is blocked", durable=False)
    assert shown.errors() == ["the loop is blocked"]


def test_an_ending_that_is_known_already_is_the_one_that_is_told(shown: Shown) -> None:
    shown.renderer.fail("usage", "a line is wrong")
    shown.renderer.last_words("timeout", "the loop is blocked", durable=False)
    assert shown.errors() == ["a line is wrong"]


def test_nothing_is_told_twice(shown: Shown) -> None:
    shown.renderer.fail("cancelled", "SIGTERM")
    shown.renderer.finish()
    shown.renderer.fail("cancelled", "SIGTERM")
    shown.renderer.last_words("cancelled", "it did not end in time", durable=False)
    assert shown.errors() == ["SIGTERM"]


def test_after_the_last_words_there_are_no_others(shown: Shown) -> None:
    shown.renderer.last_words("timeout", "the loop is blocked", durable=False)
    shown.renderer.fail("internal", "too late")
    shown.renderer.finish()
    shown.renderer.last_words("cancelled", "much too late", durable=False)
    assert shown.errors() == ["the loop is blocked"]
