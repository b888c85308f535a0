"""Agents take part in coordination sessions."""

import asyncio
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from batten.contract.envelope import decode_fact
from batten.contract.facts import MacpCommitmentEvaluated, MacpMessageAccepted
from batten.control.coordination.chair import open_panel
from batten.control.coordination.panel import Decided, Panel, PanelAgent, hold, opening_of
from batten.control.coordination.seat import Seat, transcript
from batten.coordination.acts import ACTS
from batten.coordination.policy.policy import DEFAULT, PolicyDescriptor
from tests.control.coordination.panels import MAJORITY, Table, act, member, table

QUESTION = "Which database?"
SESSION_ID = "018f4b5a-7c10-7b6a-9d54-2f6f0f3f6a11"


async def accepted(at: Table, run_id: str) -> list[MacpMessageAccepted]:
    stored = await at.opener.journal.read(run_id, limit=500)
    found = [decode_fact(one.body) for one in stored]
    return [fact for fact in found if isinstance(fact, MacpMessageAccepted)]


def approve(**more: Any) -> dict[str, Any]:
    return act("vote", vote="APPROVE", reason="fine", **more)


async def test_three_agents_propose_evaluate_and_vote_and_the_chair_commits(tmp_path: Path) -> None:
    async with table(tmp_path, MAJORITY) as at:
        agents = (
            member(tmp_path, "ann", [act("propose", option="SQLite")], [approve()]),
            member(
                tmp_path,
                "bob",
                [act("evaluate", recommendation="APPROVE", confidence=0.9, reason="one file")],
                [approve()],
            ),
            member(tmp_path, "cy", [], [act("vote", vote="REJECT", reason="too small")]),
        )
        decided = await hold(
            Panel(question=QUESTION, agents=agents, policy=MAJORITY),
            at.runtime,
            at.opener.open,
            at.base,
        )
        said = await accepted(at, decided.run_id)
    assert decided.outcome == "approved"
    assert decided.by == "batten"
    assert "2 approve and 1 reject p1: SQLite" in decided.reason
    assert [(one.sender, one.message_type) for one in said] == [
        ("batten", "SessionStart"),
        ("ann", "Proposal"),
        ("bob", "Evaluation"),
        ("ann", "Vote"),
        ("bob", "Vote"),
        ("cy", "Vote"),
        ("batten", "Commitment"),
    ]


async def held(at: Table, *agents: PanelAgent, **more: Any) -> Decided:
    given: dict[str, Any] = {"policy": MAJORITY, **more}
    panel = Panel(question=QUESTION, agents=agents, **given)
    return await hold(panel, at.runtime, at.opener.open, at.base)


def reject() -> dict[str, Any]:
    return act("vote", vote="REJECT", reason="no")


async def test_a_message_says_which_model_call_and_which_run_it_rests_on(tmp_path: Path) -> None:
    async with table(tmp_path) as at:
        proposing = [act("propose", option="SQLite")]
        decided = await held(at, member(tmp_path, "ann", proposing), policy=DEFAULT)
        said = await accepted(at, decided.run_id)
        metadata = said[1].metadata
        assert metadata is not UNSET
        run = await at.opener.journal.run(metadata["runId"])
    assert run is not None
    assert run.kind == "agent_loop"
    assert metadata["llmCall"]["provider"] == "scripted"
    assert metadata["llmCall"]["promptTokens"] == 0
    assert metadata["toolCallId"] == "ann-0-0"


async def test_the_votes_of_a_minority_decline(tmp_path: Path) -> None:
    async with table(tmp_path, MAJORITY) as at:
        decided = await held(
            at,
            member(tmp_path, "ann", [act("propose", option="SQLite"), approve()]),
            member(tmp_path, "bob", [reject()]),
            member(tmp_path, "cy", [reject()]),
        )
    assert decided.outcome == "declined"
    assert decided.action == "decision.declined"


async def test_what_the_policy_denies_is_not_committed(tmp_path: Path) -> None:
    async with table(tmp_path, MAJORITY) as at:
        decided = await held(
            at,
            member(tmp_path, "ann", [act("propose", option="SQLite"), approve()]),
            member(tmp_path, "bob", []),
            member(tmp_path, "cy", []),
        )
        stored = await at.opener.journal.read(decided.run_id, limit=500)
    assert decided.outcome == "undecided"
    assert decided.state == "CANCELLED"
    found = [decode_fact(one.body) for one in stored]
    judged = [fact for fact in found if isinstance(fact, MacpCommitmentEvaluated)]
    assert {fact.decision for fact in judged} == {"deny"}
    assert judged[0].denials[0].code == "quorum_not_met"


async def test_a_message_that_is_not_accepted_is_a_failed_call_of_its_agent(tmp_path: Path) -> None:
    async with table(tmp_path, MAJORITY) as at:
        early = act("vote", "error", vote="APPROVE", reason="x")
        decided = await held(at, member(tmp_path, "ann", [early]))
        said = await accepted(at, decided.run_id)
    assert decided.failures == {}
    assert [one.message_type for one in said] == ["SessionStart"]


