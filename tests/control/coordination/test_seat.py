"""A seat: what a participant sees, and what its mode and role let it do."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.contract.facts import AssistantMessageComplete
from batten.contract.facts.assistant import Usage
from batten.control.coordination.chair import Opening, open_panel
from batten.control.coordination.runtime import Runtime
from batten.control.coordination.seat import ModelCalls, Seat
from batten.coordination.acts import ACTS, acts_of, parameters_of
from batten.coordination.payloads import SIGNAL, Signal, read
from batten.coordination.policy.policy import DEFAULT, PolicyDescriptor
from batten.coordination.rejection import Rejection
from tests.control.coordination.given import open_runtime

NAMES = {act.name: act for act in ACTS.values()}
SCRIPTS: dict[str, tuple[str, list[tuple[str, str, dict[str, Any]]]]] = {
    "macp.mode.decision.v1": (
        "chair",
        [
            ("ann", "propose", {"option": "SQLite"}),
            ("bob", "evaluate", {"recommendation": "REVIEW", "confidence": 0.5, "reason": "?"}),
            ("bob", "object", {"reason": "one writer", "severity": "low"}),
            ("ann", "vote", {"vote": "APPROVE", "reason": "mine"}),
            ("chair", "commit", _C := {"action": "ok", "reason": "r", "outcome_positive": True}),
        ],
    ),
    "macp.mode.proposal.v1": (
        "chair",
        [
            ("ann", "propose", {"title": "a", "summary": "b"}),
            ("bob", "counter_propose", {"title": "c", "summary": "d"}),
            ("ann", "accept", {"proposal_id": "p2"}),
            ("bob", "reject", {"proposal_id": "p1", "reason": "no"}),
            ("ann", "withdraw", {"proposal_id": "p1"}),
            ("bob", "accept", {"proposal_id": "p2"}),
            ("chair", "commit", _C),
        ],
    ),
    "macp.mode.task.v1": (
        "chair",
        [
            ("chair", "request_task", {"title": "t", "instructions": "i"}),
            ("bob", "reject_task", {"reason": "busy"}),
            ("ann", "accept_task", {}),
            ("ann", "update_task", {"status": "half", "progress": 0.5}),
            ("ann", "complete_task", {"summary": "s", "output": "text"}),
            ("chair", "commit", _C),
        ],
    ),
    "macp.mode.handoff.v1": (
        "ann",
        [
            ("ann", "offer_handoff", {"target_participant": "bob", "scope": "all"}),
            ("ann", "add_context", {"context": "notes"}),
            ("bob", "accept_handoff", {}),
            ("ann", "commit", _C),
        ],
    ),
    "macp.mode.quorum.v1": (
        "chair",
        [
            ("ann", "approve", {"reason": "good"}),
            ("bob", "abstain", {}),
            ("chair", "commit", _C | {"outcome_positive": False, "action": "quorum.rejected"}),
        ],
    ),
    "ext.multi_round.v1": (
        "chair",
        [
            ("ann", "contribute", {"value": "7"}),
            ("bob", "contribute", {"value": "7"}),
            ("chair", "commit", _C),
        ],
    ),
}


def opening(mode: str, initiator: str = "chair", policy: PolicyDescriptor = DEFAULT) -> Opening:
    return Opening(
        question="What now?",
        participants=("ann", "bob"),
        policy=policy,
        mode=mode,
        chair=initiator,
        ttl_ms=60_000,
    )


@asynccontextmanager
async def seated(
    home: Path, mode: str, initiator: str = "chair"
) -> AsyncGenerator[dict[str, Seat]]:
    async with open_runtime(home) as runtime:
        first = await open_panel(runtime, opening(mode, initiator))
        seats = {name: Seat(runtime, first.session_id, name) for name in ("ann", "bob", "chair")}
        yield {**seats, initiator: first}


@pytest.mark.parametrize("mode", SCRIPTS)
async def test_every_act_of_a_mode_is_accepted_with_what_a_model_would_say(
    tmp_path: Path, mode: str
) -> None:
    initiator, script = SCRIPTS[mode]
    async with seated(tmp_path, mode, initiator) as seats:
        for who, name, arguments in script:
            assert name in [act.name for act in await seats[who].acts()]
            await seats[who].send(NAMES[name], arguments)
        assert (await seats["ann"].session()).state == "RESOLVED"


async def test_a_seat_offers_only_what_its_mode_and_role_allow(tmp_path: Path) -> None:
    async with seated(tmp_path, "macp.mode.decision.v1") as seats:
        ann, chair = await seats["ann"].acts(), await seats["chair"].acts()
    assert [act.name for act in ann] == ["propose", "evaluate", "object", "vote"]
    assert [act.name for act in chair] == ["commit"]


async def test_a_policy_that_lets_participants_commit_gives_them_the_tool(tmp_path: Path) -> None:
    shared = PolicyDescriptor(
        policy_id="policy.shared", rules='{"commitment":{"authority":"any_participant"}}'
    )
    async with open_runtime(tmp_path) as runtime:
        runtime.registries.change_policies(methodcaller("register", shared))
        chair = await open_panel(runtime, opening("macp.mode.decision.v1", policy=shared))
        session = await chair.session()
    assert "commit" in [act.name for act in acts_of(session, "ann")]
    assert acts_of(session, "stranger") == []


async def test_a_model_is_asked_for_what_the_session_does_not_know(tmp_path: Path) -> None:
    async with seated(tmp_path, "macp.mode.decision.v1") as seats:
        session = await seats["ann"].session()
    vote = parameters_of(session, NAMES["vote"])
    assert vote["required"] == ["vote", "reason"]
    assert vote["properties"]["vote"]["enum"] == ["APPROVE", "REJECT", "ABSTAIN"]
    assert "mode_version" not in parameters_of(session, NAMES["commit"])["properties"]


async def test_with_several_proposals_a_vote_must_name_one(tmp_path: Path) -> None:
    async with seated(tmp_path, "macp.mode.decision.v1") as seats:
        for option in ("a", "b"):
            await seats["ann"].send(NAMES["propose"], {"option": option})
        with pytest.raises(Rejection, match="proposal_id must say which one: p1, p2"):
            await seats["bob"].send(NAMES["vote"], {"vote": "APPROVE", "reason": "x"})


async def test_news_are_the_messages_since_the_last_look(tmp_path: Path) -> None:
    async with seated(tmp_path, "macp.mode.decision.v1") as seats:
        assert await seats["bob"].news() == ["1. chair: SessionStart What now?"]
        await seats["ann"].send(NAMES["propose"], {"option": "SQLite"})
        assert await seats["bob"].news() == [
            '2. ann: Proposal {"proposal_id":"p1","option":"SQLite"}'
        ]
        assert await seats["bob"].news() == []


def completed(**more: Any) -> AssistantMessageComplete:
    fields: dict[str, Any] = {
        "turn_index": 0,
        "model": "m-1",
        "provider": "acme",
        "blocks": [],
        "usage": Usage(input_tokens=120, output_tokens=45),
        "stop_reason": "tool_use",
        "cost_micros_usd": 2500,
        "price_as_of": None,
        "duration_ms": 80,
        "time_to_first_token_ms": 10,
    }
    return AssistantMessageComplete(**fields | more)


def test_a_model_call_is_told_once_with_its_tokens_time_and_cost() -> None:
    calls = ModelCalls()
    calls.take(completed())
    assert calls.untold() == {
        "model": "m-1",
        "provider": "acme",
        "promptTokens": 120,
        "completionTokens": 45,
        "latencyMs": 80,
        "estimatedCostUsd": 0.0025,
    }
    assert calls.untold() is None


def test_a_call_without_a_price_tells_no_cost() -> None:
    calls = ModelCalls()
    calls.take(completed(cost_micros_usd=None))
    assert "estimatedCostUsd" not in (calls.untold() or {})


async def test_watchers_of_signals_hear_of_a_model_call(tmp_path: Path) -> None:
    async with seated(tmp_path, "macp.mode.decision.v1") as seats:
        runtime: Runtime = seats["ann"].runtime
        heard = runtime.signals.subscribe()
        seats["ann"].tell_call({"model": "m-1", "promptTokens": 3})
        async with aclosing(heard.values()) as values:
            signal = read(SIGNAL, (await anext(values)).message.payload)
    assert isinstance(signal, Signal)
    assert signal.signal_type == "llm.call.completed"
    assert signal.correlation_session_id == seats["ann"].session_id
    assert msgspec.json.decode(signal.data) == {"model": "m-1", "promptTokens": 3}
