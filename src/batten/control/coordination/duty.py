"""Holds the panels that questions of a journal wait for, on behalf of their runs.

The runs may be parked: nothing of them is in memory here. One process holds a panel at a time: the
one that holds the run of its session. When that process is gone, another goes on with the same
session, and its votes count. An answer queues the parked run again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

from batten.contract.errors import BattenError, Conflict, JournalError
from batten.contract.facts import TERMINAL, ApprovalResolved, ApprovalTimedOut
from batten.contract.facts.approval import panel_of
from batten.contract.facts.macp import PanelOwner
from batten.control.coordination.convening import PanelQuestion, answer, find_question, refuse
from batten.control.coordination.panel import Decided
from batten.control.coordination.store import find_run
from batten.journal.contract import Journal, RequestRow
from batten.journal.workers import is_abandoned, this_worker
from batten.redact.redactor import Redactor

_log = logging.getLogger("batten.coordination")
_USUAL_PAUSE_S = 2.0
"""Between looks for panels whose holder is gone; a new question is heard of at once."""
_CLOSING = frozenset({ApprovalResolved.TYPE, ApprovalTimedOut.TYPE, *TERMINAL})

Decide = Callable[[PanelQuestion], Coroutine[Any, Any, Decided]]
"""Lets the panel of a question decide. Raises `Conflict` while another process holds it."""


class PanelDuty:
    """Answers the questions to panels that have this owner."""

    def __init__(
        self,
        journal: Journal,
        redactor: Redactor,
        owner: PanelOwner,
        decide: Decide,
        *,
        most: int = 16,
    ) -> None:
        """`most` panels are held at once; others wait."""
        self._journal = journal
        self._redactor = redactor
        self._owner = owner
        self._decide = decide
        self._most = most
        self._held: set[str] = set()
        self._others: set[str] = set()
        """Pending questions with another owner."""
        self._look = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled; then open panels are left to another process."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            while True:
                self._look.clear()
                try:
                    await self._fill(group)
                except JournalError as error:
                    _log.warning("questions to panels cannot be looked for: %s", error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_USUAL_PAUSE_S):
                        await self._look.wait()

    async def _listen(self) -> None:
        async with aclosing(self._journal.follow_queue()) as wakes:
            async for _ in wakes:
                self._look.set()

    async def _fill(self, group: asyncio.TaskGroup) -> None:
        pending = [row for row in await self._journal.pending_requests() if panel_of(row.resolvers)]
        self._others &= {row.request_id for row in pending}
        for row in reversed(pending):  # the oldest first
            known = row.request_id in self._held or row.request_id in self._others
            if not known and len(self._held) < self._most:
                self._held.add(row.request_id)
                group.create_task(self._answer(row))

    async def _answer(self, row: RequestRow) -> None:
        try:
            question = await find_question(self._journal, row)
            if question is None or question.convened.owner != self._owner:
                self._others.add(row.request_id)
            elif not await self._is_held_elsewhere(question):
                await self._decided(question)
                self._look.set()
        except Conflict as error:  # another process was faster, or it is answered
            _log.info("the panel of %s is left: %s", row.request_id, error)
        except JournalError as error:  # the next look tries again
            _log.warning("the panel of %s is not held: %s", row.request_id, error)
        except Exception as error:  # one panel must not end the others
            if not isinstance(error, BattenError):
                _log.error("the panel of %s failed", row.request_id, exc_info=error)
            await self._refuse(row, f"the panel could not be held: {error}")
        finally:
            self._held.discard(row.request_id)

    async def _is_held_elsewhere(self, question: PanelQuestion) -> bool:
        run = await find_run(self._journal, question.session_id)
        if run is None or run.ended_at is not None or run.worker_id == this_worker():
            return False
        return not is_abandoned(run)

    async def _decided(self, question: PanelQuestion) -> None:
        """Let the panel decide, for as long as its answer is wanted."""
        if question.seconds_left <= 0:
            await self._refuse(question.row, "its time has passed")
            return
        try:
            async with asyncio.TaskGroup() as group:
                deciding = group.create_task(self._decide(question))
                wanted = group.create_task(self._closed(question.row))
                await asyncio.wait((deciding, wanted), return_when=asyncio.FIRST_COMPLETED)
                for task in (deciding, wanted):
                    task.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        if not deciding.cancelled():
            await answer(self._journal, self._redactor, question, deciding.result())

    async def _closed(self, row: RequestRow) -> None:
        """Return once the question needs no answer any more."""
        async with aclosing(self._journal.follow(row.run_id, types=_CLOSING)) as pages:
            async for _ in pages:
                now = await self._journal.request(row.request_id)
                if now is None or now.status != "pending":
                    return

    async def _refuse(self, row: RequestRow, why: str) -> None:
        with suppress(Conflict, JournalError):  # it is closed; else its deadline closes it
            await refuse(self._journal, self._redactor, row, why)
