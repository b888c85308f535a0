"""The points in a run at which hooks run, and the payload at each.

The callers act on the verdicts: the gate, the loop, the execution.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from batten.agent.halt import Halt
from batten.agent.hooks.dispatch import NOTHING, HookRun, HookVerdict
from batten.agent.hooks.hooks import Hooks
from batten.agent.hooks.matching import HookedCall
from batten.agent.live_settings import LiveSettings
from batten.agent.rules.verdict import Decision
from batten.agent.run_context import Changed
from batten.contract import facts
from batten.contract.facts.tool import Todo
from batten.journal.contract import Stored
from batten.journal.recorder import Recorder, redact_fact
from batten.settings.contract import HookEvent

LAST_WORDS_S = 5.0
"""Time for the last hooks of a run or a session, all of them together."""
_LONGEST_SHOWN = 2000

Judge = Callable[[dict[str, Any]], Decision]
Check = Callable[[dict[str, Any]], dict[str, Any]]
Invoked = Callable[[HookedCall], facts.ToolInvoked]
"""The fact with which a call would begin, with the arguments it has by then."""


class HookOrigin(Struct, frozen=True, kw_only=True):
    """The payload fields that all events of a run share."""

    session_id: str
    cwd: str
    agent_id: str = ""
    """The child run it happens in; empty in the session's own runs."""


