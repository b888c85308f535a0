"""The tool calls of a run, as far as their events tell of them: no whole arguments or outputs."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from batten.contract import facts
from batten.contract.facts.tool import ToolEnded
from batten.sinks.bus import payloads

MUTATES = frozenset(("shell", "edit", "multi_edit", "file_write", "memory"))
RISKS = {"shell": "HIGH", "edit": "MEDIUM", "multi_edit": "MEDIUM", "file_write": "MEDIUM"}
"""Kinds of tools; all others have a low risk."""
TOOL_ERROR = "tool_error"
"""The code of an error that a tool server answered with."""
_LONGEST = 200
"""Characters of a summary."""
_MOST_WHOLE = 16
"""Calls that are remembered whole after their end: one that failed may be tried again."""
_MOST_ENDED = 256
"""Calls that are remembered after their end, for reports about them."""


class Call(Struct):
    """A tool call, as far as it is known."""

    name: str
    step: int
    """The sequence of its proposal."""
    summary: str
    decided_by: str = ""
    approval_id: str | None = None
    answer: payloads.DecisionMode | None = None
    """The answer to its approval. The verdict that follows from it is no event of its own."""
    input: Mapping[str, Any] = {}
    attempt: int = 1


class Calls:
    """Calls of one run by their ids: open ones, and those that ended last."""

    def __init__(self, run_id: str) -> None:
        self._run = run_id.partition("_")[2]
        self._open: dict[str, Call] = {}
        self._whole: dict[str, Call] = {}
        self._ended: dict[str, Call] = {}

    def propose(self, fact: facts.AssistantToolCallProposed, sequence: int) -> None:
        summary = _summary(fact.tool_name, fact.input)
        self._open[fact.tool_call_id] = Call(fact.tool_name, sequence, summary, input=fact.input)

    def change(self, tool_call_id: str, arguments: Mapping[str, Any]) -> None:
        """Take the arguments that a hook or an answer gave it instead of the proposed ones."""
        if call := self._open.get(tool_call_id):
            call.input, call.summary = arguments, _summary(call.name, arguments)

    def begin(self, tool_call_id: str, attempt: int) -> None:
        """The call is executed; it is open again if it ended and is tried once more."""
        self.again(tool_call_id)
        if call := self._open.get(tool_call_id):
            call.attempt = attempt

    def again(self, tool_call_id: str) -> Call | None:
        """The call, open again if it ended and is tried once more."""
        ended = self._whole.pop(tool_call_id, None)
        if ended is not None and tool_call_id not in self._open:
            summary = _summary(ended.name, ended.input)
            self._open[tool_call_id] = Call(
                ended.name, ended.step, summary, input=ended.input, attempt=ended.attempt
            )
        return self._open.get(tool_call_id)

    def open(self, tool_call_id: str) -> Call | None:
        return self._open.get(tool_call_id)

    def known(self, tool_call_id: str) -> Call | None:
        """An open call, or one that ended a while ago."""
        return self._open.get(tool_call_id) or self._ended.get(tool_call_id)

    def end(self, tool_call_id: str) -> Call | None:
        call = self._open.pop(tool_call_id, None)
        if call is not None:
            if len(self._ended) >= _MOST_ENDED:
                del self._ended[next(iter(self._ended))]
            self._ended[tool_call_id] = Call(call.name, call.step, "", attempt=call.attempt)
            if len(self._whole) >= _MOST_WHOLE:
                del self._whole[next(iter(self._whole))]
            self._whole[tool_call_id] = call
        return call

    def cut_off(self) -> list[str]:
        """Calls that were decided on and never began."""
        return [key for key, one in self._open.items() if one.decided_by and key not in self._ended]

    def step(self, tool_call_id: str) -> str | None:
        """The id of the step: the place of its proposal, never the call's own id."""
        call = self.known(tool_call_id)
        return None if call is None else f"step_{self._run}_{call.step}"

    def execution(self, tool_call_id: str) -> str | None:
        """The id of the last execution: each attempt has one of its own."""
        call = self.known(tool_call_id)
        if call is None:
            return None
        first = f"exec_{self._run}_{call.step}"
        return first if call.attempt == 1 else f"{first}_{call.attempt}"

    def safe_arguments(self, tool_call_id: str) -> dict[str, str] | None:
        call = self.open(tool_call_id)
        return {"command_summary": call.summary} if call and call.summary else None


def how_it_ended(
    fact: ToolEnded,
) -> tuple[payloads.ToolStatus, str | None, str | None]:
    """The status of a call, with the code and the text of its error if it failed."""
    problem = getattr(fact, "error", UNSET)
    text = cut_short(problem) or None if isinstance(problem, str) else None
    if isinstance(fact, facts.ToolCompleted):
        # A tool server answered, and its answer is an error.
        return ("SUCCEEDED", None, None) if fact.error is UNSET else ("FAILED", TOOL_ERROR, text)
    if isinstance(fact, facts.ToolCancelled):
        return "CANCELLED", None, text
    kind = getattr(fact, "error_kind", UNSET)
    return "FAILED", kind if isinstance(kind, str) else None, text


def left_workspace(
    tool: str, call: Call | None, at: str, root: str, policy: str | None, why: str | None
) -> payloads.Data:
    """The data of a sandbox violation."""
    given: Mapping[str, Any] = {} if call is None else call.input
    path = next((given[name] for name in ("file_path", "path", "cwd") if given.get(name)), None)
    return payloads.sandbox_violation(
        tool,
        call.summary if call else tool,
        at,
        policy_id=policy,
        workspace_root=root or None,
        attempted_path=path if isinstance(path, str) else None,
        reason=why,
    )


def refused_address(
    tool: str, call: Call | None, at: str, rule: str | None, why: str | None
) -> payloads.Data:
    """The data of a firewall's block."""
    url = str(call.input.get("url", "")) if call else ""
    try:
        parts = urlsplit(url)
        host, port, scheme = parts.hostname or "", parts.port, parts.scheme
    except ValueError:
        host, port, scheme = "", None, ""
    return payloads.firewall_block(
        tool,
        host or tool,
        at,
        rule_id=rule,
        protocol=scheme or None,
        port=port or {"https": 443, "http": 80}.get(scheme),
        reason=why,
    )


def learned(
    call: Call, tool_call_id: str, execution: str | None, at: str, workspace: str
) -> payloads.Data:
    """The data of a memory that was saved. The same statement has the same id in every session."""
    statement = str(call.input.get("content", ""))
    scope = str(call.input.get("scope", "project"))
    digest = sha256(f"{workspace}\0{scope}\0{statement}".encode()).hexdigest()
    return payloads.learned_context(
        f"learn_{digest[:32]}",
        statement,
        f"memory.{scope}",
        confidence_score=0.5,
        confidence_reason="the agent chose to remember it; nobody has checked it",
        evidence=[{"source": "tool_call", "source_id": tool_call_id}],
        at=at,
        subject_key=workspace or None,
        tool_call_id=tool_call_id,
        tool_execution_id=execution,
    )


def _summary(tool: str, arguments: Mapping[str, Any]) -> str:
    """A line about a call: its command, path, address or pattern, cut short."""
    for name in ("command", "file_path", "path", "url", "pattern", "query", "name"):
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            return cut_short(value)
    return tool


def cut_short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
