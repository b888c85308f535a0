"""Cancels runs: by their initiator, by delegation, or through their task."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET

from batten.contract.errors import (
    BattenError,
    CallerError,
    Conflict,
    NotFound,
    ProviderError,
    Refused,
)
from batten.contract.facts import Fact, MacpSessionBound, MacpSessionChanged, RunCancelled
from batten.contract.facts.run import RunCancelRequested
from batten.control.coordination.store import first_of
from batten.control.coordination.waiting import find_descriptor
from batten.control.described.creation import DescribedRuns
from batten.control.described.runtimes import (
    PATIENCE_S,
    RuntimeClient,
    timed_out,
    unavailable,
)
from batten.control.tasks import MOMENT_S, Tasks
from batten.journal.contract import RunRow
from batten.journal.workers import is_gone
from batten.protocols.macp.descriptor import Callback
from batten.protocols.macp.ids import run_uuid
from batten.settings.control_plane import ControlPlaneSettings

USUAL_REASON = "cancelled by control plane"


class Cancelling:
    """Cancels the runs of one home."""

    def __init__(
        self,
        tasks: Tasks,
        described: DescribedRuns,
        settings: ControlPlaneSettings,
        allow: Sequence[str] = (),
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`allow` names hosts and ranges of callbacks that need not be public; `patience_s` is how
        long the process that works on a run may take to end it.
        """
        self._tasks = tasks
        self._journal = tasks.journal
        self._described = described
        self._settings = settings
        self._allow = allow
        self._patience_s = patience_s
        self.runtime: RuntimeClient | None = None
        """The runtime elsewhere, if there is one."""

    async def cancel(self, row: RunRow, *, by: str, reason: str) -> None:
        """End a run that has not ended. Raises without a change to it: `CallerError` if nobody can
        be asked, `ProviderError` if the initiator does not agree. Raises `NotReady` if the process
        that works on the run does not end it in time; it knows of the cancel then.
        """
        if row.kind != "coordination":
            await self._tasks.cancel(row.task_id or "", row.run_id, by=by, reason=reason)
            return
        descriptor = await self._described.descriptor(row.run_id) or {}
        session: dict[str, Any] = descriptor.get("session", {})
        metadata: dict[str, Any] = session.get("metadata", {})
        if metadata.get("cancellationDelegated") is True:
            await self._delegate(row, reason)
        elif (given := metadata.get("cancelCallback")) is not None:
            callback = msgspec.convert(given, Callback)
            await self._ask_initiator(row, callback, reason)
            # The initiator cancels its session in its own name; one that did not open it cannot.
            if row.worker_id and (await self._settled(row)).outcome is not None:
                return
        else:
            raise CallerError(
                "run has no cancelCallback in metadata and no policy delegation - cannot cancel"
                " from control-plane",
                code="VALIDATION_ERROR",
            )
        await self._end(row, by, self._tasks.redactor.authored.text(reason) or USUAL_REASON)

    async def _delegate(self, row: RunRow, reason: str) -> None:
        """Cancel the session where it is elsewhere; one of this home ends with its run."""
        fact = await find_descriptor(self._journal, row.run_id)
        if fact is None or fact.elsewhere is UNSET:
            return
        if self.runtime is None:
            raise unavailable(self._settings.runtime_address)
        with suppress(NotFound):  # it did not open yet
            await self.runtime.cancel(fact.session_id, reason or USUAL_REASON)

    async def _ask_initiator(self, row: RunRow, callback: Callback, reason: str) -> None:
        from batten.tools.outbound import Outbound

        headers = {"Content-Type": "application/json"}
        if callback.bearer:
            headers["Authorization"] = f"Bearer {callback.bearer}"
        told = {"runId": run_uuid(row.run_id), "reason": reason or None}
        try:
            answer = await Outbound(self._allow).send(
                "POST",
                callback.url,
                headers=headers,
                body=msgspec.json.encode(told),
                deadline_s=self._settings.cancel_callback_timeout_ms / 1000,
                wants_body=False,
                check_redirect=_refuse_redirect,
            )
        except BattenError as error:
            raise _failed(f"cancel callback {callback.url} failed: {error}") from error
        if not 200 <= answer.status < 300:
            raise _failed(f"cancel callback {callback.url} returned {answer.status}")

    async def _end(self, row: RunRow, by: str, reason: str) -> None:
        """End the run here if no process works on it, else ask the one that does."""
        if not row.worker_id or is_gone(row):
            with suppress(Conflict):  # it has ended, or its session opens now
                await self._end_idle(row, by, reason)
                return
        with suppress(Conflict):
            if not row.cancel_requested:
                asked = RunCancelRequested(by=by, reason=reason)
                await self._journal.append(row.run_id, [asked], fence=None)
        if (await self._settled(row, self._patience_s)).outcome is None:
            raise timed_out("the session is cancelled as soon as it does")

    async def _settled(self, row: RunRow, patience_s: float = MOMENT_S) -> RunRow:
        return await self._tasks.settled(row.task_id or "", row.run_id, patience_s)

    async def _end_idle(self, row: RunRow, by: str, reason: str) -> None:
        journal = self._journal
        lease = await journal.claim(row.run_id, self._tasks.worker_id, self._tasks.lease_s)
        ending: list[Fact] = []
        if await first_of(journal, row.run_id, MacpSessionBound.TYPE) is not None:
            at_ms = time.time_ns() // 1_000_000
            ending.append(
                MacpSessionChanged(
                    state="CANCELLED", at_unix_ms=at_ms, by=by, reason=reason, banked_ms=0
                )
            )
        ending.append(
            RunCancelled(
                by=by,
                reason=reason,
                outcome="cancelled",
                turns=0,
                cost_micros_usd=0,
                duration_ms=0,
            )
        )
        try:
            await journal.append(row.run_id, ending, fence=lease.fence)
        finally:
            await journal.release(lease)


def _refuse_redirect(url: str) -> None:
    raise Refused("it redirects, which is not followed", code="redirect_refused")


def _failed(message: str) -> ProviderError:
    return ProviderError(message, code="callback_failed")
