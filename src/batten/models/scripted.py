"""A model that plays a scenario file: no key, no network, the same words every time.

It keeps no position. The frame to play is the number of assistant messages in the request, so a
resumed conversation continues where it stopped; dropping or summarizing messages moves the script
back by as many frames. Tools run outside, like any other model's.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import assert_never

import msgspec

from batten.contract.conversation import Message, Text, ToolCall, ToolResult
from batten.contract.errors import CallerError, ProviderError
from batten.contract.facts.assistant import StopReason, Usage
from batten.models import scenario as script
from batten.models.contract import (
    BlockDone,
    Done,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
)
from batten.models.pricing import FREE, Price

PROVIDER = "scripted"

# Larger than any script: a conversation that is never compacted keeps its position.
_CONTEXT_TOKENS = 1_000_000_000

# Bounded on both sides, so that a megabyte without a space is still many deltas.
_WORD = re.compile(r"\s{1,64}|\S{1,64}\s{0,64}")
_WORDS_PER_DELTA = 4

_LONGEST_REASON = 500
"""Characters of a result that is not the expected one."""

_STOP_REASONS: dict[str, StopReason] = {
    "complete": "end_turn",
    "limit_exceeded": "max_tokens",
    "aborted": "aborted",
}


def open_scripted(path: str, *, aliases: Mapping[str, str] | None = None) -> "ScriptedModel":
    """The model that plays the scenario file at `path`, and its children's files.

    `aliases` maps other names of a tool to the one that results use.
    """
    return _open(path, aliases or {}, ())


def _open(name: str, aliases: Mapping[str, str], parents: tuple[str, ...]) -> "ScriptedModel":
    path = os.path.realpath(name)
    if path in parents:
        raise CallerError(f"{path}: children: the scenario is its own child")
    scenario = script.load(path)
    children = {
        prompt.strip(): _open(os.path.join(os.path.dirname(path), file), aliases, (*parents, path))
        for prompt, file in scenario.children.items()
    }
    return ScriptedModel(scenario, name=name, aliases=aliases, children=children)


class ScriptedModel:
    """Plays one scenario; a conversation that begins with a child's prompt plays the child's."""

    provider = PROVIDER
    native_schema = False
    context_tokens = _CONTEXT_TOKENS
    price: Price = FREE

    def __init__(
        self,
        scenario: script.Scenario,
        *,
        name: str = "",
        aliases: Mapping[str, str] | None = None,
        children: "Mapping[str, ScriptedModel] | None" = None,
    ) -> None:
        self.scenario = scenario
        self.name = name or scenario.id
        self._aliases = aliases or {}
        self._children = children or {}
        self._failures: dict[tuple[int, int], int] = {}

    async def aclose(self) -> None:
        """Nothing to close."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        child = self._child(request.messages)
        return self._play(request.messages) if child is None else child.stream(request)

    def _child(self, messages: tuple[Message, ...]) -> "ScriptedModel | None":
        if not self._children or not messages:
            return None
        for block in messages[0].blocks:
            if isinstance(block, Text) and block.text.strip() in self._children:
                return self._children[block.text.strip()]
        return None

    async def _play(self, messages: tuple[Message, ...]) -> AsyncGenerator[ModelEvent, None]:
        """One message. Without an explicit end it stops for its tools, or is the answer.

        An explicit end gives `end_turn` even beside tool calls: the calls are part of the message
        like any others, and no further turn is expected. Each delta is a point of cancellation.
        """
        frame = self._next_frame(messages)
        block = 0
        stop: StopReason = "end_turn"
        for number, statement in frame.played():
            match statement:
                case script.SayText():
                    if not statement.text:
                        continue
                    pause_s = _pause_s(statement)
                    for piece in _pieces(statement):
                        await asyncio.sleep(pause_s)
                        yield TextDelta(block, piece)
                    yield BlockDone(block, Text(statement.text))
                    block += 1
                case script.Delay():
                    await asyncio.sleep(statement.ms / 1000)
                case script.CallTool():
                    name, arguments = statement.tool, statement.arguments()
                    call = ToolCall(
                        script.call_id(self.scenario, frame.index, number), name, arguments
                    )
                    fragment = msgspec.json.encode(arguments).decode()
                    yield ToolCallDelta(block, call.id, name, fragment)
                    yield BlockDone(block, call)
                    block += 1
                    stop = "tool_use"
                case script.Fail():
                    self._fail(statement, (frame.index, number))
                case script.WaitForUser():
                    stop = "end_turn"
                case script.End():
                    stop = _STOP_REASONS[statement.reason]
                case _:
                    assert_never(statement)
        yield Done(stop, Usage())

    def _next_frame(self, messages: tuple[Message, ...]) -> script.Frame:
        frames = self.scenario.frames
        index = sum(message.role == "assistant" for message in messages)
        if 0 < index <= len(frames):
            self._check_results(index - 1, messages)
        if index < len(frames):
            return frames[index]
        text = script.SayText(text=f"Scripted scenario {self.scenario.id} complete.")
        return script.Frame(index=index, statements=(text,))

    def _fail(self, statement: script.Fail, place: tuple[int, int]) -> None:
        """Raise the scripted error, up to `times` times."""
        failures = self._failures.get(place, 0)
        if statement.times is not None and failures >= statement.times:
            return
        self._failures[place] = failures + 1
        retriable = statement.type == "transient"
        message = statement.message
        if retriable and "Try again." not in message:
            message += " Try again."
        raise ProviderError(
            message, code=f"scenario_{statement.type}", retriable=retriable, provider=PROVIDER
        )

    def _check_results(self, index: int, messages: tuple[Message, ...]) -> None:
        """Raise if the tools of a played frame did not end as the script expects."""
        ended: dict[tuple[str, str], ToolResult] = {}
        for message in messages:
            for block in message.blocks:
                if isinstance(block, ToolResult):
                    ended[block.call_id, self._canonical(block.name)] = block
        for number, statement in self.scenario.frames[index].played():
            if not isinstance(statement, script.CallTool) or statement.expected_result in (
                None,
                "any",
            ):
                continue
            call = script.call_id(self.scenario, index, number)
            result = ended.get((call, self._canonical(statement.tool)))
            actual = "no result" if result is None else "error" if result.is_error else "success"
            if actual != statement.expected_result:
                raise ProviderError(
                    f"frames[{index}].statements[{number}] of scenario {self.scenario.id}: "
                    f"{statement.tool} ({call}) should have ended in "
                    f"{statement.expected_result}, but there is {actual}{_reason(result)}",
                    code="scenario_mismatch",
                    provider=PROVIDER,
                )

    def _canonical(self, tool: str) -> str:
        return self._aliases.get(tool, tool)


def _reason(result: ToolResult | None) -> str:
    if result is None or not result.output:
        return ""
    return f": {result.output.removeprefix('Error: ')[:_LONGEST_REASON]}"


def _pieces(statement: script.SayText) -> Iterator[str]:
    """The text in deltas; joined, they equal the text."""
    if statement.stream_ms is not None:
        yield from statement.text
        return
    words = [match[0] for match in _WORD.finditer(statement.text)]
    for start in range(0, len(words), _WORDS_PER_DELTA):
        yield "".join(words[start : start + _WORDS_PER_DELTA])


def _pause_s(statement: script.SayText) -> float:
    return (statement.stream_ms or 0) // len(statement.text) / 1000
