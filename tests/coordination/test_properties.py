"""Random legal and illegal messages over every mode: the tables hold, and folds equal replays."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batten.coordination.engine import Accepted, Engine, Event, read_opening, rebuild, start
from batten.coordination.envelope import Message
from batten.coordination.payloads import COMMITMENT, SESSION_START, write
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import BUILT_IN, ModeRegistry, PolicyRegistry
from batten.coordination.rejection import Rejection
from tests.coordination.given import NOW_MS, SESSION_ID
from tests.coordination.test_conformance import picture
from tests.examples import examples

SENDERS = ("lead", "ann", "ben", "outsider", "")
IDS = ("x1", "x2", "")
RULES: dict[str, tuple[str, ...]] = {
    "macp.mode.decision.v1": (
        "{}",
        '{"voting": {"algorithm": "majority"}, "commitment": {"require_vote_quorum": true}}',
        '{"voting": {"algorithm": "unanimous"}, "commitment": {"authority": "any_participant"}}',
        '{"objection_handling": {"critical_severity_vetoes": true}}',
        '{"evaluation": {"required_before_voting": true}}',
    ),
    "macp.mode.proposal.v1": (
        "{}",
        '{"acceptance": {"criterion": "counterparty"}, "counter_proposal": {"max_rounds": 1}}',
        '{"acceptance": {"criterion": "initiator"}}',
        '{"rejection": {"terminal_on_any_reject": true}}',
    ),
    "macp.mode.task.v1": (
        "{}",
        '{"assignment": {"allow_reassignment_on_reject": true}}',
        '{"completion": {"require_output": true}}',
    ),
    "macp.mode.handoff.v1": ("{}", '{"acceptance": {"implicit_accept_timeout_ms": 3}}'),
    "macp.mode.quorum.v1": (
        "{}",
        '{"threshold": {"type": "percentage", "value": 50}}',
        '{"threshold": {"value": 3}}',
    ),
    "ext.multi_round.v1": ("{}",),
}
TEXTS: dict[str, tuple[str, ...]] = {
    "vote": ("APPROVE", "reject", "ABSTAIN", "maybe"),
    "recommendation": ("APPROVE", "REVIEW", "block", "x"),
    "severity": ("critical", "LOW", "", "x"),
    "value": ("a", "b"),
    "option": ("a", " "),
    "action": ("done.selected", "done.rejected", "done", ""),
    "mode_version": ("1.0.0", "2"),
    "configuration_version": ("c-1", "c-2"),
    "policy_version": ("", "policy.t", "other"),
}


def value_of(name: str, kind: Any) -> st.SearchStrategy[Any]:
    if name in TEXTS:
        return st.sampled_from(TEXTS[name])
    if name in ("target_participant", "requested_assignee", "assignee", "accepted_by"):
        return st.sampled_from(SENDERS)
    if name.endswith("_id"):
        return st.sampled_from(IDS)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(0, 4)
    if kind is float:
        return st.sampled_from((0.0, 0.5, 1.0, 2.0, float("nan")))
    if kind is bytes:
        return st.sampled_from((b"", b"x"))
    return st.just("text")


def payloads(mode: str, message_type: str) -> st.SearchStrategy[bytes]:
    wire = BUILT_IN[mode].payloads.get(message_type, COMMITMENT)
    names = {
        name: value_of(name, wire.value.__annotations__[name])
        for name in wire.value.__struct_fields__
        if name not in ("tags", "supersedes")
    }
    good = st.fixed_dictionaries(names).map(lambda fields: write(wire, fields))
    return st.one_of(good, good, good, good, st.binary(max_size=8))


def messages(mode: str) -> st.SearchStrategy[tuple[str, str, bytes, int]]:
    """Sender, type, payload, and the milliseconds that pass before it."""
    types = [*BUILT_IN[mode].payloads, "Commitment", "Commitment", "Nonsense"]
    return st.sampled_from(types).flatmap(
        lambda type_: st.tuples(
            st.sampled_from(SENDERS), st.just(type_), payloads(mode, type_), st.integers(0, 2)
        )
    )


def new_session(mode: str, rules: str, initiator_listed: bool) -> tuple[Engine, Accepted]:
    policy = PolicyDescriptor(policy_id="policy.t", mode=mode, rules=rules, schema_version=2)
    listed = initiator_listed or mode == "macp.mode.handoff.v1"
    fields = {
        "participants": ["lead", "ann", "ben"] if listed else ["ann", "ben"],
        "mode_version": "1.0.0",
        "configuration_version": "c-1",
        "policy_version": "policy.t",
        "ttl_ms": 60,
    }
    message = Message(
        mode=mode,
        message_type="SessionStart",
        message_id="m0",
        session_id=SESSION_ID,
        sender="lead",
        payload=write(SESSION_START, fields),
    )
    registry = PolicyRegistry().register(policy)
    return start(read_opening(message, ModeRegistry()), registry, NOW_MS)


def is_entitled(engine: Engine, sender: str, who: str) -> bool:
    panel = engine.session.panel
    if who == "initiator":
        return sender == "lead"
    if who == "authority":
        anybody = panel.policy.rules.commitment.authority == "any_participant"
        return sender == "lead" or (anybody and sender in panel.participants)
    return sender in panel.participants


@pytest.mark.parametrize("mode", list(RULES))
@given(data=st.data())
@settings(max_examples=examples(150), deadline=None)
def test_engine_accepts_only_what_its_table_allows_and_replays_equal(
    mode: str, data: st.DataObject
) -> None:
    check_table_and_replay(mode, data)


@pytest.mark.soak
@pytest.mark.parametrize("mode", list(RULES))
@given(data=st.data())
@settings(max_examples=2000, deadline=None)
def test_engine_accepts_only_what_its_table_allows_in_thousands_of_sessions(
    mode: str, data: st.DataObject
) -> None:
    check_table_and_replay(mode, data)


def check_table_and_replay(mode: str, data: st.DataObject) -> None:
    rules = data.draw(st.sampled_from(RULES[mode]))
    engine, first = new_session(mode, rules, data.draw(st.booleans()))
    now, events = NOW_MS, list[Event]()
    places = {(row.phase, row.message): row for row in BUILT_IN[mode].rows}
    for number, (sender, type_, payload, pause) in enumerate(
        data.draw(st.lists(messages(mode), max_size=25)), 1
    ):
        now += pause
        events += engine.advance(now)
        before = picture(engine)
        phase = engine.session.mode_state.phase
        message = Message(
            mode=mode,
            message_type=type_,
            message_id=f"m{number}",
            session_id=SESSION_ID,
            sender=sender,
            payload=payload,
        )
        try:
            events.append(engine.receive(message, now))
        except Rejection:
            assert picture(engine) == before
            continue
        row = places[phase, type_]
        assert engine.session.mode_state.phase in row.next
        assert is_entitled(engine, sender, row.who)
        assert (engine.session.state == "RESOLVED") == (type_ == "Commitment")
    again = rebuild(first, engine.session.mode, engine.session.policy.descriptor, events)
    assert picture(again) == picture(engine)


@given(st.binary(max_size=60), st.sampled_from(["SessionStart", "Vote", "Signal", ""]))
def test_no_bytes_crash_a_start(payload: bytes, type_: str) -> None:
    for mode in BUILT_IN:
        message = Message(
            mode=mode,
            message_type=type_,
            message_id="m0",
            session_id=SESSION_ID,
            sender="lead",
            payload=payload,
        )
        try:
            engine, _ = start(read_opening(message, ModeRegistry()), PolicyRegistry(), NOW_MS)
        except Rejection:
            continue
        assert engine.session.state == "OPEN"


def test_every_row_of_every_table_leads_to_a_phase_of_the_table() -> None:
    for mode in BUILT_IN.values():
        phases = {row.phase for row in mode.rows} | {"Committed"}
        assert {phase for row in mode.rows for phase in row.next} <= phases
        assert mode.first.phase in phases
        assert {row.message for row in mode.rows} == {
            *mode.descriptor.message_types,
        } - {"SessionStart"}
