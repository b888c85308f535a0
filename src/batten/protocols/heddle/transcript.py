"""A session as the lines of Heddle's transcript files, one message each."""

from typing import Any

import msgspec

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.protocols.json_line import encode

Line = dict[str, Any]


def opening(*, session_id: str, cwd: str, model: str, version: str, at: str, system: str) -> bytes:
    """The first two lines."""
    meta: Line = {
        "type": "session_meta",
        "id": session_id,
        "cwd": cwd,
        "model": model,
        "created": at,
        "heddle_version": version,
    }
    return encode(meta) + encode({"role": "system", "content": system, "timestamp": at})


class Transcript:
    """Folds one send. The user message is written at once, the rest if the send succeeds."""

    def __init__(self) -> None:
        self._waiting: list[Line] = []
        self._texts: list[str] = []
        self._calls: list[Line] = []

    def feed(self, envelope: Envelope) -> bytes:
        """Lines to write after this fact."""
        at, fact = envelope.occurred_at, envelope.data
        match fact:
            case facts.UserMessage() if not self._waiting:
                return encode({"role": "user", "content": fact.text, "timestamp": at})
            case facts.UserMessage():
                self._hold("user", fact.text, at)
            case facts.AssistantTextComplete():
                self._texts.append(fact.text)
            case facts.AssistantToolCallProposed():
                self._calls.append(_call(fact))
            case facts.AssistantRetracted():
                self._texts, self._calls = [], []
            case facts.AssistantMessageComplete():
                more = {"tool_calls": self._calls} if self._calls else {}
                self._hold("assistant", "".join(self._texts), at, **more)
                self._texts, self._calls = [], []
            case facts.ToolEnded():
                self._hold("tool", fact.output or "", at, tool_call_id=fact.tool_call_id)
            case facts.PolicyToolBlocked():
                self._hold("tool", fact.output or "", at, tool_call_id=fact.tool_call_id)
            case facts.RunFinished():
                return b"".join(map(encode, self._waiting))
            case _:
                pass
        return b""

    def _hold(self, role: str, content: str, at: str, **more: Any) -> None:
        self._waiting.append({"role": role, "content": content, **more, "timestamp": at})


def _call(fact: facts.AssistantToolCallProposed) -> Line:
    arguments = msgspec.json.encode(fact.input).decode()
    return {
        "id": fact.tool_call_id,
        "type": "function",
        "function": {"name": fact.tool_name, "arguments": arguments},
    }
