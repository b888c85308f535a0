"""Hooks: the user's programs and the client's callbacks that receive the events of a run.

They run one after the other, the machine owner's last, and each reply becomes a fact. The callers
(`points`, `gate`) make the payloads and act on the verdict. A session without hooks pays nothing,
unless a client observes: then each event is a fact, even without a hook.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from batten.agent.hooks.dispatch import (
    NOTHING,
    ClientHook,
    Hook,
    HookDispatch,
    HookRun,
    HookVerdict,
    observed,
)
from batten.agent.hooks.matching import HookedCall, condition_of
from batten.agent.hooks.reply import HookReply, Nonsense, of_reply
from batten.contract.errors import BattenError, CallerError
from batten.contract.facts.hook import HookCompleted, HookDispatched
from batten.journal.recorder import Recorder
from batten.settings.contract import HandlerConfig, HookConfig, HookLimits

if TYPE_CHECKING:
    from batten.agent.hooks.pool import Pool
    from batten.workspace.keeper import Keeper

__all__ = ["ClientHook", "Hooks"]

DENIERS = frozenset({"PreToolUse", "UserPromptSubmit", "PermissionRequest"})
"""Events whose hooks may deny; for other events a failed hook changes nothing."""
_REWRITERS = frozenset({"PreToolUse", "PermissionRequest"})
_TOO_LATE = frozenset({"PostToolUse", "PostToolUseFailure"})
"""Events after which a denial can only be shown to the model."""


class Hooks:
    """The hooks of a session. `close` ends the processes and tasks they started."""

    def __init__(
        self,
        configs: Sequence[HookConfig] = (),
        limits: HookLimits | None = None,
        *,
        clients: Sequence[ClientHook] = (),
        workspace: str = "",
        environ: Mapping[str, str] | None = None,
        observed: bool = False,
    ) -> None:
        self._limits = limits or HookLimits()
        self._workspace = workspace
        self._environ = environ or {}
        self._observed = observed
        self._by_event: dict[str, list[Hook]] = {}
        self._keeper: Keeper | None = None
        self._pool: Pool | None = None
        self._receipt: Awaitable[object] | None = None
        """Of the last recorded fact."""
        self._over: set[str] = set()
        """Ids of runs that take no more facts."""
        self.session: Recorder | None = None
        """Takes the facts of hooks whose run has ended."""
        self.source = "startup"
        """Whether this process created the session or resumed it, as `SessionStart` spells it."""
        self.greeting: str | None = None
        """The text that `SessionStart` hooks added to the system prompt; None before they ran."""
        for config in configs:
            self._add(config)
        for client in clients:
            self.register(client)

    def register(self, client: ClientHook) -> None:
        """Add a client's callback."""
        self._insert(
            Hook(event=client.event, matcher=client.matcher, condition=None, handler=client)
        )

    def listens(self, event: str) -> bool:
        return self._observed or event in self._by_event

    def warm_up(self) -> None:
        """Start the keeper before the first command needs it."""
        handlers = (hook.handler for hooks in self._by_event.values() for hook in hooks)
        if any(isinstance(one, HandlerConfig) and one.type == "command" for one in handlers):
            self._command_keeper().start()

    async def tell(self, recorder: Recorder, told: HookRun) -> HookVerdict:
        """Run the event's hooks in order, until one denies or stops the run."""
        call, heard = told.call, NOTHING
        contexts: list[str] = []
        was_told = False
        for hook in self._by_event.get(told.event, ()):
            if not hook.is_for(told, call, self._workspace):
                continue
            was_told = True
            telling = HookDispatch(recorder, hook, told, call)
            if hook.is_async:
                self._dispatch(telling)
                continue
            said, call = await self._ask(telling)
            if said.context:
                contexts.append(said.context)
            heard = heard.after(said, telling.name)
            if said.decision == "deny" or said.stop is not None:
                break
        if self._observed and not was_told and not told.managed_only:
            self._record(recorder, observed(told))
        return msgspec.structs.replace(
            heard,
            arguments=None if call is None or call is told.call else call.arguments,
            context="\n\n".join(contexts),
        )

    async def tell_at_once(self, recorder: Recorder, told: HookRun, within_s: float) -> None:
        """Run all hooks of an event concurrently and ignore their decisions.

        Each gets at most `within_s`, so that one that hangs takes no time from the others.
        """
        told = msgspec.structs.replace(told, at_most_s=within_s)
        hooks = self._by_event.get(told.event, ())
        tellings = [
            HookDispatch(recorder, hook, told, told.call)
            for hook in hooks
            if hook.is_for(told, told.call, self._workspace)
        ]
        if self._observed and not tellings:
            self._record(recorder, observed(told))
        async with asyncio.TaskGroup() as group:
            for telling in tellings:
                if telling.hook.is_async:
                    self._dispatch(telling)
                else:
                    group.create_task(self._ask(telling))

    def tell_aside(self, recorder: Recorder, told: HookRun) -> None:
        """Run the hooks of an event in the background."""
        if self.listens(told.event) and not self._aside().full:
            self._aside().start(self._tell_aside(recorder, told))

    def run_over(self, run_id: str) -> None:
        """Call before the run's ending is written: later hook facts go to the session's stream."""
        if self._observed or self._by_event:
            self._over.add(run_id)

    async def settle(self, grace_s: float | None = None) -> None:
        """Give background hooks a moment, cancel the rest, wait until their facts are stored."""
        if self._pool is not None:
            await self._pool.close(grace_s)
        if self._receipt is not None:
            with suppress(BattenError):  # the run's own writes report it too
                await self._receipt

    async def close(self, grace_s: float | None = None) -> None:
        """End all hooks. `grace_s` is the time for background hooks, `pool.GRACE_S` at most."""
        try:
            await self.settle(grace_s)
        finally:
            keeper, self._keeper = self._keeper, None
            if keeper is not None:
                await keeper.close()

    def _add(self, config: HookConfig) -> None:
        condition = condition_of(config.condition)
        for handler in config.handlers:
            self._insert(
                Hook(
                    event=config.event,
                    matcher=config.matcher,
                    condition=condition,
                    handler=handler,
                    is_managed=config.scope == "managed",
                )
            )

    def _insert(self, hook: Hook) -> None:
        """Append the hook, but before the machine owner's: those see the changes of all others."""
        hooks = self._by_event.setdefault(hook.event, [])
        place = len(hooks)
        while not hook.is_managed and place > 0 and hooks[place - 1].is_managed:
            place -= 1
        hooks.insert(place, hook)

    async def _ask(self, telling: HookDispatch) -> tuple[HookReply, HookedCall | None]:
        """Run one hook and record its reply. Returns the effective reply and the call after it."""
        try:
            said = await self._run(telling)
        except asyncio.CancelledError:
            ended = HookReply(failure="it was ended with its run")
            self._record(telling.recorder, telling.completed(ended))
            raise
        said, came, call = _taken(said, telling)
        self._record(telling.recorder, telling.completed(said, came, call))
        return came, call

    def _dispatch(self, telling: HookDispatch) -> None:
        """Start a hook in the background. Its decision does not count."""
        self._record(telling.recorder, telling.dispatched())
        if self._aside().full:
            left_out = HookReply(failure="too many hooks wait already")
            self._record(telling.recorder, telling.completed(left_out))
            return
        self._aside().start(self._run_aside(telling))

    async def _run_aside(self, telling: HookDispatch) -> None:
        said = HookReply(failure="it was ended with the session")
        try:
            async with self._aside().places:
                said = await self._run(telling)
        finally:
            ignored = HookReply(reason=said.reason, failure=said.failure, exit_code=said.exit_code)
            self._record(telling.recorder, telling.completed(ignored))

    async def _tell_aside(self, recorder: Recorder, told: HookRun) -> None:
        async with self._aside().places:
            await self.tell(recorder, told)

    async def _run(self, telling: HookDispatch) -> HookReply:
        """The handler's reply within its timeout. Raises only on cancellation."""
        told, call = telling.told, telling.call
        payload = dict(told.fields)
        if call is not None and told.shape is not None:
            payload |= told.shape(call)
        limit = telling.hook.handler.timeout_s
        if told.at_most_s is not None:
            limit = min(limit, told.at_most_s)
        try:
            async with asyncio.timeout(limit):
                return await self._answer(telling, payload)
        except TimeoutError:
            return HookReply(failure=f"it did not answer within {limit:g} s")
        except Nonsense as error:
            return HookReply(failure=str(error))
        except Exception as error:  # a callback may be foreign code
            return HookReply(failure=f"{type(error).__name__}: {error}")

    async def _answer(self, telling: HookDispatch, payload: dict[str, Any]) -> HookReply:
        event, handler, call = telling.told.event, telling.hook.handler, telling.call
        if isinstance(handler, ClientHook):
            found = await handler.call(payload, None if call is None else call.call_id)
            if not isinstance(found, dict):
                raise Nonsense("its answer is no object")
            reply = cast("dict[str, Any]", found)
            return HookReply() if reply.get("async") is True else of_reply(event, reply)
        body = msgspec.json.encode(payload)
        if handler.type == "http":
            from batten.agent.hooks.http import send

            return await send(handler, event, self._limits, body, self._environ)
        from batten.agent.hooks.command import run_command

        return await run_command(self._command_keeper(), handler, event, self._workspace, body)

    def _command_keeper(self) -> "Keeper":
        if self._keeper is None:
            from batten.agent.hooks.command import hook_keeper

            self._keeper = hook_keeper(self._workspace, self._environ)
        return self._keeper

    def _aside(self) -> "Pool":
        if self._pool is None:
            from batten.agent.hooks.pool import Pool

            self._pool = Pool()
        return self._pool

    def _record(self, recorder: Recorder, fact: HookDispatched | HookCompleted) -> None:
        taker = self.session if recorder.run_id in self._over else recorder
        if taker is not None:
            self._receipt = taker.record(fact)


def _taken(
    said: HookReply, telling: HookDispatch
) -> tuple[HookReply, HookReply, HookedCall | None]:
    """The hook's reply, its effective reply for this event, and the call after it."""
    told, call = telling.told, telling.call
    replace = msgspec.structs.replace
    if said.failure:
        if told.event in DENIERS and telling.hook.handler.on_failure == "deny":
            reason = f"the hook {telling.name} gave no answer: {said.failure}"
            return said, HookReply(decision="deny", reason=reason), call
        return said, HookReply(), call
    if told.event in _TOO_LATE and said.decision == "deny" and said.reason:
        told_too = "\n\n".join(part for part in (said.reason, said.context) if part)
        return said, replace(said, context=told_too), call
    if said.updated_input is None or said.decision == "deny" or told.event not in _REWRITERS:
        return said, said, call
    assert call is not None
    assert told.check is not None
    try:
        arguments = told.check(said.updated_input)
    except CallerError as error:
        problem = f"its updatedInput cannot be used: {error}"
        came = HookReply(decision="deny", reason=f"the hook {telling.name}: {problem}")
        return replace(said, failure=problem), came, call
    return said, said, HookedCall(tool=call.tool, call_id=call.call_id, arguments=arguments)
