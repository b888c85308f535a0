"""One run from queued to its one ending, in three steps: create, claim, execute.

In one process the first two are one transaction (`Execution.begin`). A worker claims a run that
`creation.queue_run` only queued, and executes it with `Execution.on`. Only this module turns
events of the execution into an outcome.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from batten.agent.cancel_request import cancel_request
from batten.agent.conversation import Conversation
from batten.agent.creation import Origin, new_run, queued_facts, record_prompt, started_fact
from batten.agent.deps import RunDeps
from batten.agent.dispatch import Dispatch
from batten.agent.ending import terminal_fact
from batten.agent.halt import Halt, HandedOver, Parked
from batten.agent.hooks.points import HookOrigin, HookPoints
from batten.agent.hooks.start import run_start_hooks
from batten.agent.instructions import system_prompt
from batten.agent.limits import turn_left_open
from batten.agent.live_settings import LiveSettings, live_settings_of
from batten.agent.loop import Loop
from batten.agent.observing import observer_of
from batten.agent.open_models import OpenModels
from batten.agent.progress import Progress
from batten.agent.settings import RunSettings
from batten.agent.stop import Stop, stop_of
from batten.contract import errors, facts
from batten.contract.conversation import File, Image
from batten.contract.envelope import timestamp
from batten.contract.outcomes import ENDINGS, Outcome
from batten.contract.tracing import enter_run
from batten.journal.contract import Lease
from batten.journal.recorder import Recorder, redact_fact

if TYPE_CHECKING:
    from batten.agent.one_call import OneCall

_LEFT = Stop("cancelled", "whoever started the run was cancelled")
_CANCELS = frozenset({facts.RunCancelRequested.TYPE})
_log = logging.getLogger("batten.runs")


class Ended(Struct, frozen=True, kw_only=True):
    """How a run ended, for its caller."""

    run_id: str
    outcome: Outcome
    message: str
    answer: str
    last_text: str
    progress: Progress
    tool_calls: int
    duration_ms: int
    durable: bool = True
    """Whether the ending is in the journal; false when the store could not write it."""
    halt: Halt | None = None
    """The answer that cancelled it, if one did; it also ends the run that started this one."""


class Execution:
    """A run under this process's lease."""

    def __init__(
        self,
        deps: RunDeps,
        settings: RunSettings,
        recorder: Recorder,
        conversation: Conversation,
        progress: Progress,
        depth: int,
        live_settings: LiveSettings | None = None,
        session_id: str | None = None,
        under: Lease | None = None,
    ) -> None:
        self.deps = deps
        self.settings = settings
        self.recorder = recorder
        self.conversation = conversation
        self.progress = progress
        self.live_settings = live_settings or live_settings_of(settings)
        """Settings that a client may change during the run."""
        self._depth = depth
        self._session_id = session_id or ""
        self._started_at = time.monotonic()
        self._work: asyncio.Task[Any] | None = None
        self._cancelled: tuple[str, str] | None = None
        self._failed: errors.JournalError | None = None
        """The store's error that ended this run."""
        self._parked: Parked | None = None
        self._under = under
        recorder.hold = self._hold
        # Those of earlier runs too: the model gets one conversation, in which an id stands once.
        for message in conversation.messages:
            progress.call_ids.update(call.id for call in message.tool_calls())
        recorder.call_ids = progress.call_ids
        self._hands_over = False
        self._loop: Loop | OneCall | None = None
        self.ended: Ended | None = None
        """How the run ended; None before that."""

    @property
    def run_id(self) -> str:
        return self.recorder.run_id

    @classmethod
    async def begin(
        cls,
        deps: RunDeps,
        settings: RunSettings,
        origin: Origin,
        conversation: Conversation,
        prompt: str,
        attachments: Sequence[Image | File] = (),
        live_settings: LiveSettings | None = None,
    ) -> Self:
        """Create and claim the run, with its first facts.

        If the caller is cancelled, the run that may be there by then gets its ending first.
        """
        parent = origin.parent
        progress = Progress(call_ids=parent.call_ids if parent else set())
        creating = asyncio.ensure_future(
            Recorder.create(
                deps.journal,
                new_run(deps, origin, deps.worker_id),
                [*queued_facts(deps, settings, origin), started_fact(deps)],
                partial(record_prompt, prompt=prompt, attachments=attachments),
                redactor=deps.redactor,
                seal_key=deps.seal_key,
                observe=observer_of(conversation, progress, deps.observer),
                under=origin.under,
            )
        )
        execution = partial(
            cls,
            deps,
            settings,
            conversation=conversation,
            progress=progress,
            depth=parent.depth if parent else 0,
            live_settings=live_settings,
            session_id=origin.session_id,
            under=origin.under,
        )
        try:
            return execution(await asyncio.shield(creating))
        except asyncio.CancelledError:
            await execution(await creating)._end(_LEFT)
            raise

    @classmethod
    def on(
        cls,
        deps: RunDeps,
        settings: RunSettings,
        lease: Lease,
        task_id: str | None,
        conversation: Conversation,
        progress: Progress,
        live_settings: LiveSettings | None = None,
        session_id: str | None = None,
        under: Lease | None = None,
    ) -> Self:
        """An execution of a run that this worker claimed."""
        recorder = Recorder(
            deps.journal,
            lease,
            task_id=task_id,
            redactor=deps.redactor,
            seal_key=deps.seal_key,
            observe=observer_of(conversation, progress, deps.observer),
        )
        return cls(
            deps, settings, recorder, conversation, progress, 0, live_settings, session_id, under
        )

    def lose(self, error: errors.JournalError) -> None:
        """Stop: the store no longer lets this process execute the run."""
        self._failed = error
        if self._work is not None:
            self._work.cancel()

    def hand_over(self) -> None:
        """Stop without an ending, unless the run has ended: `finish` raises `HandedOver`."""
        self._hands_over = True
        if self._loop is not None:
            self._loop.hand_over()
        if self._work is not None:
            self._work.cancel()

    async def cancel(self, by: str, reason: str) -> None:
        """Request the end. No effect begins after this returns; the run ends soon after."""
        if self._cancelled is not None:
            return
        self._cancelled = (by, reason)
        asked = redact_fact(facts.RunCancelRequested(by=by, reason=reason), self.deps.redactor)
        try:
            await self.deps.journal.append(self.run_id, [asked], fence=None)
        except (errors.Conflict, errors.JournalError):
            return  # the run has ended, or writing the ending meets the same error
        finally:
            if self._work is not None:
                self._work.cancel()

    def heed_cancel(self, by: str, reason: str) -> None:
        """End without doing anything: the journal has a cancel that an earlier worker missed."""
        self._cancelled = (by, reason)

    async def finish(self) -> Ended:
        """Execute the run to its end and record the ending. Raises no error of the run itself.

        If the caller is cancelled, the run ends first: its ending is written before this returns.
        Raises `Parked` if `deps.requests` parks runs and this one waits for an answer, and
        `HandedOver` after `hand_over`.
        """
        try:
            async with asyncio.TaskGroup() as group:
                lease = group.create_task(self._keep_lease())
                warm = group.create_task(self._warm_up())
                looking = group.create_task(self._watch_for_cancel())
                self._work = work = group.create_task(self._work_out())
                if self._cancelled or self._failed or self._hands_over:
                    work.cancel()
                stop = await self._until_stopped(work)
                if self._loop is not None and self._failed is None:
                    await self._loop.dispatch.settle()
                if self._parked is None and not self._is_handed_over(work):
                    self._work = group.create_task(self._finish_up(stop))
                    await asyncio.wait([self._work])
                for task in (lease, warm, looking):
                    task.cancel()
        except asyncio.CancelledError:
            if self._parked is None:
                await self._end(_LEFT)
            else:
                self.deps.hooks.run_over(self.run_id)
            raise
        if self._parked is not None:
            self.deps.hooks.run_over(self.run_id)
            raise self._parked
        if self._is_handed_over(work):
            self.deps.hooks.run_over(self.run_id)
            await self._renew()  # all facts recorded before it are durable then
            raise HandedOver
        return await self._end(stop)

    def _without_store(self, error: errors.BattenError) -> Stop:
        """The end of a run that the store failed."""
        if not self.deps.for_others or not isinstance(error, errors.JournalError):
            return Stop("store", str(error))
        _log.error("run %s lost the store", self.run_id, exc_info=error)
        return Stop("store", f"{error.plain}; the log of the service has the reason")

    def _is_handed_over(self, work: "asyncio.Task[Stop]") -> bool:
        """Whether `hand_over` is what stopped the work."""
        others = self._cancelled or self._failed
        return self._hands_over and work.cancelled() and not others

    async def _until_stopped(self, work: "asyncio.Task[Stop]") -> Stop:
        await asyncio.wait([work])
        if self._failed is not None:
            return self._without_store(self._failed)
        if not work.cancelled():
            return work.result()
        by, reason = self._cancelled or ("runtime", "the process is ending")
        return Stop("cancelled", reason or f"cancelled by {by}")

    async def _work_out(self) -> Stop:
        """Run the loop; turn everything it can raise into an outcome."""
        models = OpenModels(self.deps.open_model, self._model_names)
        limit = asyncio.timeout(self.settings.max_seconds)
        try:
            async with limit:
                if self.deps.only_call is None:
                    models()
                self._loop = await self._set_up()
                self._loop.dispatch.is_out_of_time = limit.expired
                answer = await self._loop.run(models)
                return Stop("completed", answer=answer)
        except Parked as parked:
            self._parked = parked
            return Stop("interrupted")
        except Halt as halt:
            if halt.outcome == "cancelled" and self._cancelled is None:
                self._cancelled = (halt.by, halt.message)
            return Stop(halt.outcome, halt.message, code=halt.code, halt=halt)
        except TimeoutError as error:
            if not limit.expired():
                return stop_of(error)
            return Stop("timeout", f"the limit of {self.settings.max_seconds:g} s is reached")
        except errors.Conflict as error:
            if error.code == "cancel_requested" and self._cancelled is None:
                with suppress(errors.JournalError):
                    await self._note_cancel()
            if self._cancelled is not None:
                raise asyncio.CancelledError from error
            return Stop("store", str(error))
        except errors.JournalError as error:
            return self._without_store(error)
        except Exception as error:
            return stop_of(error)
        finally:
            await models.aclose()

    def _model_names(self) -> tuple[str, ...]:
        """The session's current models; a child keeps those it began with."""
        return self.settings.models if self._depth else self.live_settings.models

    async def _set_up(self) -> "Loop | OneCall":
        deps, settings = self.deps, self.settings
        points = self._points()
        if deps.only_call is not None:
            from batten.agent.one_call import OneCall

            toolbox, live = deps.toolbox(deps, settings, self._depth), self.live_settings
            dispatch = Dispatch(deps, self.recorder, settings, toolbox, live, points)
            return OneCall(dispatch, deps.only_call, self.progress)
        enter_run(self.run_id, self._session_id, deps.identity, is_traced=deps.is_traced)
        model = settings.models[0]
        if not self.progress.begun and not self._depth and (missing := deps.unavailable()):
            self.recorder.record(*missing)
        added = await run_start_hooks(deps.hooks, points, self.conversation, self.progress, model)
        system = system_prompt(
            workspace=deps.workspace_path,
            directories=deps.directories,
            home=deps.home,
            own=settings.system,
            appended="\n\n".join(part for part in (settings.append_system, added) if part),
            instructions=settings.instructions,
        )
        return Loop(
            deps,
            settings,
            self.recorder,
            self.conversation,
            deps.toolbox(deps, settings, self._depth),
            system,
            self.progress,
            self.live_settings,
            points,
        )

    def _points(self) -> HookPoints:
        place = HookOrigin(
            session_id=self._session_id,
            cwd=self.deps.workspace_path,
            agent_id=self.run_id if self._depth else "",
        )
        return HookPoints(self.deps.hooks, self.recorder, self.live_settings, place)

    async def _finish_up(self, stop: Stop) -> None:
        """Record what is left, and run the failure hooks, before the ending is written; not if the
        store failed."""
        if stop.outcome != "store":
            await self._complete_turn()
        if self.deps.before_end is not None and stop.outcome not in ("store", "cancelled"):
            await self.deps.before_end(self.recorder)
        if ENDINGS[stop.outcome].terminal == "run.failed" and stop.outcome != "store":
            await self._points().failed(self.progress.turns, stop.outcome, stop.message)

    async def _complete_turn(self) -> None:
        """Complete a turn that the loop has not come to: it was begun by another worker."""
        message, task_id = self.conversation.open_message, self.recorder.task_id
        if message is None or task_id is None:
            return
        began_at, budget = self.progress.turn_started_at, self.settings.budget_micros_usd
        journal = self.deps.journal
        left = await turn_left_open(journal, task_id, message, began_at, budget)
        self.recorder.record(*left)

    async def _watch_for_cancel(self) -> None:
        """Notice a cancel requested by another process or by the parent run."""
        journal = self.deps.journal
        try:
            row = await journal.run(self.run_id)
            after = -1 if row is None else row.next_sequence - 1
            if row is None or not row.cancel_requested:
                following = journal.follow(self.run_id, after=after, types=_CANCELS)
                async with aclosing(following) as pages:
                    if await anext(pages, None) is None:
                        return  # the journal was closed
            is_news = self._cancelled is None and await self._note_cancel()
        except errors.JournalError:
            return  # the run's own writes fail the same way and end it
        if is_news and self._work is not None:
            self._work.cancel()

    async def _note_cancel(self) -> bool:
        """Remember who requested the cancel, and why; False if that is known."""
        asked = await cancel_request(self.deps.journal, self.run_id)
        is_news = self._cancelled is None
        self._cancelled = self._cancelled or (asked.by, asked.reason)
        return is_news

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self.deps.lease_s / 3)
            try:
                await self._renew()
            except errors.JournalError as error:
                # The error may also report an earlier lost fact, which must not be dropped.
                self.lose(error)
                return

    async def _renew(self) -> None:
        """Renew the session's or parent's lease first: the run's lease is void without it."""
        if self._under is not None:
            self._under = await self.deps.journal.renew(self._under, self.deps.lease_s)
        self.recorder.lease = await self.deps.journal.renew(self.recorder.lease, self.deps.lease_s)

    async def _hold(self) -> None:
        """Renew leases that expired while the process was paused, before an effect begins."""
        until = self.recorder.lease.until
        if self._under is not None:
            until = min(until, self._under.until)
        if until > timestamp():
            return
        try:
            await self._renew()
        except errors.FenceLost as error:
            self._failed = error
            raise

    async def _warm_up(self) -> None:
        self.deps.hooks.warm_up()
        if self.deps.before_effects is not None:
            await self.deps.before_effects()

    async def _end(self, stop: Stop) -> Ended:
        """Write the ending. If the store lost an earlier fact, the outcome is `store`."""
        self.deps.hooks.run_over(self.run_id)
        last_text = self.conversation.last_text()
        here_ms = round((time.monotonic() - self._started_at) * 1000)
        duration_ms = max(here_ms, self.progress.duration_ms)
        if self._loop is not None:
            self.progress.left_running = self._loop.dispatch.left_running
        failure: errors.BattenError | None = self._failed
        if not isinstance(failure, errors.FenceLost):
            failure = await self._write_ending(self._ending(stop, duration_ms))
        if failure is not None:
            stop = self._without_store(failure)
        if isinstance(failure, errors.FenceLost):
            self._release()  # the next holder writes the ending
        elif failure is not None:
            failure = await self._write_ending(self._ending(stop, duration_ms))
        self.ended = Ended(
            run_id=self.run_id,
            outcome=stop.outcome,
            message=stop.message,
            answer=stop.answer,
            last_text=last_text,
            progress=self.progress,
            tool_calls=self._loop.dispatch.calls_ended if self._loop else 0,
            duration_ms=duration_ms,
            durable=failure is None,
            halt=stop.halt if stop.outcome == "cancelled" else None,
        )
        return self.ended

    def _ending(self, stop: Stop, duration_ms: int) -> facts.Fact:
        # Redact before cutting: half a secret would not be found.
        progress, clean = self.progress, self.deps.redactor.text
        if stop.outcome == "cancelled" and self._cancelled is not None:
            by, reason = self._cancelled
            reason = self.deps.redactor.authored.text(reason)
            return terminal_fact(stop.outcome, reason, progress, duration_ms, by=by)
        return terminal_fact(
            stop.outcome,
            clean(stop.message),
            progress,
            duration_ms,
            clean(stop.traceback),
            code=stop.code,
            retriable=stop.retriable,
        )

    async def _write_ending(self, fact: facts.Fact) -> errors.BattenError | None:
        """Write the ending. Returns the error that lost it or an earlier fact, else None."""
        try:
            await self.recorder.record(fact)
        except errors.BattenError as error:
            return error
        self._release()
        return None

    def _release(self) -> None:
        """Give up the lease. Nobody waits for it: the session's is given up in the same commit."""
        with suppress(errors.JournalError):
            self.deps.journal.release(self.recorder.lease)
