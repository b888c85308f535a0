"""A model's answer in progress, as the events of Anthropic's streaming API."""

from typing import Any

import msgspec

from batten.contract import facts
from batten.contract.notes import Note, ThinkingPiece, ToolInputPiece
from batten.protocols.claude.names import claude_name
from batten.protocols.claude.usage import stop_reason_of, usage_of

Event = dict[str, Any]


class AnswerStream:
    """The events of one run's answers. Blocks are numbered in the order in which they begin."""

    def __init__(self) -> None:
        self._message_id = ""
        self._model = ""
        self._started = False
        self._blocks = 0
        self._open: int | None = None
        """The block index, in our facts, of the open block."""

    def begin(self, message_id: str, model: str | None = None) -> None:
        """Start a message, of the model before unless one is named."""
        self._message_id, self._model = message_id, model or self._model
        self._forget()

    def feed(self, fact: facts.Fact) -> list[Event]:
        match fact:
            case facts.AssistantTextDelta():
                delta = {"type": "text_delta", "text": fact.delta}
                return self._piece(fact.block_index, {"type": "text", "text": ""}, delta)
            case facts.AssistantTextComplete():
                return self._close()
            case facts.AssistantToolCallProposed():
                return self._call(fact)
            case facts.AssistantMessageComplete():
                return self._end(fact)
            case facts.ErrorUpstream() | facts.TurnFailed():
                self._forget()
            case _:
                pass
        return []

    def note(self, note: Note) -> list[Event]:
        match note:
            case ThinkingPiece():
                block = {"type": "thinking", "thinking": "", "signature": ""}
                delta = {"type": "thinking_delta", "thinking": note.text}
                return self._piece(note.block_index, block, delta)
            case ToolInputPiece():
                block = _call_block(note.tool_call_id, note.tool_name)
                delta = {"type": "input_json_delta", "partial_json": note.text}
                return self._piece(note.block_index, block, delta)
            case _:
                return []

    def _forget(self) -> None:
        self._started, self._blocks, self._open = False, 0, None

    def _call(self, fact: facts.AssistantToolCallProposed) -> list[Event]:
        """A call whose pieces were not shown appears in one event."""
        block_index = fact.block_index if isinstance(fact.block_index, int) else -1
        if self._open == block_index and self._open is not None:
            return self._close()
        text = msgspec.json.encode(fact.input).decode()
        delta = {"type": "input_json_delta", "partial_json": text}
        block = _call_block(fact.tool_call_id, fact.tool_name)
        return [*self._piece(block_index, block, delta), *self._close()]

    def _piece(self, block_index: int, block: Event, delta: Event) -> list[Event]:
        events: list[Event] = []
        if not self._started:
            events.append({"type": "message_start", "message": self._message()})
            self._started = True
        if self._open != block_index:
            events += self._close()
            self._open = block_index
            start = {"type": "content_block_start", "index": self._blocks, "content_block": block}
            events.append(start)
            self._blocks += 1
        index = self._blocks - 1
        return [*events, {"type": "content_block_delta", "index": index, "delta": delta}]

    def _close(self) -> list[Event]:
        if self._open is None:
            return []
        self._open = None
        return [{"type": "content_block_stop", "index": self._blocks - 1}]

    def _end(self, fact: facts.AssistantMessageComplete) -> list[Event]:
        events: list[Event] = self._close()
        if not self._started:
            events.append({"type": "message_start", "message": self._message()})
        delta = {"stop_reason": stop_reason_of(fact.stop_reason), "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": usage_of(fact.usage)})
        events.append({"type": "message_stop"})
        self._forget()
        return events

    def _message(self) -> Event:
        nothing: list[Event] = []
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": nothing,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }


def _call_block(call_id: str, name: str) -> Event:
    nothing: Event = {}
    return {"type": "tool_use", "id": call_id, "name": claude_name(name), "input": nothing}
