"""Print mode's frames: translates facts to NDJSON frames. Does no I/O.

The `message` frame is the authoritative record of a turn; the short `tool_use` and `tool_result`
frames before it are progress. The `result` frame comes last, once.
"""

from collections import deque
from typing import Any, cast

import msgspec
from msgspec import UNSET

from batten.contract import facts
from batten.contract.cutting import cut
from batten.contract.facts.assistant import MessageBlock, Usage, added
from batten.contract.notes import Note, ThinkingPiece, ToolInputPiece
from batten.contract.outcomes import ENDINGS, Outcome, ending_of
from batten.protocols.notes import NoteOrder

Frame = dict[str, Any]

_MOST_DENIALS = 1000
"""A result lists only the latest ones."""
_MOST_EXECUTED_LATER = 200
_LONGEST_INPUT = 16_000
_LONGEST_VALUE = 2000

_BEGINNING = (
    facts.RunQueued,
    facts.RunStarted,
    facts.UserMessage,
    facts.UserAttachment,
    facts.ArtifactCreated,
)
"""Facts of a run that are stored before its first hook."""


class FrameOptions(msgspec.Struct, frozen=True):
    """Frames that are sent only on request."""

    partial_messages: bool = False
    hook_events: bool = False
    user_messages: bool = False


class StreamJson:
    """The frames of a session's runs, one run after the other. Feed it every fact once."""

    def __init__(self, session_id: str, wanted: FrameOptions | None = None) -> None:
        self._session_id = session_id
        self._wanted = wanted or FrameOptions()
        self._order = NoteOrder()
        self._hooks: dict[str, int] = {}
        self._user: Frame | None = None
        """The message that started the run, held until the session's start hooks were shown."""
        self._texts: dict[int, list[str]] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._calls: dict[str, Frame] = {}
        self._blocks: list[MessageBlock] = []
        """The complete blocks of an incomplete message."""
        self._message: Frame | None = None
        self._message_text = ""
        """The text of the last message; may be empty."""
        self._last_text = ""
        self._answer = ""
        self._structured: Any = UNSET
        self._tool_calls = 0
        self._turns = 0
        self._usage = Usage()
        self._inputs: dict[str, Any] = {}
        """The arguments of calls that have not ended."""
        self._denials: deque[Frame] = deque(maxlen=_MOST_DENIALS)
        self._executed_later: deque[Frame] = deque(maxlen=_MOST_EXECUTED_LATER)
        self._named = self._model = ""
        """The model of the run, and the one that answered last."""
        self.run_id = ""
        """The run that is shown; its result names it."""
        self._cost_micros = 0
        self._cost_unknown = False
        self.outcome: Outcome | None = None
        """The outcome of the last run; None before its terminal fact."""
        self._error = ""
        self._background: list[str] = []
        """Commands that were left running by calls of completed runs."""

    def user(self, text: str) -> list[Frame]:
        """Start a run with this message; returns its frame if requested."""
        self._begin()
        if not self._wanted.user_messages:
            return []
        self._user = {"type": "user", "content": [{"type": "text", "text": text}]}
        return [] if self._wanted.hook_events else self._user_frame()

    def note(self, note: Note, *, room: bool = True) -> list[Frame]:
        """A piece of an answer; without room it is dropped, with the rest of its block."""
        return [self._piece(ready) for ready in self._order.hold(note, room=room)]

    def feed(self, fact: facts.Fact) -> list[Frame]:
        frames = [] if _comes_before_user(fact) else self._user_frame()
        if not self._wanted.partial_messages:
            return frames + self._feed(fact)
        frames += [self._piece(note) for note in self._order.before(fact)]
        frames += self._feed(fact)
        frames += [self._piece(note) for note in self._order.after(fact)]
        return frames

    def _feed(self, fact: facts.Fact) -> list[Frame]:
        match fact:
            case facts.RunQueued():
                self._begin()
                self._model = self._named = f"{fact.provider}/{fact.model}"
            case facts.TurnStarted():
                self._model = self._named
                self._forget()
            case facts.PolicyModelRewrote():
                self._model = fact.to_model
            case facts.AssistantTextDelta():
                # The complete fact may cut a long text; its deltas never do.
                self._texts.setdefault(fact.block_index, []).append(fact.delta)
                if self._wanted.partial_messages:
                    delta = {"type": "text_delta", "text": fact.delta}
                    return [_delta(fact.block_index, delta)]
            case facts.ContextCompacted() if isinstance(fact.usage, Usage):
                self._count(fact.usage, fact.cost_micros_usd)
            case facts.CostCallUnfinished():
                self._count_unfinished(fact)
            case facts.AssistantTextComplete():
                if fact.sealed_artifact_id is not UNSET:
                    self._texts[fact.block_index] = [fact.text]  # as the model wrote it
                self._blocks.append(MessageBlock("text", fact.block_index))
            case facts.AssistantToolCallProposed():
                return [self._tool_use(fact)]
            case facts.AssistantRetracted():
                self._forget()
                return [_retracted(fact)]
            case facts.AssistantMessageComplete():
                self._complete(fact)
            case facts.ToolEnded():
                return [self._tool_result(fact.tool_call_id, fact.text, fact.is_error)]
            case facts.PolicyToolBlocked():
                self._deny(fact)
                return [self._tool_result(fact.tool_call_id, fact.text, True)]
            case facts.ErrorUpstream() if fact.retry_delay_ms is not UNSET:
                return [_api_retry(fact)]
            case facts.HookDispatched() | facts.HookCompleted():
                return self._hook(fact)
            case facts.WorkspaceChangedByCommand():
                self._note_executed_later(fact)
            case facts.TurnCompleted():
                return self._flush()
            case facts.AssistantFinalAnswer():
                self._answer = self._message_text
                self._structured = fact.structured_output
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                self._end(fact)
                return self._break_off() + self._flush()
            case _:
                pass
        return []

    def feed_child(self, fact: facts.Fact) -> None:
        """Count the turns, tokens, cost and denials of a child run; it has no frames."""
        match fact:
            case facts.AssistantMessageComplete():
                self._turns += 1
                self._count(fact.usage, fact.cost_micros_usd)
            case facts.AssistantToolCallProposed():
                self._inputs[fact.tool_call_id] = _input_of(fact)
            case facts.PolicyToolBlocked():
                self._deny(fact)
            case facts.WorkspaceChangedByCommand():
                self._note_executed_later(fact)
            case facts.ToolEnded():
                self._inputs.pop(fact.tool_call_id, None)
            case facts.ContextCompacted() if isinstance(fact.usage, Usage):
                self._count(fact.usage, fact.cost_micros_usd)
            case facts.CostCallUnfinished():
                self._count_unfinished(fact)
            case _:
                pass

    def _begin(self) -> None:
        """Forget the ending of an earlier run."""
        self.outcome, self._error = None, ""
        self._answer, self._structured = "", UNSET

    def fail(self, outcome: Outcome, message: str) -> list[Frame]:
        """Set an ending that has no fact: before the run began, or when the store failed.

        Returns the frames that precede it.
        """
        self.outcome = outcome
        self._error = message
        return self._user_frame() + self._break_off() + self._flush()

    def result(self, *, durable: bool = True, duration_ms: int = 0) -> Frame:
        """The last frame. `duration_ms` is the time of the whole invocation."""
        outcome = self.outcome or "internal"
        subtype = ENDINGS[outcome].subtype
        frame: Frame = {"type": "result", "subtype": subtype, "session_id": self._session_id}
        if self.run_id:
            frame["run_id"] = self.run_id
        frame["outcome"] = outcome
        frame["duration_ms"] = duration_ms
        if self._model:
            frame["model"] = self._model
        if subtype == "success":
            frame["result"] = self._answer
            if self._structured is not UNSET:
                frame["structured_output"] = self._structured
        else:
            if self._last_text.strip():
                frame["last_assistant_text"] = self._last_text
            frame["tool_calls_seen"] = self._tool_calls
            if subtype == "error":
                frame["error"] = self._error
        frame["total_cost_usd"] = self._cost_micros / 1e6
        if self._cost_unknown:
            frame["cost_unknown"] = True
        frame["turns"] = self._turns
        frame["total_input_tokens"] = self._usage.input_tokens
        frame["total_output_tokens"] = self._usage.output_tokens
        frame["total_cache_read_tokens"] = self._usage.cache_read_tokens
        frame["total_cache_write_tokens"] = self._usage.cache_write_tokens
        frame["permission_denials"] = list(self._denials)
        if self._executed_later:
            frame["executed_later"] = list(self._executed_later)
        if self._hooks:
            frame["hooks"] = self._hooks
        if self._background:
            frame["background"] = self._background
        if not durable:
            frame["durable"] = False
        return frame

    def _hook(self, fact: facts.HookDispatched | facts.HookCompleted) -> list[Frame]:
        """An asynchronous hook has two frames, at its start and at its end."""
        if isinstance(fact, facts.HookCompleted):
            if fact.handler.type != "observer":
                self._count_hook(fact)
        elif fact.pace == "sync":
            return []
        return [_hook_event(fact)] if self._wanted.hook_events else []

    def _count_hook(self, fact: facts.HookCompleted) -> None:
        """Count a hook. A denial by the rules is not the hook's; a failure with a reason denied."""
        failed = fact.failure is not UNSET
        by_failure = failed and fact.decision == "deny" and bool(fact.reason)
        counts = self._hooks or {"completed": 0, "denied": 0, "failed": 0}
        counts["completed"] += 1
        counts["denied"] += fact.router_decision == "deny" or by_failure
        counts["failed"] += failed
        self._hooks = counts

    def _tool_use(self, fact: facts.AssistantToolCallProposed) -> Frame:
        block = {
            "type": "tool_use",
            "id": fact.tool_call_id,
            "name": fact.tool_name,
            "input": _input_of(fact),
        }
        self._inputs[fact.tool_call_id] = block["input"]
        self._calls[fact.tool_call_id] = block
        index = 0 if fact.block_index is UNSET else fact.block_index
        self._blocks.append(MessageBlock("tool_call", index, tool_call_id=fact.tool_call_id))
        return block

    def _tool_result(self, call_id: str, output: str, is_error: bool) -> Frame:
        self._tool_calls += 1
        self._inputs.pop(call_id, None)
        return {
            "type": "tool_result",
            "tool_use_id": call_id,
            "is_error": is_error,
            "content": [{"type": "text", "text": output}],
        }

    def _deny(self, fact: facts.PolicyToolBlocked) -> None:
        denial: Frame = {
            "tool_name": fact.tool_name,
            "tool_use_id": fact.tool_call_id,
            "tool_input": _in_short(self._inputs.pop(fact.tool_call_id, {})),
            "reason": fact.reason,
        }
        if fact.allow_with is not UNSET:
            denial["allow_with"] = fact.allow_with
        self._denials.append(denial)

    def _note_executed_later(self, fact: facts.WorkspaceChangedByCommand) -> None:
        for file in fact.files:
            if file.executed_by is not UNSET:
                named: Frame = {"path": file.path, "change": file.change}
                self._executed_later.append({**named, "executed_by": file.executed_by})

    def _complete(self, fact: facts.AssistantMessageComplete) -> None:
        content = self._content(fact.blocks)
        text = "".join(str(block["text"]) for block in content if block["type"] == "text")
        self._message_text = text
        self._last_text = text if text.strip() else self._last_text
        self._message = {"type": "message", "role": "assistant", "content": content}
        self._forget()
        self._turns += 1
        self._count(fact.usage, fact.cost_micros_usd)

    def _break_off(self) -> list[Frame]:
        """A run ended inside a message: a frame with the complete parts."""
        text = "".join(piece for pieces in self._texts.values() for piece in pieces)
        self._last_text = text if text.strip() else self._last_text
        content = self._content(self._blocks)
        self._forget()
        return [{"type": "message", "role": "assistant", "content": content}] if content else []

    def _forget(self) -> None:
        """Start a new message."""
        self._texts.clear()
        self._thoughts.clear()
        self._calls.clear()
        self._blocks.clear()

    def _count(self, usage: Usage, cost_micros_usd: int | None) -> None:
        self._usage = added(self._usage, usage)
        self._cost_micros += cost_micros_usd or 0
        self._cost_unknown = self._cost_unknown or cost_micros_usd is None

    def _count_unfinished(self, fact: facts.CostCallUnfinished) -> None:
        self._count(fact.usage, fact.cost_micros_usd)
        self._cost_unknown = self._cost_unknown or fact.cost_unknown is True

    def _content(self, blocks: list[MessageBlock]) -> list[Frame]:
        return [frame for block in blocks if (frame := self._block(block)) is not None]

    def _block(self, block: MessageBlock) -> Frame | None:
        if block.kind == "tool_call":
            return self._calls.get(str(block.tool_call_id))
        pieces = self._texts if block.kind == "text" else self._thoughts
        text = "".join(pieces.get(block.block_index, ()))
        return {"type": block.kind, block.kind: text} if text else None

    def _piece(self, note: Note) -> Frame:
        match note:
            case ThinkingPiece():
                self._thoughts.setdefault(note.block_index, []).append(note.text)
                delta = {"type": "thinking_delta", "thinking": note.text}
                return _delta(note.block_index, delta)
            case ToolInputPiece():
                delta = {"type": "input_json_delta", "partial_json": note.text}
                return _delta(note.block_index, delta)
            case _:
                raise TypeError(f"no frame shows a {type(note).__name__}")

    def _user_frame(self) -> list[Frame]:
        user, self._user = self._user, None
        return [] if user is None else [user]

    def _flush(self) -> list[Frame]:
        message, self._message = self._message, None
        return [] if message is None else [message]

    def _end(self, fact: facts.RunFinished | facts.RunFailed | facts.RunCancelled) -> None:
        end = ending_of(fact)
        self.outcome = end.outcome
        self._inputs.clear()
        if isinstance(fact, facts.RunFailed):
            self._error = end.message
        elif isinstance(fact, facts.RunFinished) and fact.background is not UNSET:
            self._background += fact.background


