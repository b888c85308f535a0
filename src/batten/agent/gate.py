"""The one gate between a model's tool call and an effect: one verdict of hooks, rules and answers.

Hooks come first and may change the arguments; the rules then judge the arguments that will run. A
denial by either is final. A call left at `ask` goes to hooks, then to the resolvers. Every change
of arguments on the way is judged again before the call is allowed.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from msgspec import Struct

from batten.agent.deps import Answer, Question, RunDeps
from batten.agent.halt import Halt
from batten.agent.hooks.dispatch import NOTHING, HookVerdict, combined
from batten.agent.hooks.matching import HookedCall
from batten.agent.hooks.points import HookPoints
from batten.agent.invoking import invoked_fact
from batten.agent.live_settings import LiveSettings
from batten.agent.rules.rule import GRANT, Rule, is_about, pattern_of
from batten.agent.rules.verdict import Decision, decide, may_read
from batten.contract.conversation import ToolCall
from batten.contract.cutting import cut
from batten.contract.depth import DEEPEST, is_too_deep
from batten.contract.errors import CallerError, Refused
from batten.contract.facts import PolicyToolDecided, ToolInvoked
from batten.journal.recorder import Recorder
from batten.tools.contract import BoundedTool, Tool
from batten.tools.registry import Toolbox

_LONGEST_SUMMARY = 16_000


class Ruling(Struct, frozen=True, kw_only=True):
    """The gate's verdict on one call."""

    decision: Decision
    call: HookedCall
    """The call, with the arguments to run with."""
    halt: Halt | None = None
    """Ends the run, if the refusal asks for that."""


