"""Holds the panels of parked runs in a worker: it opens their agents as it opens runs."""

import os
from functools import partial

from batten.contract.errors import NotFound
from batten.control.coordination.convening import PanelQuestion
from batten.control.coordination.duty import PanelDuty
from batten.control.coordination.panel import Decided, agent_base, give_up, hold
from batten.control.coordination.records import Keeping
from batten.control.coordination.runtime import Runtime
from batten.control.coordination.seat import Seat
from batten.control.worker import Specify
from batten.redact.identity import service_identity
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.settings.control_plane import read_control_plane
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec


def panel_duty(opener: SessionOpener, specify: Specify, most: int) -> PanelDuty:
    """The panels that a worker of this opener holds, up to `most` at once."""
    panels = _HostedPanels(opener, specify)
    return PanelDuty(opener.journal, panels.redactor, "worker", panels.decide, most=most)


class _HostedPanels:
    """Lets agents decide that this process runs."""

    def __init__(self, opener: SessionOpener, specify: Specify) -> None:
        self.redactor = Redactor.from_environment(opener.base.environ)
        self._opener = opener
        self._specify = specify

    async def decide(self, question: PanelQuestion) -> Decided:
        opener = self._opener
        keeping = Keeping(
            opener.journal,
            self.redactor,
            partial(SealKey.load, opener.home),
            read_control_plane(opener.base.environ).macp_redact_patterns,
            service_identity(opener.base.environ, self.redactor),
        )
        base = await self._base(question)
        return await hold(
            question.panel,
            Runtime(keeping),
            self._opener.open,
            base,
            let_go=partial(self._let_go, question),
        )

    async def _base(self, question: PanelQuestion) -> SessionSpec:
        """How the agents are opened: as the run is, in its workspace."""
        journal = self._opener.journal
        run = await journal.run(question.row.run_id)
        session = None if run is None else await journal.session(run.session_id or "")
        if run is None or session is None:
            raise NotFound(f"the run of {question.row.request_id} is gone")
        spec = await self._specify(run, session)
        workspace = run.workspace_path
        if not os.path.isdir(workspace):  # a worktree without changes is removed while it waits
            workspace = spec.workspace or workspace
        return agent_base(spec, workspace, tuple(question.convened.models))

    async def _let_go(self, question: PanelQuestion, chair: Seat) -> None:
        """Leave the panel to another worker, unless its answer is not wanted any more."""
        row = await self._opener.journal.request(question.row.request_id)
        if row is not None and row.status == "pending":
            await chair.runtime.leave(chair.session_id)
        else:
            await give_up(chair, "its answer is not wanted any more")
