"""The question that a run asks a panel: recorded whole, so that any process can hold the panel.

The panel's session has the number of the approval, so whoever goes on with the question finds it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from batten.agent.deps import Question
from batten.contract.cutting import cut
from batten.contract.envelope import decode_fact
from batten.contract.errors import CallerError, StoreDamaged
from batten.contract.facts import MacpPanelConvened
from batten.contract.facts.approval import PANEL, panel_of
from batten.contract.facts.macp import PanelOwner, PanelSeat
from batten.contract.ids import to_uuid
from batten.control.coordination.chair import MODES
from batten.control.coordination.panel import Decided, Panel, PanelAgent
from batten.control.coordination.records import bound_policy, policy_from
from batten.control.coordination.registries import read_policy_file
from batten.coordination.modes.quorum import MODE as QUORUM
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import PolicyRegistry
from batten.coordination.rejection import Rejection
from batten.journal.contract import Journal, RequestRow
from batten.journal.recorder import Recorder, whole_fact
from batten.redact.redactor import Redactor
from batten.session.requests import resolve
from batten.settings.contract import PanelConfig
from batten.settings.folders import at_home

_LARGEST_ABOUT = 128 * 1024
"""Characters of the arguments that the agents are shown."""
_LONGEST_QUESTION = 2000
_PAGE = 64


class BoundPanel(Struct, frozen=True):
    """A panel of the settings, with its policy read."""

    config: PanelConfig
    policy: PolicyDescriptor
    mode: str


class PanelQuestion(Struct, frozen=True):
    """An open question, and the panel that answers it."""

    row: RequestRow
    convened: MacpPanelConvened

    @property
    def session_id(self) -> str:
        return to_uuid(self.row.request_id)

    @property
    def seconds_left(self) -> float:
        """Until the question is denied; not positive if that time has passed."""
        if self.row.deadline_at is None:
            raise StoreDamaged(f"the question {self.row.request_id} has no deadline")
        left = datetime.fromisoformat(self.row.deadline_at) - datetime.now(UTC)
        return left.total_seconds()

    @property
    def panel(self) -> Panel:
        convened = self.convened
        return Panel(
            question=convened.question,
            agents=tuple(
                PanelAgent(name=one.name, model=one.model, instructions=one.instructions)
                for one in convened.members
            ),
            policy=policy_from(convened.policy),
            mode=convened.mode,
            seconds=self.seconds_left,
            rounds=convened.rounds,
            session_id=self.session_id,
            context_id=self.row.request_id,
            about=convened.about,
        )


def bind_panel(config: PanelConfig, environ: Mapping[str, str]) -> BoundPanel:
    """Raises `CallerError` for a policy that cannot be used."""
    policy = read_policy_file(at_home(config.policy, environ))
    try:
        PolicyRegistry().register(policy)
    except Rejection as rejection:
        raise CallerError(f"panel {config.name}: {rejection}", code="config") from rejection
    mode = QUORUM if policy.mode == "*" else policy.mode
    if mode not in MODES.values():
        raise CallerError(
            f"panel {config.name}: {config.policy} is for {mode}, in which nothing is approved; "
            f"use one of {', '.join(MODES.values())}",
            code="config",
        )
    return BoundPanel(config, policy, mode)


def convene(
    panel: BoundPanel,
    recorder: Recorder,
    question: Question,
    request_id: str,
    *,
    owner: PanelOwner,
    models: tuple[str, ...],
) -> MacpPanelConvened:
    """The fact that goes with a question to a panel."""
    redactor = recorder.redactor.authored
    detail: dict[str, Any] = redactor.value(question.detail)[0]
    arguments = msgspec.json.format(msgspec.json.encode(detail["arguments"]), indent=2).decode()
    text = redactor.text(f"May {question.tool_name} run? {question.summary}")
    return MacpPanelConvened(
        approval_id=request_id,
        panel=panel.config.name,
        owner=owner,
        mode=panel.mode,
        policy=bound_policy(panel.policy),
        members=[PanelSeat(one.name, one.model, one.instructions) for one in panel.config.agents],
        models=list(models),
        rounds=panel.config.rounds,
        question=cut(text, _LONGEST_QUESTION),
        about=cut(f"{question.tool_name} {arguments}", _LARGEST_ABOUT),
    )


async def find_question(journal: Journal, row: RequestRow) -> PanelQuestion | None:
    """The question of a request; None if it was asked of no panel. Reads the run from its end."""
    run = await journal.run(row.run_id)
    end = 0 if run is None else run.next_sequence
    while end > 0:
        start = max(0, end - _PAGE)
        for stored in reversed(await journal.read(row.run_id, after=start - 1, limit=end - start)):
            if stored.type != MacpPanelConvened.TYPE:
                continue
            fact = await whole_fact(decode_fact(stored.body), journal)
            if isinstance(fact, MacpPanelConvened) and fact.approval_id == row.request_id:
                return PanelQuestion(row, fact)
        end = start
    return None


async def answer(
    journal: Journal, redactor: Redactor, question: PanelQuestion, decided: Decided
) -> None:
    """Write a panel's decision as the answer. Raises `Conflict` if the question is closed."""
    await _resolve(journal, redactor, question.row, decided.outcome == "approved", _reason(decided))


async def refuse(journal: Journal, redactor: Redactor, row: RequestRow, why: str) -> None:
    """Deny a question whose panel could not decide. Raises `Conflict` if it is closed."""
    await _resolve(journal, redactor, row, False, why)


async def _resolve(
    journal: Journal, redactor: Redactor, row: RequestRow, granted: bool, text: str
) -> None:
    by = f"{PANEL}{panel_of(row.resolvers)}"
    await resolve(journal, redactor, row.request_id, granted=granted, by=by, text=text)


def _reason(decided: Decided) -> str:
    by = f" by {decided.by}" if decided.by else ""
    action = decided.action or decided.outcome
    silent = "".join(f"; {name} fell silent: {why}" for name, why in decided.failures.items())
    return f"{action}{by}: {decided.reason} (session {decided.session_id}){silent}"
