"""The only path from a model's tool call to an effect: decide, record, run, record.

`tool.invoked` is awaited before the tool starts: an effect begins with that commit, which the
journal refuses once a cancel is requested or another worker holds the run.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from batten.agent.deps import RunDeps
from batten.agent.gate import Gate, Ruling
from batten.agent.halt import Halt
from batten.agent.hooks.matching import HookedCall
from batten.agent.hooks.points import HookOrigin, HookPoints
from batten.agent.invoking import called_mcp, invoked_fact, mcp_names
from batten.agent.live_settings import LiveSettings, live_settings_of
from batten.agent.retrying import retry_question
from batten.agent.rules.verdict import Decision
from batten.agent.run_context import RunContext
from batten.agent.settings import RunSettings
from batten.contract import facts
from batten.contract.conversation import ToolCall
from batten.contract.cutting import first_line
from batten.contract.errors import BattenError, CallerError, Conflict, JournalError
from batten.contract.facts.tool import Todo, ToolKind
from batten.contract.identity import current_ids
from batten.contract.tracing import current_traceparent, traceparent_of
from batten.journal.contract import Stored
from batten.journal.keeping import must_seal
from batten.journal.recorder import AUTHORED_RESULTS, Recorder, redact_fact
from batten.tools.aliases import canonical
from batten.tools.contract import Ending, Tool, ToolOutput
from batten.tools.registry import Toolbox
from batten.tools.told import told

_TERMINALS: dict[Ending, type[facts.ToolEnded]] = {
    "completed": facts.ToolCompleted,
    "failed": facts.ToolFailed,
    "cancelled": facts.ToolCancelled,
    "timed_out": facts.ToolTimedOut,
}


class _Allowed(NamedTuple):
    """A call that may begin."""

    turn: int
    call: ToolCall
    hooked: HookedCall
    """The call with the arguments to run with."""
    proposed: dict[str, Any]


class _Begun:
    """A call whose beginning is committed."""

    def __init__(self, tool: Tool, call: ToolCall, context: RunContext) -> None:
        self.tool = tool
        self.call = call
        self.context = context
        self.at = time.monotonic()
        self.is_entered = False
        """Whether its tool was started; its end is recorded then."""


class Dispatch:
    """Runs the calls of one run in the order the model made them."""

    def __init__(
        self,
        deps: RunDeps,
        recorder: Recorder,
        settings: RunSettings,
        toolbox: Toolbox,
        live_settings: LiveSettings | None = None,
        hooks: HookPoints | None = None,
        todos: Sequence[Todo] = (),
    ) -> None:
        self._deps = deps
        self._recorder = recorder
        self._toolbox = toolbox
        self._live_settings = live_settings or live_settings_of(settings)
        place = HookOrigin(session_id="", cwd=deps.workspace_path)
        self._hooks = hooks or HookPoints(deps.hooks, recorder, self._live_settings, place)
        self._gate = Gate(
            deps, recorder, toolbox, self._live_settings, self._hooks, settings.resolvers
        )
        self._resolvers = settings.resolvers
        self._parallel_reads = settings.parallel_reads
        self._auto_apply = settings.auto_apply
        self._todos = list(todos)
        self._uses: Counter[str] = Counter()
        self._unfinished: list[Callable[[], Awaitable[None]]] = []
        self.calls_ended = 0
        self.children_ended = 0
        self.left_running: list[str] = []
        self.is_out_of_time: Callable[[], bool] = lambda: False
        """Whether the run's time limit is what cancels a call."""
        self.cut_by = "Aborted"
        """Why calls are cut short, if not by that limit."""

    async def run_all(self, turn: int, calls: Sequence[ToolCall]) -> None:
        """Run the calls of a message to their end, in order.

        Neighbouring calls of read-only tools overlap. Any other call waits for the end of all calls
        before it, and those after it wait for its end.
        """
        for reads, group in groupby(calls, self._only_reads):
            together = list(group)
            if reads and len(together) > 1 and self._parallel_reads > 1:
                await self._run_reads(turn, together)
            else:
                for call in together:
                    await self.run(turn, call)

    async def run(self, turn: int, call: ToolCall) -> None:
        """Run one call to its end. A tool that raises has failed; its error goes to the model."""
        allowed = await self._decide(turn, call)
        if allowed is not None:
            await self._try(allowed, await self._begin(allowed))

    async def run_unproposed(self, call: ToolCall) -> None:
        """Run a call that no model proposed: the fact of its beginning holds its arguments."""
        allowed = await self._decide(0, call, proposed=False)
        if allowed is not None:
            allowed = allowed._replace(proposed={})
            await self._try(allowed, await self._begin(allowed))

    def _only_reads(self, call: ToolCall) -> bool:
        tool = self._toolbox.find(call.name)
        return tool is not None and tool.effect == "read" and call.raw is None

    async def _run_reads(self, turn: int, calls: list[ToolCall]) -> None:
        """Decide on calls and begin them one after the other, and let them run side by side.

        A call that must be approved is asked about when those before it have ended: the run may be
        parked at the question.
        """
        slots = asyncio.Semaphore(self._parallel_reads)
        begun: list[_Begun] = []
        tasks: set[asyncio.Task[None]] = set()

        async def settle() -> None:
            if tasks:
                await asyncio.wait(tasks)

        async def finish(allowed: _Allowed, first: _Begun) -> None:
            try:
                await self._try(allowed, first)
            finally:
                slots.release()

        self._gate.before_question = settle
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    allowed = await self._decide(turn, call)
                    if allowed is None:
                        continue
                    await slots.acquire()
                    begun.append(await self._begin(allowed))
                    task = group.create_task(finish(allowed, begun[-1]))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        finally:
            self._gate.before_question = None
            for one in begun:
                if not one.is_entered:  # its task was cancelled before its first step
                    self._end(one.tool, one.call, self._interrupted(None), one.at)

    async def _decide(
        self, turn: int, call: ToolCall, *, proposed: bool = True
    ) -> "_Allowed | None":
        """Record the verdict on a call; None if there is nothing to run."""
        self._uses[call.id] += 1
        tool = self._toolbox.find(call.name)
        if tool is None:
            await self._fail(turn, call, "custom", self._toolbox.unknown(call.name), "unknown_tool")
            return None
        try:
            if call.raw is not None:
                raise CallerError(f"Invalid JSON arguments: {self._unreadable(call.raw)}")
            arguments = self._gate.check(tool, call.input)
        except CallerError as error:
            await self._fail(turn, call, tool.kind, f"Error: {error}", "invalid_arguments")
            return None
        ruling = await self._gate.decide(
            turn, tool, call, arguments, self._uses[call.id], proposed=proposed
        )
        self._gate.record(call.id, tool.spec.name, ruling.decision)
        if ruling.decision.verdict == "allow":
            return _Allowed(turn, call, ruling.call, arguments)
        await self._block(turn, ruling)
        if ruling.halt is not None:
            raise ruling.halt
        return None

    async def _try(self, allowed: "_Allowed", begun: "_Begun") -> None:
        """Carry out a call, and again for each retry that a client grants."""
        tried = 1
        while True:
            ended = await self._carry_out(allowed, begun)
            if not await self._is_retried(allowed.hooked, ended, tried):
                break
            self._uses[allowed.call.id] += 1
            tried += 1
            begun = await self._begin(allowed)
        self.calls_ended += 1

    async def _is_retried(self, call: HookedCall, ended: facts.Fact, tried: int) -> bool:
        if not self._deps.asks_retry():
            return False
        question = retry_question(call, ended, tried)
        if question is None:
            return False
        answer = await self._deps.requests.ask(self._recorder, question)
        if answer.halt:
            raise Halt("cancelled", answer.text or "a failed call was to end the run", by=answer.by)
        rules = self._gate.judge(call.tool, call.arguments)
        if not answer.granted or rules.verdict == "deny":
            return False
        reason = answer.text or "it is tried again"
        again = Decision("allow", reason, f"resolver:{answer.by}")
        self._gate.record(call.call_id, call.tool.spec.name, again)
        return True

    async def _begin(self, allowed: "_Allowed") -> "_Begun":
        """Commit that the effect of a call begins."""
        if allowed.hooked.tool.effect == "write":
            await self.settle()
        if self._recorder.hold is not None:
            await self._recorder.hold()
        hooked, call = allowed.hooked, allowed.call
        receipt = self._recorder.record(*self._beginning(allowed.turn, hooked, allowed.proposed))
        try:
            await receipt
        except asyncio.CancelledError:
            # The commit is on its way. Once it is made the call has begun, and gets its end.
            with suppress(Conflict):
                await receipt
                self._end(hooked.tool, call, self._interrupted(None), time.monotonic())
            raise
        context = RunContext(
            recorder=self._recorder,
            call_id=call.id,
            tool_name=hooked.tool.spec.name,
            turn_index=allowed.turn,
            live_settings=self._live_settings,
            hooks=self._hooks,
            resolvers=self._resolvers,
            requests=self._deps.requests,
            permissions=self._gate.permissions(hooked),
            auto_apply=self._auto_apply,
            unfinished=self._unfinished,
        )
        return _Begun(hooked.tool, call, context)

    async def _carry_out(self, allowed: "_Allowed", begun: "_Begun") -> facts.Fact:
        begun.is_entered = True
        tool, call, context = begun.tool, begun.call, begun.context
        current_ids.set({**current_ids.get(), "tool_call_id": call.id})
        if self._deps.is_traced:
            attempt = self._attempt(call)
            span = ("tool", call.id, 1 if attempt is UNSET else attempt)
            identity = self._deps.identity
            current_traceparent.set(traceparent_of(self._recorder.run_id, identity, *span))
        try:
            output = await tool.run(allowed.hooked.arguments, context)
        except asyncio.CancelledError:
            self._end(tool, call, self._interrupted(context.partial), begun.at)
            raise
        except JournalError:  # the tool's effect cannot be recorded
            raise
        except BattenError as error:
            output = ToolOutput(text=f"Error: {error}", ending="failed", error_kind=error.code)
        except Exception as error:  # a tool may be foreign code; the model sees its bug
            text = f"Error: {type(error).__name__}: {error}"
            output = ToolOutput(text=text, ending="failed", error_kind="tool_raised")
        ended, receipt = self._end(tool, call, output, begun.at)
        self.children_ended += output.child_run_id is not None
        await self._tell_hooks(allowed.turn, allowed.hooked, ended, receipt, context)
        if context.halt is not None:
            raise context.halt
        return ended

    async def settle(self) -> None:
        """Record what calls left to be known later."""
        while self._unfinished:
            await self._unfinished.pop(0)()

    def _interrupted(self, partial: ToolOutput | None) -> ToolOutput:
        """The output of a call that was cut short, by a cancel or by the run's time limit."""
        ending: Ending = "timed_out" if self.is_out_of_time() else "cancelled"
        why = self.cut_by if ending == "cancelled" else "the time limit of the run is reached"
        if partial is None:
            return ToolOutput(text=f"Error: {why}", ending=ending, summary=ending)
        return msgspec.structs.replace(
            partial, text=f"Error: {why}\n{partial.text}", ending=ending, summary=ending
        )

    async def _tell_hooks(
        self,
        turn: int,
        call: HookedCall,
        ended: facts.Fact,
        receipt: Awaitable[list[Stored]],
        context: RunContext,
    ) -> None:
        await self._hooks.files_changed(turn, call, context.changed)
        if context.todos is not None:
            before, self._todos = self._todos, context.todos
            await self._hooks.todos_written(turn, before, context.todos)
        await self._hooks.after_tool(turn, call, ended, receipt)

    def _clean(self, text: str, kind: ToolKind = "custom") -> str:
        """Redact before cutting: half a secret would not be found."""
        redactor = self._recorder.redactor
        return (redactor.authored if kind in AUTHORED_RESULTS else redactor).text(text)

    def _unreadable(self, raw: str) -> str:
        """Why arguments that were kept as text cannot be used."""
        try:
            is_object = isinstance(msgspec.json.decode(raw), dict)
        except RecursionError:
            is_object = True
        except (msgspec.MsgspecError, ValueError):
            is_object = False
        return (
            "they are nested too deeply"
            if is_object
            else self._recorder.redactor.authored.text(raw)[:500]
        )

    async def _block(self, turn: int, ruling: Ruling) -> None:
        decision, tool = ruling.decision, ruling.call.tool
        server, name = mcp_names(tool)
        rule = f" (the rule is: {decision.rule})" if decision.rule else ""
        blocked = facts.PolicyToolBlocked(
            tool_call_id=ruling.call.call_id,
            tool_name=tool.spec.name,
            reason=decision.reason,
            policy_id=decision.decided_by,
            kind=tool.kind,
            mcp_server=server,
            mcp_tool=name,
            result="blocked",
            output=f"Error: Permission denied — {decision.reason}{rule}",
            subject=self._gate.summary(ruling.call) or UNSET,
            allow_with=self._gate.remedy(ruling) or UNSET,
        )
        await self._recorder.record(blocked)
        self.calls_ended += 1
        if self._deps.alert is not None:
            self._deps.alert(redact_fact(blocked, self._recorder.redactor))
        await self._hooks.permission_denied(turn, ruling.call, decision, blocked)

    async def _is_blocked_unseen(self, call: ToolCall) -> bool:
        """Block a call that cannot run anyhow, if the rules deny this tool of a server."""
        server, tool = called_mcp(call.name)
        denied = None if server is UNSET else self._gate.forbids(call.name)
        if denied is None:
            return False
        self._gate.record(call.id, call.name, denied)
        await self._recorder.record(
            facts.PolicyToolBlocked(
                tool_call_id=call.id,
                tool_name=call.name,
                reason=denied.reason,
                policy_id=denied.decided_by,
                kind="mcp",
                mcp_server=server,
                mcp_tool=tool,
                result="blocked",
                output=f"Error: Permission denied: {denied.reason}",
            )
        )
        self.calls_ended += 1
        return True

    def _beginning(self, turn: int, call: HookedCall, proposed: dict[str, Any]) -> list[facts.Fact]:
        """`tool.invoked`, its arguments sealed if they changed and hold secrets; `tool.started`.

        An `agent` call starts with its child, whose id it records itself.
        """
        name, kind = call.tool.spec.name, call.tool.kind
        invoked = invoked_fact(turn, call, proposed, self._uses[call.call_id])
        if invoked.input is not UNSET:
            exact = msgspec.json.encode(invoked.input)
            if must_seal(self._recorder.redactor.authored, invoked.input, exact):
                sealed = self._recorder.seal(
                    exact, summary=f"arguments of {name}", tool_call_id=call.call_id
                )
                invoked = msgspec.structs.replace(invoked, sealed_artifact_id=sealed)
        if kind == "agent":
            return [invoked]
        return [invoked, facts.ToolStarted(tool_call_id=call.call_id, tool_name=name, kind=kind)]

    def _attempt(self, call: ToolCall) -> Any:
        """The number of this use of the call's id; unset for the first."""
        uses = self._uses[call.id]
        return uses if uses > 1 else UNSET

    def _end(
        self, tool: Tool, call: ToolCall, output: ToolOutput, started: float
    ) -> tuple[facts.Fact, Awaitable[list[Stored]]]:
        """Record the call's end. Returns it with the receipt of what is stored."""
        self.left_running += output.left_running
        clean = partial(self._clean, kind=tool.kind)
        text, artifact_id = told(self._recorder, call.id, output, clean)
        text = clean(text)
        summary = clean(first_line(output.summary or text))[:200]
        server, name = mcp_names(tool)
        images = [
            self._recorder.artifact(
                "image",
                image.data,
                mime_type=image.mime,
                summary=summary,
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
            "summary": summary,
            "result_artifact_id": artifact_id or (images[0] if images else UNSET),
            "output": text,
            "attempt": self._attempt(call),
            "mcp_server": server,
            "mcp_tool": name,
            "result": output.mcp_result or UNSET,
            "image_artifact_ids": images or UNSET,
        }
        if output.ending != "completed":
            common["error"] = summary
        elif output.mcp_result == "tool_error":
            common["error"] = text[:500]
        if output.ending == "failed":
            common["error_kind"] = output.error_kind or UNSET
        if output.ending == "timed_out":
            common["after_ms"] = common["duration_ms"]
        ended = _TERMINALS[output.ending](**common)
        return ended, self._recorder.record(ended)

    async def _fail(
        self, turn: int, call: ToolCall, kind: ToolKind, text: str, error_kind: str
    ) -> None:
        """Record a call that names no tool or has unfit arguments; the model sees why."""
        if await self._is_blocked_unseen(call):
            return
        name, text = canonical(call.name), self._clean(text)
        server, tool = called_mcp(name)
        of_mcp: dict[str, Any] = {} if server is UNSET else {"mcp_server": server, "mcp_tool": tool}
        kind = "mcp" if of_mcp else kind
        self._gate.record(call.id, name, Decision("allow", "there is nothing to run", "toolbox"))
        await self._recorder.record(
            facts.ToolInvoked(
                tool_call_id=call.id, tool_name=name, kind=kind, turn_index=turn, **of_mcp
            ),
            facts.ToolFailed(
                tool_call_id=call.id,
                tool_name=name,
                kind=kind,
                duration_ms=0,
                summary=first_line(text)[:200],
                output=text,
                error=text[:500],
                error_kind=error_kind,
                result="failed" if of_mcp else UNSET,
                **of_mcp,
            ),
        )
        self.calls_ended += 1
