"""Claude Code's frames: translates the facts of a session's runs to its message objects.

Each prompt is one run: its frames begin with `system/init` and end with one `result`.
"""

from hashlib import sha256
from typing import Any

from msgspec import UNSET

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.facts.assistant import MessageBlock
from batten.contract.ids import is_ulid, to_uuid
from batten.contract.notes import Note, ThinkingPiece
from batten.contract.outcomes import Outcome
from batten.protocols.claude import PROTOCOL_VERSION
from batten.protocols.claude.hooks import hook_frames
from batten.protocols.claude.line import Frame
from batten.protocols.claude.names import claude_model, claude_name
from batten.protocols.claude.result import Ending
from batten.protocols.claude.stream import AnswerStream
from batten.protocols.claude.usage import Totals, stop_reason_of, usage_of
from batten.protocols.notes import NoteOrder
from batten.protocols.stream_json import FrameOptions


class ClaudeFrames:
    """The frames of a session, one run after the other. Feed it every envelope once."""

    def __init__(
        self,
        session_id: str,
        wanted: FrameOptions,
        parent_tool_use_id: str | None = None,
        totals: Totals | None = None,
    ) -> None:
        self._session_id = session_uuid(session_id)
        self._wanted = wanted
        self.parent_tool_use_id = parent_tool_use_id
        self._totals = totals or Totals()
        self._ending = Ending(self._totals)
        self._order = NoteOrder()
        self._stream = AnswerStream()
        self.context_tokens = 0
        """Size of the model's last input and answer."""
        self._event_id = ""
        self._shown = 0
        """Frames built from the current event."""
        self._message_id = ""
        self._texts: dict[int, list[str]] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._calls: dict[str, Frame] = {}

    def child(self, tool_call_id: str) -> "ClaudeFrames":
        """The frames of a run started by a call; its usage counts here too."""
        return ClaudeFrames(self._session_id, FrameOptions(), tool_call_id, self._totals)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the run; None before its terminal fact."""
        return self._ending.outcome

    def init(self, described: dict[str, Any]) -> Frame:
        """The first frame of a prompt. `described` has the fields of print mode's first frame."""
        self._ending = Ending(self._totals)
        servers = described.get("mcp_servers", [])
        return self._frame(
            {
                "type": "system",
                "subtype": "init",
                "cwd": described["cwd"],
                "tools": [claude_name(tool) for tool in described["tools"]],
                "mcp_servers": [{"name": one["name"], "status": one["status"]} for one in servers],
                "model": claude_model(described["model"]),
                "permissionMode": described["permission_mode"],
                "slash_commands": [],
                "apiKeySource": described.get("api_key_source", "none"),
                "claude_code_version": PROTOCOL_VERSION,
                "output_style": "default",
                "agents": described.get("agents", []),
                "skills": described.get("skills", []),
                "plugins": [
                    {"name": one["name"], "path": one.get("path") or one.get("source", "")}
                    for one in described.get("plugins", [])
                ],
            }
        )

    def feed(self, envelope: Envelope) -> list[Frame]:
        """The frames of one fact, in order."""
        fact = envelope.data
        assert isinstance(fact, facts.Fact)
        self._event_id, self._shown = envelope.event_id, 0
        frames = self._pieces(self._order.before(fact))
        if isinstance(fact, facts.TurnStarted):
            self._message_id = _message_id(envelope)
            self._stream.begin(self._message_id, fact.model)
            self._forget()
        if isinstance(fact, facts.AssistantRetracted):
            frames += self._retract(fact, _message_id(envelope))
        if self._wanted.partial_messages:
            frames += [self._event(event) for event in self._stream.feed(fact)]
        self._ending.feed(fact)
        frames += self._frames(fact)
        return frames + self._pieces(self._order.after(fact))

    def _retract(self, fact: facts.AssistantRetracted, message_id: str) -> list[Frame]:
        """Begin the message anew, under another id. Only its pieces were shown so far."""
        void, self._message_id = self._message_id, message_id
        self._stream.begin(self._message_id)
        self._forget()
        if not self._wanted.partial_messages:
            return []
        frame = {"type": "system", "subtype": "message_retracted", "message_id": void}
        return [self._frame({**frame, "reason": fact.reason})]

    def note(self, note: Note, *, room: bool = True) -> list[Frame]:
        """A note, shown after the facts that it followed.

        Without room it is dropped, with the rest of its block.
        """
        return self._pieces(self._order.hold(note, room=room))

    def fail(self, outcome: Outcome, message: str) -> None:
        """Set an ending that has no fact."""
        self._ending.fail(outcome, message)

    def result(self) -> Frame:
        """The last frame of a prompt."""
        return self._frame(self._ending.result())

    def _frames(self, fact: facts.Fact) -> list[Frame]:
        match fact:
            case facts.UserMessage() if self._wanted.user_messages and fact.turn_index == 0:
                return [self._frame({**_user(fact.text), "isReplay": True})]
            case facts.AssistantTextDelta():
                # The complete fact may cut a long text; its deltas never do.
                self._texts.setdefault(fact.block_index, []).append(fact.delta)
            case facts.AssistantTextComplete() if fact.sealed_artifact_id is not UNSET:
                self._texts[fact.block_index] = [fact.text]  # as the model wrote it
            case facts.AssistantToolCallProposed():
                self._calls[fact.tool_call_id] = _tool_use(fact)
            case facts.AssistantMessageComplete():
                self.context_tokens = fact.usage.input_tokens + fact.usage.output_tokens
                return [self._frame(self._assistant(fact))]
            case facts.ToolEnded():
                return [self._frame(_tool_result(fact.tool_call_id, fact.text, fact.is_error))]
            case facts.PolicyToolBlocked():
                return [self._frame(_tool_result(fact.tool_call_id, fact.text, True))]
            case facts.ErrorUpstream() if fact.retry_delay_ms is not UNSET:
                self._forget()
                return [self._frame(_api_retry(fact))]
            case facts.ContextCompacted():
                return [self._frame(_compact_boundary(fact))]
            case facts.HookDispatched() | facts.HookCompleted() if self._wanted.hook_events:
                return [self._frame(frame) for frame in hook_frames(fact)]
            case _:
                pass
        return []

    def _forget(self) -> None:
        """Start a new message."""
        self._texts.clear()
        self._thoughts.clear()
        self._calls.clear()

    def _assistant(self, fact: facts.AssistantMessageComplete) -> Frame:
        blocks = [content for block in fact.blocks if (content := self._block(block)) is not None]
        message = {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "model": fact.model,
            "content": blocks,
            "stop_reason": stop_reason_of(fact.stop_reason),
            "stop_sequence": None,
            "usage": usage_of(fact.usage),
        }
        return {
            "type": "assistant",
            "message": message,
            "parent_tool_use_id": self.parent_tool_use_id,
        }

    def _block(self, block: MessageBlock) -> Frame | None:
        match block.kind:
            case "tool_call":
                return self._calls.get(str(block.tool_call_id))
            case "text":
                text = "".join(self._texts.get(block.block_index, ()))
                return {"type": "text", "text": text} if text else None
            case "thinking":
                thought = "".join(self._thoughts.get(block.block_index, ()))
                shown = {"type": "thinking", "thinking": thought, "signature": ""}
                return shown if thought else None

    def _pieces(self, notes: list[Note]) -> list[Frame]:
        frames: list[Frame] = []
        for note in notes:
            if isinstance(note, ThinkingPiece):
                self._thoughts.setdefault(note.block_index, []).append(note.text)
            if self._wanted.partial_messages:
                frames += [self._event(event) for event in self._stream.note(note)]
        return frames

    def _event(self, event: dict[str, Any]) -> Frame:
        frame = {
            "type": "stream_event",
            "event": event,
            "parent_tool_use_id": self.parent_tool_use_id,
        }
        return self._frame(frame)

    def _frame(self, frame: Frame) -> Frame:
        if frame["type"] in ("user", "assistant"):
            frame["parent_tool_use_id"] = self.parent_tool_use_id
        return {**frame, "session_id": self._session_id, "uuid": self._uuid()}

    def _uuid(self) -> str:
        """The event's own number for its first frame; feeding it again gives the same ids."""
        number, self._shown = self._shown, self._shown + 1
        if number == 0 and is_ulid(self._event_id):
            return to_uuid(self._event_id)
        digits = sha256(f"{self._session_id}:{self._event_id}:{number}".encode()).hexdigest()
        return "-".join(
            (digits[:8], digits[8:12], f"8{digits[13:16]}", f"8{digits[17:20]}", digits[20:32])
        )


