"""A session as the lines of Heddle's transcript files, one message each."""

from typing import Any

import msgspec

from batten.contract import calls, facts
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
        self._fold = calls.CallFold(turns=True)

    def feed(self, envelope: Envelope) -> bytes:
        """Lines to write after this fact."""
        at, fact = envelope.occurred_at, envelope.data
        match self._fold.take(fact):
            case calls.TurnAnswered(text=text, calls=proposed):
                more = {"tool_calls": [_call(call) for call in proposed]} if proposed else {}
                self._hold("assistant", text, at, **more)
            case calls.CallEnded(call, end):
                self._hold("tool", end.text, at, tool_call_id=call.id)
            case calls.RunEnded(end) if end.outcome == "completed":
                return b"".join(map(encode, self._waiting))
            case None if isinstance(fact, facts.UserMessage):
                if not self._waiting:
                    return encode({"role": "user", "content": fact.text, "timestamp": at})
                self._hold("user", fact.text, at)
            case _:
                pass
        return b""

    def _hold(self, role: str, content: str, at: str, **more: Any) -> None:
        self._waiting.append({"role": role, "content": content, **more, "timestamp": at})


def _call(call: calls.Call) -> Line:
    arguments = msgspec.json.encode(call.proposed).decode()
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
