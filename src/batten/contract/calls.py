"""One reading of a run's tool calls: facts in, values out. Pure, incremental, for every surface.

A call is proposed by the model, decided on, perhaps asked about, executed once or, if a client
retries it, several times, and it ends. The rules of that life are here and nowhere else:

- A retraction ends the calls that it names, and the answer's text so far is void.
- Arguments are the proposed ones until a hook changes them in the question about the call; those
  that it runs with are named by `tool.invoked`, or are the proposed ones.
- A denial is an end. A retry opens an ended call again, if it is still known.
- An id that is proposed again names a new call. What is open when the run ends is cut off.

Facts out of order, or about calls whose proposal was pruned, make a call with what they say; none
is an error. A protocol is a table over these values.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.contract import facts as f
from batten.contract.facts.approval import Decision
from batten.contract.facts.policy import Verdict
from batten.contract.outcomes import RunEnd, ending_of

CallStatus = Literal[
    "completed", "failed", "cancelled", "timed_out", "denied", "retracted", "cut_off"
]
"""`cut_off`: the run ended first, or another call took its id."""
_MOST_WHOLE = 16
"""Ended calls that are kept whole: a failed one may be tried again."""


class CallEnd(Struct, frozen=True):
    """How a call ended, or one attempt at it."""

    status: CallStatus
    summary: str = ""
    """One line for people; the reason of a call that did not run."""
    text: str = ""
    """The result as the model receives it."""
    code: str = ""
    """The kind of a failure: `outcome_unknown` if its worker was lost, `tool_error` if it completed
    and a tool server's answer is an error."""
    error: str = ""
    duration_ms: int = 0
    by: str = ""
    """The author of a denial."""

    @property
    def is_error(self) -> bool:
        return self.status != "completed" or bool(self.code)

    @property
    def is_by_answer(self) -> bool:
        """Whether an answer to a question denied it, and not a rule, a hook or a mode."""
        return self.by.startswith("resolver:")


class Call(Struct, frozen=True, kw_only=True):
    """A tool call as its facts tell it so far."""

    id: str
    name: str
    """The tool as the model named it."""
    tool: str
    """The tool that the name stands for, as soon as a fact says so."""
    proposed: dict[str, Any] | None = None
    """The model's arguments; None if its proposal is not known."""
    changed: dict[str, Any] | None = None
    """The arguments that a hook or an answer gave it instead."""
    is_unreadable: bool = False
    """The model's arguments are not a JSON object."""
    sequence: int = -1
    """The place of its proposal."""
    verdict: Verdict | Literal[""] = ""
    decided_by: str = ""
    """The author of the verdict: a rule, mode, hook, grant or resolver."""
    approval_id: str = ""
    answer: Decision | Literal["timed_out", ""] = ""
    """The answer to its approval."""
    attempt: int = 0
    """How often it was executed, this time included; 0 before the first."""
    end: CallEnd | None = None
    """None while it is open."""
    ends: int = 0
    """How often it ended: a call that is tried again is open although it ended before."""

    @property
    def input(self) -> dict[str, Any] | None:
        """The arguments it runs with, as far as they are known."""
        return self.proposed if self.changed is None else self.changed

    @property
    def begun_input(self) -> dict[str, Any]:
        """The model's arguments until it begins, then those that it runs with."""
        return (self.input if self.attempt else self.proposed) or {}

    @property
    def arguments(self) -> dict[str, Any]:
        """The same; empty if they are not known, or are not an object."""
        shown = {} if self.is_unreadable else self.proposed
        return (shown if self.changed is None else self.changed) or {}


class CallProposed(Struct, frozen=True):
    call: Call
    replaced: Call | None = None
    """An open call of the same id, which ends with this."""


class CallChanged(Struct, frozen=True):
    """It was decided on, asked about or answered."""

    call: Call


class CallStarted(Struct, frozen=True):
    """An attempt began: from here on it may have an effect."""

    call: Call


class CallEnded(Struct, frozen=True):
    call: Call
    end: CallEnd


class AnswerRetracted(Struct, frozen=True):
    """The answer of the turn is void; its calls ended before a verdict."""

    reason: str
    calls: tuple[Call, ...]


class TurnAnswered(Struct, frozen=True):
    """The model's message is whole; its calls come next."""

    message: f.AssistantMessageComplete
    text: str
    """The whole text, if the fold collects turns."""
    calls: tuple[Call, ...]
    """The same: its calls in order, as they were proposed."""