def _message_id(envelope: Envelope) -> str:
    """The id of the message that begins with this event."""
    return f"msg_{envelope.event_id.partition('_')[2]}"


def session_uuid(session_id: str) -> str:
    """A session's id in these frames."""
    return to_uuid(session_id) if is_ulid(session_id) else session_id


def _tool_use(fact: facts.AssistantToolCallProposed) -> Frame:
    return {
        "type": "tool_use",
        "id": fact.tool_call_id,
        "name": claude_name(fact.tool_name),
        "input": fact.input,
    }


def _user(content: str | list[Frame]) -> Frame:
    return {"type": "user", "message": {"role": "user", "content": content}}


def _tool_result(call_id: str, text: str, is_error: bool) -> Frame:
    result = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return _user([{**result, "is_error": is_error}])


def _api_retry(fact: facts.ErrorUpstream) -> Frame:
    return {
        "type": "system",
        "subtype": "api_retry",
        "attempt": fact.attempt,
        "max_retries": fact.max_attempts - 1,
        "retry_delay_ms": fact.retry_delay_ms,
        "error_status": fact.status,
        "error": "unknown" if fact.category is UNSET else fact.category,
    }


def _compact_boundary(fact: facts.ContextCompacted) -> Frame:
    metadata = {"trigger": "auto", "pre_tokens": fact.tokens_before}
    return {"type": "system", "subtype": "compact_boundary", "compact_metadata": metadata}
