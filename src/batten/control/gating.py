"""Foresees whether the one call of a run without a model will wait for approval.

The worker decides, and hooks may change the verdict. So a client is told what the run did; only
whether to wait for that is decided here.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

from batten.agent.rules.rule import Rule
from batten.agent.rules.verdict import decide
from batten.contract.conversation import ToolCall
from batten.contract.errors import CallerError
from batten.contract.facts import (
    TERMINAL,
    ApprovalRequested,
    PolicyToolBlocked,
    RunStarted,
    TaskCreated,
    ToolInvoked,
)
from batten.contract.facts.tool import ToolKind
from batten.control.kinds import call_of
from batten.control.layers import LayersOfWorkspaces
from batten.control.specification import of_task
from batten.control.tasks import Tasks
from batten.journal.contract import RunRow
from batten.models.contract import ToolSpec
from batten.session.requests import granted_rules
from batten.tools.contract import Effect
from batten.wiring.settings import run_settings

_TAKEN_S = 0.5
"""For a worker of another process to take a run; one that is idle takes it at once."""
_MOMENT_S = 3.0
_DECIDED = TERMINAL | {ApprovalRequested.TYPE, ToolInvoked.TYPE, PolicyToolBlocked.TYPE}


class _CallTool:
    """The tool of such a call, as rules see it."""

    def __init__(self, name: str, kind: ToolKind, effect: Effect, subject: str) -> None:
        self.spec = ToolSpec(name, "", {})
        self.kind: ToolKind = kind
        self.effect: Effect = effect
        self._subject = subject

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments[self._subject])


_COMMAND = _CallTool("bash", "shell", "execute", "command")
_WRITE = _CallTool("write_file", "file_write", "write", "file_path")


class Gating:
    """Waits for the question of a run that was just queued, where there will be one."""

    def __init__(
        self,
        tasks: Tasks,
        count_workers: Callable[[], int],
        *,
        taken_s: float = _TAKEN_S,
        moment_s: float = _MOMENT_S,
    ) -> None:
        """`count_workers`: those of the service; there may be others. While it has none, a run has
        `taken_s` to be taken and `moment_s` after that.
        """
        self._tasks = tasks
        self._count_workers = count_workers
        self._taken_s = taken_s
        self._moment_s = moment_s
        self._layers = LayersOfWorkspaces(tasks.base, tasks.home)

    async def once_asked(self, row: RunRow) -> RunRow:
        """The run once its call waits for approval, or as it is after a moment."""
        if row.kind == "agent_loop" or not await self._will_ask(row):
            return row
        if self._count_workers() or await self._comes(
            row, _DECIDED | {RunStarted.TYPE}, self._taken_s
        ):
            await self._comes(row, _DECIDED, self._moment_s)
        return await self._tasks.run(row.task_id or "", row.run_id)

    async def _comes(self, row: RunRow, types: frozenset[str], within_s: float) -> bool:
        """Whether a fact of these types follows in that time."""
        journal = self._tasks.journal
        following = journal.follow(row.run_id, after=row.next_sequence - 1, types=types)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), aclosing(following) as pages:
                return await anext(pages, None) is not None
        return False

    async def _will_ask(self, row: RunRow) -> bool:
        """Whether the rules and the mode leave the call of this run to somebody's approval."""
        tasks = self._tasks
        session = await tasks.journal.session(row.session_id or "")
        task = None if session is None else await tasks.described(session)
        call = None if task is None else call_of(task, row.run_id)
        if session is None or task is None or call is None:
            return False
        try:
            if not self._asks(task, row, call, ()):
                return False
        except CallerError:
            return False  # settings that cannot be used end the run, which says why
        # Mostly there are none.
        grants = await granted_rules(tasks.journal, session.session_id)
        return not grants or self._asks(task, row, call, grants)

    def _asks(
        self, task: TaskCreated, row: RunRow, call: ToolCall, grants: tuple[Rule, ...]
    ) -> bool:
        spec = of_task(self._tasks.base, task, grants)
        settings = run_settings(spec, None, self._layers.of(row.workspace_path))
        tool = _WRITE if call.name == "file_write" else _COMMAND
        path = row.workspace_path
        found = decide(tool, call.input, rules=settings.rules, mode=settings.mode, workspace=path)
        return found.verdict == "ask"
