"""The tool calls of a run, as far as their events tell of them: no whole arguments or outputs."""

from hashlib import sha256
from urllib.parse import urlsplit

from batten.contract.calls import Call, CallEnd, CallFold
from batten.sinks.bus import payloads

MUTATES = frozenset(("shell", "edit", "multi_edit", "file_write", "memory"))
RISKS = {"shell": "HIGH", "edit": "MEDIUM", "multi_edit": "MEDIUM", "file_write": "MEDIUM"}
"""Kinds of tools; all others have a low risk."""
_LONGEST = 200
"""Characters of a summary."""
_MOST_ENDED = 256
"""Calls that are remembered after their end, for reports about them."""


class KnownCalls(CallFold):
    """The calls of one run whose proposals are known, in the words of the catalogue."""

    def __init__(self, run_id: str) -> None:
        super().__init__(_MOST_ENDED)
        self._run = run_id.partition("_")[2]

    def known(self, tool_call_id: str) -> Call | None:
        call = self.get(tool_call_id)
        return None if call is None or call.sequence < 0 else call

    def step(self, tool_call_id: str) -> str | None:
        """The id of the step: the place of its proposal, never the call's own id."""
        call = self.known(tool_call_id)
        return None if call is None else f"step_{self._run}_{call.sequence}"

    def execution(self, tool_call_id: str) -> str | None:
        """The id of the last execution: each attempt has one of its own."""
        call = self.known(tool_call_id)
        if call is None:
            return None
        first = f"exec_{self._run}_{call.sequence}"
        return first if call.attempt <= 1 else f"{first}_{call.attempt}"


def how_it_ended(end: CallEnd) -> tuple[payloads.ToolStatus, str | None, str | None]:
    """The status of a call, with the code and the text of its error if it failed."""
    if not end.is_error:
        return "SUCCEEDED", None, None
    status: payloads.ToolStatus = "CANCELLED" if end.status == "cancelled" else "FAILED"
    return status, end.code or None, cut_short(end.error) or None


def left_workspace(
    tool: str, call: Call | None, at: str, root: str, policy: str | None, why: str | None
) -> payloads.Data:
    """The data of a sandbox violation."""
    given = {} if call is None else call.begun_input
    path = next((given[name] for name in ("file_path", "path", "cwd") if given.get(name)), None)
    return payloads.sandbox_violation(
        tool,
        summary(call) if call else tool,
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
    url = str(call.begun_input.get("url", "")) if call else ""
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
    given = call.begun_input
    statement, scope = str(given.get("content", "")), str(given.get("scope", "project"))
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


def summary(call: Call) -> str:
    """A line about a call: its command, path, address or pattern, cut short."""
    given = call.begun_input
    for name in ("command", "file_path", "path", "url", "pattern", "query", "name"):
        value = given.get(name)
        if isinstance(value, str) and value.strip():
            return cut_short(value)
    return call.name


def cut_short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