class RunEnded(Struct, frozen=True):
    """The run is over."""

    end: RunEnd
    calls: tuple[Call, ...]
    """The calls that it cut off."""
    duration_ms: int | UnsetType = UNSET


Change = (
    CallProposed | CallChanged | CallStarted | CallEnded | AnswerRetracted | TurnAnswered | RunEnded
)


class CallFold:
    """The calls of a run, or of a session's runs one after the other. Take every fact in order."""

    def __init__(self, kept: int = 0, *, turns: bool = False) -> None:
        """`kept`: ended calls that stay known, the latest ones; of all but a few of them without
        arguments and results. `turns`: collect the texts and calls of each.
        """
        self._most = kept
        self._has_turns = turns
        self._open: dict[str, Call] = {}
        self._ended: dict[str, Call] = {}
        """The latest ones, whole."""
        self._known: dict[str, Call] = {}
        """Earlier ones, without arguments and results."""
        self._asked: dict[str, str] = {}
        """The call of each approval that has no answer."""
        self._texts: list[str] = []
        self._calls: list[Call] = []
        """Those of the present turn."""

    @property
    def open(self) -> Mapping[str, Call]:
        """Calls that have not ended, by id, in the order in which they were opened."""
        return self._open

    def get(self, call_id: str) -> Call | None:
        """A call that is open, or that ended and is kept."""
        return self._open.get(call_id) or self._ended.get(call_id) or self._known.get(call_id)

    def take(self, fact: f.Fact, sequence: int = -1) -> Change | None:
        """What a fact changes; None if it is about no call. `sequence` is its place in the run."""
        taker = self._TAKERS.get(type(fact))
        return None if taker is None else taker(self, fact, sequence)

    def _put(self, call: Call) -> Call:
        self._open[call.id] = call
        return call

    def _opened(self, call_id: str, name: str) -> Call:
        """The open call: an ended one is open again, an unknown one is made."""
        call = self._open.get(call_id)
        if call is not None:
            return call
        ended = self._forget(call_id)
        if ended is None:
            return Call(id=call_id, name=name, tool=name)
        return replace(ended, verdict="", decided_by="", approval_id="", answer="", end=None)

    def _forget(self, call_id: str) -> Call | None:
        """Remove a call that ended."""
        return self._ended.pop(call_id, None) or self._known.pop(call_id, None)

    def _close(self, call: Call, end: CallEnd, tool: str = "") -> Call:
        call = replace(call, tool=tool or call.tool, end=end, ends=call.ends + 1)
        self._open.pop(call.id, None)
        if self._most:
            self._forget(call.id)
            self._ended[call.id] = call
            self._shed()
        return call

    def _shed(self) -> None:
        """Keep no more ended calls, and no more arguments of them, than are allowed."""
        if len(self._ended) > min(self._most, _MOST_WHOLE):
            call = self._ended.pop(next(iter(self._ended)))
            end = None if call.end is None else replace(call.end, text="")
            self._known[call.id] = replace(call, proposed=None, changed=None, end=end)
        if len(self._ended) + len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def _proposed(self, fact: f.AssistantToolCallProposed, sequence: int) -> CallProposed:
        call_id = fact.tool_call_id
        replaced = self._open.pop(call_id, None)
        if replaced is not None:
            replaced = replace(replaced, end=_CUT_OFF, ends=replaced.ends + 1)
        self._forget(call_id)
        call = Call(
            id=call_id,
            name=fact.tool_name,
            tool=fact.tool_name,
            proposed=fact.input,
            is_unreadable=fact.unreadable is True,
            sequence=sequence,
        )
        if self._has_turns:
            self._calls.append(call)
        return CallProposed(self._put(call), replaced)

    def _decided(self, fact: f.PolicyToolDecided, sequence: int) -> CallChanged:
        call = self._opened(fact.tool_call_id, fact.tool_name)
        call = replace(call, tool=fact.tool_name, verdict=fact.verdict, decided_by=fact.decided_by)
        return CallChanged(self._put(call))

    def _approval(self, fact: f.ApprovalRequested, sequence: int) -> CallChanged:
        call = self._opened(fact.tool_call_id, fact.kind)
        changed = call.changed if fact.input is UNSET else fact.input
        self._asked[fact.approval_id] = call.id
        call = replace(call, approval_id=fact.approval_id, answer="", changed=changed)
        return CallChanged(self._put(call))

    def _answer(
        self, fact: f.ApprovalResolved | f.ApprovalTimedOut, sequence: int
    ) -> CallChanged | None:
        call = self.get(self._asked.pop(fact.approval_id, ""))
        if call is None:
            return None
        answer = fact.decision if isinstance(fact, f.ApprovalResolved) else "timed_out"
        return CallChanged(self._put(replace(call, answer=answer)) if call.end is None else call)

    def _started(self, fact: f.ToolInvoked, sequence: int) -> CallStarted:
        call = self._opened(fact.tool_call_id, fact.tool_name)
        call = replace(
            call,
            tool=fact.tool_name,
            changed=None if fact.input is UNSET else fact.input,
            attempt=1 if fact.attempt is UNSET else fact.attempt,
        )
        return CallStarted(self._put(call))

    def _finished(self, fact: f.ToolEnded | f.PolicyToolBlocked, sequence: int) -> CallEnded:
        end = end_of(fact)
        call = self._opened(fact.tool_call_id, fact.tool_name)
        return CallEnded(self._close(call, end, fact.tool_name), end)

    def _retracted(self, fact: f.AssistantRetracted, sequence: int) -> AnswerRetracted:
        self._forget_turn()
        found = [self._open.pop(one, None) for one in fact.tool_call_ids]
        end = CallEnd("retracted", fact.reason)
        void = [replace(one, end=end, ends=one.ends + 1) for one in found if one is not None]
        return AnswerRetracted(fact.reason, tuple(void))

    def _forget_turn(self) -> None:
        self._texts, self._calls = [], []

    def _turn(self, fact: f.TurnStarted, sequence: int) -> None:
        self._forget_turn()

    def _text(self, fact: f.AssistantTextComplete, sequence: int) -> None:
        if self._has_turns:
            self._texts.append(fact.text)

    def _answered(self, fact: f.AssistantMessageComplete, sequence: int) -> TurnAnswered:
        answered = TurnAnswered(fact, "".join(self._texts), tuple(self._calls))
        self._forget_turn()
        return answered

    def _over(self, fact: f.RunFinished | f.RunFailed | f.RunCancelled, sequence: int) -> RunEnded:
        left = [self._close(call, _CUT_OFF) for call in tuple(self._open.values())]
        self._asked.clear()
        self._forget_turn()
        return RunEnded(ending_of(fact), tuple(left), fact.duration_ms)

    _TAKERS: ClassVar[dict[type[f.Fact], "_Taker"]] = {
        f.TurnStarted: _turn,
        f.AssistantTextComplete: _text,
        f.AssistantToolCallProposed: _proposed,
        f.AssistantRetracted: _retracted,
        f.AssistantMessageComplete: _answered,
        f.PolicyToolDecided: _decided,
        f.PolicyToolBlocked: _finished,
        f.ApprovalRequested: _approval,
        f.ApprovalResolved: _answer,
        f.ApprovalTimedOut: _answer,
        f.ToolInvoked: _started,
        f.ToolCompleted: _finished,
        f.ToolFailed: _finished,
        f.ToolCancelled: _finished,
        f.ToolTimedOut: _finished,
        f.RunFinished: _over,
        f.RunFailed: _over,
        f.RunCancelled: _over,
    }


_Taker: TypeAlias = Callable[[CallFold, Any, int], Change | None]
_CUT_OFF = CallEnd("cut_off", "the run ended first")
_STATUSES: dict[type[f.Fact], CallStatus] = {
    f.ToolCompleted: "completed",
    f.ToolFailed: "failed",
    f.ToolCancelled: "cancelled",
    f.ToolTimedOut: "timed_out",
}


def end_of(fact: f.ToolEnded | f.PolicyToolBlocked) -> CallEnd:
    """The end that a fact gives its call."""
    if isinstance(fact, f.PolicyToolBlocked):
        by = fact.policy_id if isinstance(fact.policy_id, str) else ""
        return CallEnd("denied", fact.reason, fact.text, by=by)
    status = _STATUSES.get(type(fact), "failed")
    error, code = getattr(fact, "error", UNSET), getattr(fact, "error_kind", UNSET)
    if status == "completed" and fact.is_error:
        code = "tool_error"
    return CallEnd(
        status,
        fact.summary,
        fact.text,
        code if isinstance(code, str) else "",
        error if isinstance(error, str) else "",
        fact.duration_ms,
    )
