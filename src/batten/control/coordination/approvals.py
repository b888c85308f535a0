"""Approvals by a panel: a permission rule names it, and a tool call waits for its commitment.

The question is an ordinary approval of the run: durable, with a deadline, answered once. What is
not approved in time is denied. A run of a worker is parked meanwhile, and any worker holds the
panel (`duty.py`); another run holds it in its own process. Members that connect to the runtime
have the runtime as their chair (`connected.py`).
"""

import asyncio
from contextlib import suppress
from functools import partial

from batten.agent.deps import Answer, Question, RunDeps
from batten.agent.settings import RunSettings
from batten.contract.errors import BattenError, Conflict
from batten.contract.facts import MacpPanelConvened
from batten.contract.facts.approval import PANEL
from batten.contract.facts.macp import PanelOwner
from batten.control.coordination.convening import (
    BoundPanel,
    answer,
    bind_panel,
    convene,
    find_question,
    refuse,
)
from batten.control.coordination.panel import agent_base, hold
from batten.control.coordination.records import Keeping
from batten.control.coordination.runtime import Runtime
from batten.journal.recorder import Recorder
from batten.session.requests import JournalRequests, known_request
from batten.settings.contract import Settings
from batten.settings.control_plane import read_control_plane
from batten.wiring.opening import open_session
from batten.wiring.spec import SessionSpec


def panels_of(
    spec: SessionSpec, deps: RunDeps, settings: RunSettings, found: Settings
) -> "PanelRequests":
    """The panels of the settings. Raises `CallerError` for a policy that cannot be used."""
    named = {rule.panel for rule in settings.rules if rule.panel}
    bound = {
        config.name: bind_panel(config, spec.environ)
        for config in found.panels
        if config.name in named
    }
    base = agent_base(spec, deps.workspace_path, settings.models)
    return PanelRequests(bound, deps, base)


class PanelRequests:
    """Asks panels."""

    def __init__(
        self,
        panels: dict[str, BoundPanel],
        deps: RunDeps,
        base: SessionSpec,
        *,
        parks: bool = False,
    ) -> None:
        """With `parks` a run is parked while it waits, and workers hold its panels."""
        self._panels = panels
        self._deps = deps
        self._base = base
        self._parks = parks
        self._asking: dict[str, JournalRequests] = {}
        self._opened: dict[int, asyncio.Future[str]] = {}
        """The id of each question that is being asked, once it is durable."""

    def parking(self) -> "PanelRequests":
        return PanelRequests(self._panels, self._deps, self._base, parks=True)

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        panel = self._panels.get(question.panel)
        if panel is None:
            return Answer(False, "policy", f"there is no panel {question.panel!r}")
        if self._owner(panel) != "run":
            return await self._journaled(panel).ask(recorder, question)
        asked = asyncio.get_running_loop().create_future()
        self._opened[id(question)] = asked
        try:
            async with asyncio.TaskGroup() as group:
                holding = group.create_task(self._hold(recorder, asked))
                answered = await self._journaled(panel).ask(recorder, question)
                holding.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        finally:
            del self._opened[id(question)]
        return answered

    def _owner(self, panel: BoundPanel) -> PanelOwner:
        if panel.config.connected:
            return "runtime"
        return "worker" if self._parks else "run"

    def _journaled(self, panel: BoundPanel) -> JournalRequests:
        """One for all questions of a panel: an answer authorises one call."""
        name = panel.config.name
        if name not in self._asking:
            self._asking[name] = JournalRequests(
                (f"{PANEL}{name}",),
                panel.config.timeout_s,
                self._tell_opened,
                parks=self._parks,
                beside=partial(self._convene, panel),
            )
        return self._asking[name]

    def _tell_opened(self, recorder: Recorder, question: Question, request_id: str) -> None:
        if (asked := self._opened.get(id(question))) is not None:
            asked.set_result(request_id)

    def _convene(
        self, panel: BoundPanel, recorder: Recorder, question: Question, request_id: str
    ) -> list[MacpPanelConvened]:
        owner, models = self._owner(panel), self._base.models
        return [convene(panel, recorder, question, request_id, owner=owner, models=models)]

    async def _hold(self, recorder: Recorder, asked: "asyncio.Future[str]") -> None:
        """Hold the panel on an open question, and write its decision as the answer."""
        journal, redactor = recorder.journal, recorder.redactor
        row = await known_request(journal, await asked)
        patterns = read_control_plane(self._base.environ).macp_redact_patterns
        keeping = Keeping(
            journal, redactor, self._deps.seal_key, patterns, dict(self._deps.identity)
        )
        opening = partial(open_session, journal=journal, home=self._deps.home)
        with suppress(Conflict):  # it was answered, or its time has passed
            question = await find_question(journal, row)
            if question is None:
                await refuse(journal, redactor, row, "what the panel was to decide is gone")
                return
            try:
                decided = await hold(question.panel, Runtime(keeping), opening, self._base)
            except BattenError as error:
                await refuse(journal, redactor, row, f"the panel could not be held: {error}")
            else:
                await answer(journal, redactor, question, decided)