async def test_an_agent_whose_model_fails_is_silent_and_the_others_go_on(tmp_path: Path) -> None:
    async with table(tmp_path, MAJORITY) as at:
        broken: list[dict[str, Any]] = [
            {"kind": "error", "type": "fatal", "message": "the model is gone"}
        ]
        decided = await held(
            at,
            member(tmp_path, "ann", [act("propose", option="SQLite"), approve()]),
            member(tmp_path, "bob", broken),
            member(tmp_path, "cy", [approve()]),
            member(tmp_path, "dan", [approve()]),
        )
    assert decided.outcome == "approved"
    assert "the model is gone" in decided.failures["bob"]


async def test_an_agent_commits_where_the_policy_designates_it(tmp_path: Path) -> None:
    policy = PolicyDescriptor(
        policy_id="policy.lead",
        rules='{"commitment":{"authority":"designated_role","designated_roles":["bob"]}}',
    )
    async with table(tmp_path, policy) as at:
        commit = act("commit", action="decision.selected", reason="I lead", outcome_positive=True)
        decided = await held(
            at,
            member(tmp_path, "ann", [act("propose", option="SQLite")]),
            member(tmp_path, "bob", [commit]),
            policy=policy,
        )
    assert (decided.outcome, decided.by, decided.reason) == ("approved", "bob", "I lead")


async def test_a_quorum_is_asked_and_approves(tmp_path: Path) -> None:
    async with table(tmp_path) as at:
        decided = await held(
            at,
            member(tmp_path, "ann", [act("approve", reason="good")]),
            member(tmp_path, "bob", [act("reject", reason="bad")]),
            member(tmp_path, "cy", [act("approve", reason="good")]),
            policy=DEFAULT,
            mode="macp.mode.quorum.v1",
        )
    assert (decided.outcome, decided.action) == ("approved", "quorum.approved")
    assert decided.reason == "2 of 3 approve, 2 are needed"


async def test_a_panel_that_takes_too_long_expires(tmp_path: Path) -> None:
    async with table(tmp_path) as at:
        slow: list[dict[str, Any]] = [{"kind": "delay", "ms": 60_000}]
        decided = await held(at, member(tmp_path, "ann", slow), policy=DEFAULT, seconds=0.3)
    assert (decided.outcome, decided.state) == ("undecided", "EXPIRED")


async def suspended(at: Table, group: asyncio.TaskGroup, panel: Panel) -> asyncio.Task[Decided]:
    """A panel whose session was suspended before its first turn."""
    opened = asyncio.get_running_loop().create_future()
    holding = group.create_task(
        hold(
            panel,
            at.runtime,
            at.opener.open,
            at.base,
            opened=lambda session_id, run_id: opened.set_result(session_id),
        )
    )
    await at.runtime.suspend(await opened, "batten", "lunch")
    return holding


async def test_a_suspended_panel_waits_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    async with table(tmp_path) as at, asyncio.TaskGroup() as group:
        agent = member(tmp_path, "ann", [act("propose", option="a"), approve()])
        panel = Panel(question=QUESTION, agents=(agent,), session_id=SESSION_ID)
        holding = await suspended(at, group, panel)
        done, _ = await asyncio.wait((holding,), timeout=1)
        assert not done
        session = await at.runtime.find(SESSION_ID)
        assert session is not None
        assert (session.state, session.ordinal) == ("SUSPENDED", 1)
        await at.runtime.resume(SESSION_ID, "batten", "")
        decided = await holding
    assert (decided.outcome, decided.state) == ("approved", "RESOLVED")


async def test_an_agent_that_speaks_while_the_session_is_suspended_is_heard_after_it(
    tmp_path: Path,
) -> None:
    async with table(tmp_path) as at, asyncio.TaskGroup() as group:
        panel = Panel(question=QUESTION, agents=(), session_id=SESSION_ID)
        chair = await open_panel(at.runtime, opening_of(replace(panel, connected=("ann",))))
        await at.runtime.suspend(SESSION_ID, "batten", "lunch")
        seat = Seat(at.runtime, SESSION_ID, "ann")
        sending = group.create_task(seat.send(ACTS["Proposal"], {"option": "a"}))
        done, _ = await asyncio.wait((sending,), timeout=0.3)
        assert not done
        await at.runtime.resume(SESSION_ID, "batten", "")
        assert (await sending).ordinal == 2
        assert (await chair.session()).ordinal == 2


async def test_the_time_of_a_panel_stands_still_while_it_is_suspended(tmp_path: Path) -> None:
    async with table(tmp_path) as at, asyncio.TaskGroup() as group:
        agent = member(tmp_path, "ann", [{"kind": "delay", "ms": 60_000}])
        panel = Panel(question=QUESTION, agents=(agent,), session_id=SESSION_ID, seconds=1)
        holding = await suspended(at, group, panel)
        done, _ = await asyncio.wait((holding,), timeout=1.5)
        assert not done
        await at.runtime.resume(SESSION_ID, "batten", "")
        decided = await holding
    assert decided.state == "EXPIRED"


async def test_a_decision_outlives_the_process(tmp_path: Path) -> None:
    async with table(tmp_path) as at:
        decided = await held(
            at, member(tmp_path, "ann", [act("propose", option="a"), approve()]), policy=DEFAULT
        )
    async with table(tmp_path) as later:
        session = await later.runtime.find(decided.session_id)
        said = await transcript(later.runtime, decided.session_id)
    assert session is not None
    assert session.state == "RESOLVED"
    assert said[1].message.metadata["llmCall"]["model"] == str(tmp_path / "ann.json")
