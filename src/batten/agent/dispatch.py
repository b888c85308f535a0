"""The only path from a model's wish to an effect: decide, record, run, record.

`tool.invoked` is awaited before the tool starts: an effect begins with that commit,
which the journal refuses once a cancel is requested or somebody else holds the run.
"""

import asyncio
import time
from collections import Counter
from typing import Any

from msgspec import UNSET

from batten.agent.permissions import Decision, decide
from batten.agent.rig import Question, Rig
from batten.agent.settings import RunSettings
from batten.contract.conversation import ToolCall
from batten.contract.errors import BattenError, CallerError, JournalError
from batten.contract.facts import (
    PolicyToolBlocked,
    PolicyToolDecided,
    ToolCancelled,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    ToolTimedOut,
)
from batten.contract.facts.policy import Verdict
from batten.contract.facts.tool import ToolKind
from batten.journal.recorder import Recorder
from batten.tools.aliases import canonical
from batten.tools.context import CallContext
from batten.tools.contract import Ending, Tool, ToolOutput
from batten.tools.registry import Toolbox
from batten.tools.told import told

_TERMINALS: dict[Ending, type[ToolCompleted | ToolFailed | ToolCancelled | ToolTimedOut]] = {
    "completed": ToolCompleted,
    "failed": ToolFailed,
    "cancelled": ToolCancelled,
    "timed_out": ToolTimedOut,
}