class HookPoints:
    """The hooks of one run, or of a session between its runs."""

    def __init__(
        self, hooks: Hooks, recorder: Recorder, live_settings: LiveSettings, place: HookOrigin
    ) -> None:
        self._hooks = hooks
        self._recorder = recorder
        self._live_settings = live_settings
        self._place = place

    @property
    def in_child(self) -> bool:
        return bool(self._place.agent_id)

    async def session_started(self, source: str, model: str) -> str:
        """Returns the text that hooks add to the system prompt."""
        if not self._hooks.listens("SessionStart"):
            return ""
        provider, _, name = model.partition("/")
        detail = {**self._where(), "provider": provider, "model": name, "source": source}
        fields = {"source": source, "model": name}
        told = self._told("SessionStart", 0, fields, detail, names=(source,))
        return (await self._heard(told)).context

    async def session_ended(
        self, reason: str, totals: dict[str, int], within_s: float = LAST_WORDS_S
    ) -> None:
        if self._hooks.listens("SessionEnd"):
            detail = {"session_id": self._place.session_id, **totals}
            fields = {"reason": reason, **totals}
            told = self._told("SessionEnd", 0, fields, detail, names=(reason,))
            await self._hooks.tell_at_once(self._recorder, told, within_s)

    async def prompt_submitted(self, prompt: str) -> HookVerdict:
        if not self._hooks.listens("UserPromptSubmit"):
            return NOTHING
        # Redacted before it is cut: half a secret would not be found.
        shown = self._recorder.redactor.authored.text(prompt)[:_LONGEST_SHOWN]
        detail = {"session_id": self._place.session_id, "turn_index": 0, "prompt": shown}
        return await self._heard(self._told("UserPromptSubmit", 0, {"prompt": prompt}, detail))

    async def before_tool(
        self,
        turn: int,
        call: HookedCall,
        invoked: Invoked,
        judge: Judge,
        check: Check,
        *,
        managed_only: bool = False,
    ) -> HookVerdict:
        """`managed_only`: only the machine owner's hooks, again, on a call that was changed after
        they saw it.
        """
        if not self._hooks.listens("PreToolUse"):
            return NOTHING

        def shape(now: HookedCall) -> dict[str, Any]:
            fact = redact_fact(invoked(now), self._recorder.redactor)
            return {**_shape(now), "fact": _fact(fact)}

        told = self._told("PreToolUse", turn, {}, _detail(turn, call), call=call)
        told = msgspec.structs.replace(
            told, shape=shape, judge=judge, check=check, managed_only=managed_only
        )
        return await self._heard(told, stops=False)

    async def after_tool(
        self, turn: int, call: HookedCall, ended: facts.Fact, receipt: Awaitable[list[Stored]]
    ) -> None:
        """`ended` is the call's terminal fact; its hooks get the envelope that was stored."""
        output = getattr(ended, "output", "")
        error = getattr(ended, "error", msgspec.UNSET)
        failed = ended.type != "tool.completed"
        event: HookEvent = "PostToolUseFailure" if failed else "PostToolUse"
        if not self._hooks.listens(event):
            return
        (stored,) = await receipt
        fields: dict[str, Any] = {
            "tool_response": output,
            "fact": msgspec.json.decode(stored.body),
        }
        if failed:
            fields |= {"error": error, "is_interrupt": ended.type == "tool.cancelled"}
        detail = {**_detail(turn, call), "is_error": failed}
        await self._heard(self._told(event, turn, fields, detail, call=call))

    async def permission_requested(
        self, turn: int, call: HookedCall, decision: Decision, judge: Judge, check: Check
    ) -> HookVerdict:
        if not self._hooks.listens("PermissionRequest"):
            return NOTHING
        fields: dict[str, Any] = {"reason": decision.reason, "permission_suggestions": []}
        told = self._told("PermissionRequest", turn, fields, _permission(call, decision), call=call)
        told = msgspec.structs.replace(told, judge=judge, check=check)
        return await self._heard(told, stops=False)

    async def permission_denied(
        self, turn: int, call: HookedCall, decision: Decision, blocked: facts.Fact
    ) -> None:
        if self._hooks.listens("PermissionDenied"):
            fields = {"reason": decision.reason, "fact": _fact(blocked)}
            detail = _permission(call, decision)
            await self._heard(self._told("PermissionDenied", turn, fields, detail, call=call))

    async def files_changed(self, turn: int, call: HookedCall, changed: list[Changed]) -> None:
        if not self._hooks.listens("FileChanged"):
            return
        for one in changed:
            kind = "created" if isinstance(one.fact, facts.ToolFileWriteApplied) else "modified"
            path = os.path.join(self._place.cwd, one.path)
            detail = {"path": path, "kind": kind, "tool": call.tool.spec.name}
            fields = {"path": path, "file_path": path, "kind": kind, "fact": _fact(one.fact)}
            await self._heard(self._told("FileChanged", turn, fields, detail, call=call))

    async def todos_written(self, turn: int, before: list[Todo], after: list[Todo]) -> None:
        """Report new entries of the list and entries completed since."""
        known = {todo.content: todo.status for todo in before}
        for number, todo in enumerate(after, 1):
            task = {"task_id": str(number), "task_subject": todo.content}
            if todo.content not in known and self._hooks.listens("TaskCreated"):
                detail = {"task_id": str(number), "status": todo.status}
                fields = {**task, "status": todo.status}
                await self._heard(self._told("TaskCreated", turn, fields, detail))
            done = todo.status == "completed" and known.get(todo.content) != "completed"
            if done and self._hooks.listens("TaskCompleted"):
                detail = {"task_id": str(number), "terminal_status": "completed"}
                await self._heard(self._told("TaskCompleted", turn, {**task, **detail}, detail))

    async def before_compacting(self, turn: int, tokens: int) -> None:
        if self._hooks.listens("PreCompact"):
            detail = {"strategy": "summary", "token_count_before": tokens}
            fields = {**detail, "trigger": "auto", "custom_instructions": None}
            await self._heard(self._told("PreCompact", turn, fields, detail, names=("auto",)))

    async def after_compacting(self, turn: int, compacted: bool, tokens: int) -> None:
        if self._hooks.listens("PostCompact"):
            detail = {"compacted": compacted, "token_count_after": tokens}
            fields = {**detail, "trigger": "auto"}
            await self._heard(self._told("PostCompact", turn, fields, detail, names=("auto",)))

    async def child_started(self, turn: int, name: str, run_id: str) -> None:
        if self._hooks.listens("SubagentStart"):
            detail = {"agent_name": name, "task_id": run_id}
            fields = {**detail, "agent_id": run_id, "agent_type": "agent"}
            told = self._told("SubagentStart", turn, fields, detail, names=("agent",))
            await self._heard(told, stops=False)

    async def child_ended(self, turn: int, name: str, run_id: str, *, well: bool) -> None:
        if self._hooks.listens("SubagentStop"):
            detail = {"agent_name": name, "task_id": run_id, "success": well}
            fields = {
                **detail,
                "agent_id": run_id,
                "agent_type": "agent",
                "stop_hook_active": False,
            }
            told = self._told("SubagentStop", turn, fields, detail, names=("agent",))
            await self._heard(told, stops=False)

    def somebody_is_asked(self, turn: int, message: str, kind: str) -> None:
        """A request waits for an answer; the hooks run in the background and do not delay it."""
        detail = {"level": "info", "message": message}
        fields = {**detail, "notification_type": kind}
        told = self._told("Notification", turn, fields, detail, names=(kind,))
        self._hooks.tell_aside(self._recorder, told)

    def configured(self, changed_keys: list[str]) -> None:
        """In the background: the client that made the change may also answer the hook."""
        detail = {"changed_keys": changed_keys}
        told = self._told("ConfigChange", 0, {**detail, "source": "client"}, detail)
        self._hooks.tell_aside(self._recorder, told)

    async def stopping(self, turn: int, answer: str, *, again: bool) -> HookVerdict:
        """The agent is about to answer; `again` if a hook has already made it continue."""
        if self.in_child or not self._hooks.listens("Stop"):
            return NOTHING
        fields = {"stop_hook_active": again, "last_assistant_message": answer}
        detail = {"turn_index": turn, "stop_hook_active": again}
        # A hook's stop needs no effect here: the agent is about to stop.
        return await self._heard(self._told("Stop", turn, fields, detail), stops=False)

    async def failed(self, turn: int, outcome: str, message: str) -> None:
        if self.in_child or not self._hooks.listens("StopFailure"):
            return
        fields = {"outcome": outcome, "error": message}
        detail = {"turn_index": turn, "outcome": outcome}
        told = self._told("StopFailure", turn, fields, detail)
        await self._hooks.tell_at_once(self._recorder, told, LAST_WORDS_S)

    async def _heard(self, told: HookRun, *, stops: bool = True) -> HookVerdict:
        """Run the hooks. A stop raises `Halt`, unless `stops` is false."""
        heard = await self._hooks.tell(self._recorder, told)
        if stops and heard.stop is not None:
            raise Halt("hook_denied", heard.stop)
        return heard

    def _told(
        self,
        event: HookEvent,
        turn: int,
        fields: dict[str, Any],
        detail: dict[str, Any],
        *,
        call: HookedCall | None = None,
        names: tuple[str, ...] = (),
    ) -> HookRun:
        common: dict[str, Any] = {
            "hookEventName": event,
            "hook_event_name": event,
            **self._where(),
            "run_id": self._recorder.run_id,
            "transcript_path": "",
            "permission_mode": self._live_settings.mode,
            "turn_index": turn,
        }
        if self._place.agent_id:
            common |= {"agent_id": self._place.agent_id, "agent_type": "agent"}
        return HookRun(
            event=event,
            fields={**common, **fields},
            detail=detail,
            names=names,
            call=call,
            shape=_shape,
        )

    def _where(self) -> dict[str, Any]:
        return {"session_id": self._place.session_id, "cwd": self._place.cwd}


def _shape(call: HookedCall) -> dict[str, Any]:
    """A call for the payload, under our name of the tool and under Claude Code's."""
    from batten.protocols.claude.names import claude_name

    name = call.tool.spec.name
    return {
        "tool": {"name": name, "useId": call.call_id, "input": call.arguments},
        "tool_name": claude_name(name),
        "tool_input": call.arguments,
        "tool_use_id": call.call_id,
    }


def _detail(turn: int, call: HookedCall) -> dict[str, Any]:
    return {"turn_index": turn, "tool_use_id": call.call_id, "matcher": call.tool.spec.name}


def _permission(call: HookedCall, decision: Decision) -> dict[str, Any]:
    return {
        "tool_use_id": call.call_id,
        "tool_name": call.tool.spec.name,
        "rule_action": decision.verdict,
    }


def _fact(fact: facts.Fact) -> dict[str, Any]:
    """A fact as the feeds of the event protocol spell it."""
    return {"type": fact.type, "data": msgspec.to_builtins(fact)}