def init_frame(**fields: Any) -> Frame:
    """The first frame of a run."""
    return {"type": "system", "subtype": "init", **fields}


def _comes_before_user(fact: facts.Fact) -> bool:
    """Whether a fact belongs to the beginning of the run, or to the start hooks of the session."""
    if isinstance(fact, (facts.HookDispatched, facts.HookCompleted)):
        return fact.hook_event == "SessionStart"
    return isinstance(fact, _BEGINNING)


def _input_of(fact: facts.AssistantToolCallProposed) -> Any:
    return fact.input.get("raw", "") if fact.unreadable is True else fact.input


def _in_short(given: Any) -> Any:
    """The arguments of a call; long ones are visibly cut. The call's own frames have them whole."""
    if len(msgspec.json.encode(given)) <= _LONGEST_INPUT:
        return given
    if not isinstance(given, dict):
        return cut(str(given), _LONGEST_VALUE)
    values = cast("dict[str, Any]", given)
    return {key: _value_in_short(value) for key, value in values.items()}


def _value_in_short(value: Any) -> Any:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return value if len(text) <= _LONGEST_VALUE else cut(text, _LONGEST_VALUE)


def _delta(index: int, delta: dict[str, str]) -> Frame:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _hook_event(fact: facts.HookDispatched | facts.HookCompleted) -> Frame:
    handler: dict[str, str] = {"type": fact.handler.type}
    if fact.handler.type != "observer":
        handler[fact.handler.type] = fact.handler.name
    frame: Frame = {
        "type": "hook_event",
        "hookEventName": fact.hook_event,
        "phase": "dispatch" if isinstance(fact, facts.HookDispatched) else "completion",
        "matcher": fact.matcher,
        "handler": handler,
    }
    if isinstance(fact, facts.HookCompleted):
        frame["router_decision"] = fact.router_decision
        if fact.permission_action is not UNSET:
            frame["permission_action"] = fact.permission_action
        frame["decision"] = fact.decision
        if fact.reason:
            frame["reason"] = fact.reason
        if fact.failure is not UNSET:
            frame["failure"] = fact.failure
        frame["duration_ms"] = fact.duration_ms
    if fact.tool_call_id is not UNSET:
        frame["tool_use_id"] = fact.tool_call_id
    if isinstance(fact, facts.HookCompleted) and fact.detail is not UNSET:
        decided = {"decision": fact.decision} if fact.hook_event == "PreToolUse" else {}
        frame["hookSpecificOutput"] = {**fact.detail, **decided}
    return frame


def _retracted(fact: facts.AssistantRetracted) -> Frame:
    """The pieces and `tool_use` frames of the message so far are void."""
    return {
        "type": "system",
        "subtype": "message_retracted",
        "tool_use_ids": fact.tool_call_ids,
        "reason": fact.reason,
    }


def _api_retry(fact: facts.ErrorUpstream) -> Frame:
    frame: Frame = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": fact.attempt,
        "max_retries": fact.max_attempts - 1,
        "retry_delay_ms": fact.retry_delay_ms,
    }
    if fact.status is not None:
        frame["error_status"] = fact.status
    frame["error_category"] = "other" if fact.category is UNSET else fact.category
    return frame