class Dispatch:
    """Runs the calls of one run, one after the other, in the order the model gave them."""

    def __init__(
        self, rig: Rig, recorder: Recorder, settings: RunSettings, toolbox: Toolbox
    ) -> None:
        self._rig = rig
        self._recorder = recorder
        self._settings = settings
        self._toolbox = toolbox
        self._uses: Counter[str] = Counter()
        self.calls_ended = 0
        self.children_ended = 0
        self.left_running: list[str] = []

    async def run(self, turn: int, call: ToolCall) -> None:
        """Bring one call to its end. Only cancellation and a failing journal get out of here."""
        self._uses[call.id] += 1
        tool = self._toolbox.find(call.name)
        if tool is None:
            await self._fail(turn, call, "custom", self._toolbox.unknown(call.name), "unknown_tool")
            return
        try:
            if call.raw is not None:
                raise CallerError(f"Invalid JSON arguments: {self._clean(call.raw)[:500]}")
            arguments = self._toolbox.arguments(tool, call.input)
        except CallerError as error:
            await self._fail(turn, call, tool.kind, f"Error: {error}", "invalid_arguments")
            return
        decision = await self._decide(tool, call, arguments)
        if decision.verdict == "allow":
            await self._execute(turn, tool, call, arguments, decision)
        else:
            self._block(tool, call, decision)
        self.calls_ended += 1

    async def _decide(self, tool: Tool, call: ToolCall, arguments: dict[str, Any]) -> Decision:
        decision = decide(
            tool,
            arguments,
            rules=self._settings.rules,
            mode=self._settings.mode,
            workspace=self._rig.workspace_path,
        )
        if decision.verdict != "ask":
            return decision
        self._record_decision(tool.spec.name, call, decision)
        answer = await self._rig.requests.ask(
            self._recorder,
            Question(
                request_class="approval",
                tool_call_id=call.id,
                tool_name=tool.spec.name,
                summary=self._clean(tool.subject(arguments))[:500] or tool.spec.name,
                reason=decision.reason,
                detail={"tool": tool.spec.name, "arguments": arguments},
            ),
        )
        verdict: Verdict = "allow" if answer.granted else "deny"
        return Decision(verdict, answer.text or decision.reason, f"resolver:{answer.by}")

    async def _execute(
        self,
        turn: int,
        tool: Tool,
        call: ToolCall,
        arguments: dict[str, Any],
        decision: Decision,
    ) -> None:
        self._record_decision(tool.spec.name, call, decision)
        await self._recorder.record(self._invoked(turn, tool, call))
        context = CallContext(self._recorder, call.id, turn)
        started = time.monotonic()
        try:
            output = await tool.run(arguments, context)
        except asyncio.CancelledError:
            cancelled = ToolOutput(text="Error: Aborted", ending="cancelled", summary="cancelled")
            self._end(tool, call, cancelled, started)
            raise
        except JournalError:  # nothing more can be promised, whatever the tool did
            raise
        except BattenError as error:
            output = ToolOutput(text=f"Error: {error}", ending="failed", error_kind=error.code)
        except Exception as error:  # a tool may be anybody's code; its bug is the model's to see
            text = f"Error: {type(error).__name__}: {error}"
            output = ToolOutput(text=text, ending="failed", error_kind="tool_raised")
        self._end(tool, call, output, started)
        self.children_ended += output.child_run_id is not None

    def _clean(self, text: str) -> str:
        """Without secrets, before it is cut: half of one would not be found."""
        return self._recorder.redactor.text(text)

    def _record_decision(self, name: str, call: ToolCall, decision: Decision) -> None:
        self._recorder.record(
            PolicyToolDecided(
                tool_call_id=call.id,
                tool_name=name,
                verdict=decision.verdict,
                reason=decision.reason,
                decided_by=decision.decided_by,
            )
        )

    def _block(self, tool: Tool, call: ToolCall, decision: Decision) -> None:
        self._record_decision(tool.spec.name, call, decision)
        server, name = _mcp(tool)
        self._recorder.record(
            PolicyToolBlocked(
                tool_call_id=call.id,
                tool_name=tool.spec.name,
                reason=decision.reason,
                policy_id=decision.decided_by,
                kind=tool.kind,
                mcp_server=server,
                mcp_tool=name,
                result="blocked",
                output=f"Error: Permission denied: {decision.reason}",
            )
        )

    def _invoked(self, turn: int, tool: Tool, call: ToolCall) -> ToolInvoked:
        server, name = _mcp(tool)
        return ToolInvoked(
            tool_call_id=call.id,
            tool_name=tool.spec.name,
            kind=tool.kind,
            turn_index=turn,
            attempt=self._attempt(call),
            mcp_server=server,
            mcp_tool=name,
        )

    def _attempt(self, call: ToolCall) -> Any:
        """Which use of its id a call is; unset for the first."""
        uses = self._uses[call.id]
        return uses if uses > 1 else UNSET

    def _end(self, tool: Tool, call: ToolCall, output: ToolOutput, started: float) -> None:
        self.left_running += output.left_running
        text, artifact_id = told(self._recorder, call.id, output)
        text = self._clean(text)
        server, name = _mcp(tool)
        images = [
            self._recorder.artifact(
                "image",
                image.data,
                mime_type=image.mime,
                summary="",
                tool_call_id=call.id,
                remember=True,
            )
            for image in output.images
        ]
        common: dict[str, Any] = {
            "tool_call_id": call.id,
            "tool_name": tool.spec.name,
            "kind": tool.kind,
            "duration_ms": round((time.monotonic() - started) * 1000),
            "summary": self._clean(output.summary or text.strip().partition("\n")[0])[:200],
            "result_artifact_id": artifact_id or UNSET,
            "output": text,
            "attempt": self._attempt(call),
            "mcp_server": server,
            "mcp_tool": name,
            "result": output.mcp_result or UNSET,
            "image_artifact_ids": images or UNSET,
        }
        if output.ending != "completed":
            common["error"] = common["summary"]
        elif output.mcp_result == "tool_error":
            common["error"] = text[:500]
        if output.ending == "failed":
            common["error_kind"] = output.error_kind or UNSET
        if output.ending == "timed_out":
            common["after_ms"] = common["duration_ms"]
        self._recorder.record(_TERMINALS[output.ending](**common))

    async def _fail(
        self, turn: int, call: ToolCall, kind: ToolKind, text: str, error_kind: str
    ) -> None:
        """A call that names no tool or does not fit it: told to the model, nothing is run."""
        name, text = canonical(call.name), self._clean(text)
        self._record_decision(name, call, Decision("allow", "there is nothing to run", "toolbox"))
        await self._recorder.record(
            ToolInvoked(tool_call_id=call.id, tool_name=name, kind=kind, turn_index=turn),
            ToolFailed(
                tool_call_id=call.id,
                tool_name=name,
                kind=kind,
                duration_ms=0,
                summary=text.partition("\n")[0][:200],
                output=text,
                error=text[:500],
                error_kind=error_kind,
            ),
        )
        self.calls_ended += 1


def _mcp(tool: Tool) -> tuple[Any, Any]:
    """Server and tool name of an MCP tool; unset for every other kind."""
    if tool.kind != "mcp":
        return UNSET, UNSET
    _, server, name = tool.spec.name.split("__", 2)
    return server, name