class Gate:
    """Decides on the calls of one run."""

    def __init__(
        self,
        deps: RunDeps,
        recorder: Recorder,
        toolbox: Toolbox,
        live_settings: LiveSettings,
        hooks: HookPoints,
        resolvers: tuple[str, ...],
    ) -> None:
        self._deps = deps
        self._recorder = recorder
        self._toolbox = toolbox
        self._live_settings = live_settings
        self._hooks = hooks
        self._resolvers = resolvers
        self.before_question: Callable[[], Awaitable[None]] | None = None
        """Awaited before someone is asked: waits for the calls that still run."""

    async def decide(
        self,
        turn: int,
        tool: Tool,
        call: ToolCall,
        arguments: dict[str, Any],
        attempt: int = 1,
        *,
        proposed: bool = True,
    ) -> Ruling:
        """The verdict on one call. Questions asked on the way are recorded; the verdict is not.

        `attempt` counts the uses of the call's id. A question about a call that was not `proposed`
        by a model holds its arguments.
        """
        asked = _PendingCall(self, turn, tool, call, arguments, attempt)
        asked.changed = not proposed
        heard = await self._hooks.before_tool(
            turn, asked.call, asked.invoked, asked.judge, asked.check
        )
        asked.change(heard)
        decision = combined(heard, asked.judge(asked.call.arguments))
        if heard.stop is not None:
            return asked.stopped(heard, decision)
        ruling = Ruling(decision=decision, call=asked.call)
        if decision.verdict == "deny":
            return ruling
        ruling = await self._bounded(ruling)
        if ruling.decision.verdict != "ask":
            return ruling
        self.record(call.id, tool.spec.name, decision)
        ruling = await self._ask(asked, decision)
        return await self._bounded(ruling) if ruling.decision.verdict == "allow" else ruling

    async def _bounded(self, ruling: Ruling) -> Ruling:
        """The ruling, or a refusal of a call outside the bounds of its tool."""
        # A test of the protocol at run time would cost more than the check itself.
        tool = cast("BoundedTool", ruling.call.tool)
        if not hasattr(tool, "check_bounds"):
            return ruling
        try:
            await tool.check_bounds(ruling.call.arguments)
        except Refused as error:
            denied = Decision("deny", error.message, f"bounds:{error.code}")
            return Ruling(decision=denied, call=ruling.call)
        return ruling

    def record(self, call_id: str, tool_name: str, decision: Decision) -> None:
        self._recorder.record(
            PolicyToolDecided(
                tool_call_id=call_id,
                tool_name=tool_name,
                verdict=decision.verdict,
                reason=decision.reason,
                decided_by=decision.decided_by,
            )
        )

    async def _ask(self, asked: "_PendingCall", decision: Decision) -> Ruling:
        """Ask for approval: hooks first, then the resolvers."""
        heard = await self._hooks.permission_requested(
            asked.turn, asked.call, decision, asked.judge, asked.check
        )
        asked.change(heard)
        refusal = asked.refusal(heard)
        if refusal is not None:
            return refusal
        owner = NOTHING
        if heard.arguments is not None:
            owner = await self._owner(asked)
            refusal = asked.refusal(owner)
            if refusal is not None:
                return refusal
        if owner.decision == "ask":
            decision = Decision("ask", owner.reason or decision.reason, f"hook:{owner.by}")
        elif heard.decision == "allow":
            decided = combined(heard, asked.judge(asked.call.arguments))
            return Ruling(decision=decided, call=asked.call)
        question = Question(
            request_class="approval",
            tool_call_id=asked.call.call_id,
            tool_name=asked.name,
            summary=self.summary(asked.call) or asked.name,
            reason=decision.reason,
            detail={"tool": asked.name, "arguments": asked.call.arguments},
            changed=asked.changed,
            panel=decision.panel,
        )
        if self._resolvers and not question.panel:
            message = f"{asked.name} waits for approval: {question.summary}"
            self._hooks.somebody_is_asked(asked.turn, message, "permission_prompt")
        if self.before_question is not None:
            await self.before_question()
        return await self._answered(asked, decision, await self._answer(question))

    async def _answer(self, question: Question) -> Answer:
        if not question.panel:
            return await self._deps.requests.ask(self._recorder, question)
        if self._deps.panels is None:
            return Answer(False, "policy", f"the panel {question.panel} cannot be held here")
        return await self._deps.panels.ask(self._recorder, question)

    async def _owner(self, asked: "_PendingCall") -> HookVerdict:
        """Show a changed call to the machine owner's hooks, which may refuse it or change it."""
        heard = await self._hooks.before_tool(
            asked.turn, asked.call, asked.invoked, asked.judge, asked.check, managed_only=True
        )
        asked.change(heard)
        return heard

    async def _answered(self, asked: "_PendingCall", decision: Decision, answer: Answer) -> Ruling:
        by = f"resolver:{answer.by}"
        reason = answer.text or decision.reason
        if not answer.granted:
            rule = decision.rule if answer.by == "policy" else ""
            denied = Decision("deny", reason, by, rule)
            return asked.refused(denied, halt=answer.halt, by=answer.by, why=answer.halt_reason)
        if answer.grant:
            self._live_settings.add_rule(Rule("allow", answer.grant, GRANT))
        heard = NOTHING
        if answer.updated_input is not None:
            try:
                arguments = asked.check(answer.updated_input)
            except CallerError as error:
                reason = f"the arguments it was approved with cannot be used: {error}"
                return asked.refused(Decision("deny", reason, by))
            if arguments != asked.call.arguments:
                asked.call = asked.with_arguments(arguments)
                heard = await self._owner(asked)
        # Unchanged arguments too: the rules may have changed since the question was asked.
        refusal = asked.refusal(heard)
        if refusal is not None:
            return refusal
        return Ruling(decision=Decision("allow", reason, by), call=asked.call)

    def judge(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        """The verdict of the current rules alone."""
        return decide(
            tool,
            arguments,
            rules=self._live_settings.rules,
            mode=self._live_settings.mode,
            workspace=self._deps.workspace_path,
        )

    def forbids(self, name: str) -> Decision | None:
        """The verdict on a tool that is not there, if a rule denies all its calls."""
        if self._live_settings.mode in ("bypassPermissions", "disabled"):
            return None
        for rule in self._live_settings.rules:
            is_whole = rule.action == "deny" and pattern_of(rule).subject == "none"
            if is_whole and is_about(rule, name):
                reason = rule.reason or f"denied by {rule.pattern}"
                return Decision("deny", reason, f"rule:{rule.source}:{rule.pattern}")
        return None

    def remedy(self, ruling: Ruling) -> str:
        """The flags that would have allowed a refused call; empty if none would."""
        from batten.agent.rules.remedy import allowing_flags

        return allowing_flags(
            ruling.call.tool,
            ruling.call.arguments,
            ruling.decision,
            rules=self._live_settings.rules,
            mode=self._live_settings.mode,
            workspace=self._deps.workspace_path,
        )

    def permissions(self, call: HookedCall) -> "CallPermissions":
        return CallPermissions(self, call, self._live_settings, self._deps.workspace_path)

    def check(self, tool: Tool, given: dict[str, Any]) -> dict[str, Any]:
        if is_too_deep(given):
            raise CallerError(f"arguments nested more than {DEEPEST} levels deep")
        return self._toolbox.arguments(tool, given)

    def summary(self, call: HookedCall) -> str:
        """What would run, whole or visibly cut. Redacted first: half a secret is not found."""
        whole = self._recorder.redactor.authored.text(call.tool.subject(call.arguments))
        return cut(whole, _LONGEST_SUMMARY)


class CallPermissions:
    """What the rules say while an allowed call runs: of files it would show, of redirects."""

    def __init__(
        self, gate: Gate, call: HookedCall, live_settings: LiveSettings, workspace: str
    ) -> None:
        self._gate = gate
        self._call = call
        self._live_settings = live_settings
        self._workspace = workspace

    def may_read(self, path: str) -> bool:
        settings = self._live_settings
        if settings.mode in ("bypassPermissions", "disabled"):
            return True
        return may_read(settings.rules, path, self._workspace)

    def check_redirect(self, url: str) -> None:
        """An address is followed if the rules allow it; if they ask, only on the same host."""
        from batten.agent.rules.hosts import host_of

        arguments = {**self._call.arguments, "url": url}
        verdict = self._gate.judge(self._call.tool, arguments).verdict
        same_host = host_of(url) == host_of(str(self._call.arguments.get("url", "")))
        if verdict == "deny" or (verdict == "ask" and not same_host):
            raise Refused(
                f"the redirect to {url} is not allowed by the rules; ask for that address itself",
                code="redirect_refused",
            )


class _PendingCall:
    """One call on its way through the gate."""

    def __init__(
        self,
        gate: Gate,
        turn: int,
        tool: Tool,
        call: ToolCall,
        arguments: dict[str, Any],
        attempt: int,
    ) -> None:
        self._gate = gate
        self._proposed = arguments
        self._attempt = attempt
        self.turn = turn
        self.name = tool.spec.name
        self.changed = False
        """The arguments are not those that a model proposed."""
        self.call = HookedCall(tool=tool, call_id=call.id, arguments=arguments)

    def invoked(self, call: HookedCall) -> ToolInvoked:
        """The fact with which this call would begin."""
        return invoked_fact(self.turn, call, self._proposed, self._attempt)

    def judge(self, arguments: dict[str, Any]) -> Decision:
        return self._gate.judge(self.call.tool, arguments)

    def check(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._gate.check(self.call.tool, given)

    def change(self, heard: HookVerdict) -> None:
        if heard.arguments is not None:
            self.changed = True
            self.call = self.with_arguments(heard.arguments)

    def with_arguments(self, arguments: dict[str, Any]) -> HookedCall:
        return HookedCall(tool=self.call.tool, call_id=self.call.call_id, arguments=arguments)

    def refusal(self, heard: HookVerdict) -> Ruling | None:
        """The ruling if a hook or a rule denies the call as it now stands, else None."""
        decision = combined(heard, self.judge(self.call.arguments))
        if heard.stop is not None:
            return self.stopped(heard, decision)
        if decision.verdict != "deny":
            return None
        halt = heard.halt and heard.decision == "deny"
        return self.refused(decision, halt=halt, by=decision.decided_by)

    def stopped(self, heard: HookVerdict, decision: Decision) -> Ruling:
        """Deny the call because a hook ends the run, even if the rules allow it."""
        assert heard.stop is not None
        if decision.verdict != "deny":
            decision = Decision("deny", heard.stop, f"hook:{heard.by}")
        halt = Halt("hook_denied", heard.stop)
        return Ruling(decision=decision, call=self.call, halt=halt)

    def refused(
        self, decision: Decision, *, halt: bool = False, by: str = "", why: str = ""
    ) -> Ruling:
        ending = Halt("cancelled", why or decision.reason, by=by) if halt else None
        return Ruling(decision=decision, call=self.call, halt=ending)
