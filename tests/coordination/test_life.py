"""The life of a session: what it may start with, when it ends, and who may end it."""

from typing import Any

import pytest

from batten.coordination.engine import Accepted, Changed, read_opening, rebuild, start
from batten.coordination.envelope import Message, check_ambient, check_shape
from batten.coordination.modes.mode import Descriptor
from batten.coordination.payloads import SIGNAL, write
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import ModeRegistry, PolicyRegistry
from batten.coordination.rejection import Rejection
from batten.coordination.session import LATEST_MS
from tests.coordination.given import (
    HANDOFF,
    NOW_MS,
    commitment,
    open_session,
    say,
    start_message,
)


def refused_start(message: Message, modes: ModeRegistry | None = None) -> str:
    with pytest.raises(Rejection) as refused:
        start(read_opening(message, modes or ModeRegistry()), PolicyRegistry(), NOW_MS)
    return refused.value.macp_code


@pytest.mark.parametrize(
    "session_id",
    [
        "short",
        "0190B2F0-0000-7000-8000-000000000001",
        "0190b2f0-0000-1000-8000-000000000001",
        "a" * 129,
        "a" * 21 + "=",
    ],
)
def test_session_id_that_is_neither_uuid_nor_base64url_is_refused(session_id: str) -> None:
    assert refused_start(start_message(session_id=session_id)) == "INVALID_SESSION_ID"


def test_session_id_may_be_22_base64url_characters() -> None:
    open_session(session_id="abcdefghijklmnopqrstu_")


@pytest.mark.parametrize(
    "fields",
    [
        {"ttl_ms": 0},
        {"ttl_ms": 86_400_001},
        {"mode_version": "2.0.0"},
        {"mode_version": ""},
        {"configuration_version": " "},
        {"participants": ["ann", " ann"]},
        {"participants": ["ann", ""]},
        {"participants": [f"a{n}" for n in range(1001)]},
        {"max_suspend_ms": -1},
    ],
)
def test_session_start_with_a_bad_field_is_refused(fields: dict[str, Any]) -> None:
    assert refused_start(start_message(**fields)) == "INVALID_ENVELOPE"


@pytest.mark.parametrize("mode", [f"macp.mode.{one}.v1" for one in ("proposal", "task", "quorum")])
def test_participants_are_demanded_before_the_policy_is_looked_up(mode: str) -> None:
    nobody = start_message(mode, participants=(), policy_version="policy.none")
    assert refused_start(nobody) == "INVALID_ENVELOPE"


def test_session_start_names_a_known_mode_and_policy() -> None:
    assert refused_start(start_message("macp.mode.unknown.v1")) == "MODE_NOT_SUPPORTED"
    unknown = start_message(policy_version="policy.none")
    assert refused_start(unknown) == "UNKNOWN_POLICY_VERSION"
    other = PolicyDescriptor(policy_id="policy.q", mode="macp.mode.quorum.v1")
    with pytest.raises(Rejection, match=r"is for macp\.mode\.quorum"):
        start(
            read_opening(start_message(policy_version="policy.q"), ModeRegistry()),
            PolicyRegistry().register(other),
            NOW_MS,
        )


def test_decision_without_participants_is_open_to_everybody() -> None:
    engine = open_session(participants=())
    engine.receive(say("zoe", "Proposal", proposal_id="p1", option="a"), NOW_MS)
    with pytest.raises(Rejection, match="only the initiator"):
        engine.receive(commitment("zoe"), NOW_MS)


def test_deadline_counts_from_the_envelope_and_passes_one_millisecond_later() -> None:
    engine = open_session(timestamp_unix_ms=NOW_MS - 10_000)
    assert engine.session.deadline_ms == NOW_MS + 50_000
    assert engine.advance(NOW_MS + 50_000) == []
    assert engine.next_deadline_ms() == NOW_MS + 50_001
    (event,) = engine.advance(NOW_MS + 50_001)
    assert isinstance(event, Changed)
    assert (event.state, engine.session.state) == ("EXPIRED", "EXPIRED")
    with pytest.raises(Rejection, match="expired"):
        engine.receive(say("ann", "Proposal", proposal_id="p1", option="a"), NOW_MS + 50_002)


def test_no_deadline_is_later_than_the_protocol_can_tell() -> None:
    engine = open_session(timestamp_unix_ms=LATEST_MS)
    assert engine.session.deadline_ms == LATEST_MS
    engine.suspend("lead", "lunch", NOW_MS)
    engine.resume("lead", "back", NOW_MS + 1000)
    assert engine.session.deadline_ms == LATEST_MS


def test_resumed_session_gets_back_the_time_it_was_suspended() -> None:
    engine = open_session()
    engine.suspend("lead", "lunch", NOW_MS + 1000)
    with pytest.raises(Rejection, match="suspended"):
        engine.receive(say("ann", "Proposal", proposal_id="p1", option="a"), NOW_MS + 2000)
    with pytest.raises(Rejection, match="suspended"):
        engine.suspend("lead", "again", NOW_MS + 2000)
    assert engine.advance(NOW_MS + 100_000) == []
    event = engine.resume("lead", "back", NOW_MS + 100_000)
    assert event.banked_ms == 99_000
    assert engine.session.deadline_ms == NOW_MS + 60_000 + 99_000
    with pytest.raises(Rejection, match="open"):
        engine.resume("lead", "twice", NOW_MS + 100_000)


def test_suspension_beyond_its_limit_expires_the_session() -> None:
    engine = open_session(max_suspend_ms=5000)
    engine.suspend("lead", "", NOW_MS)
    assert engine.next_deadline_ms() == NOW_MS + 5001
    assert engine.advance(NOW_MS + 5000) == []
    (event,) = engine.advance(NOW_MS + 5001)
    assert isinstance(event, Changed)
    assert event.state == "EXPIRED"


def test_only_the_initiator_or_a_committing_authority_cancels() -> None:
    engine = open_session()
    with pytest.raises(Rejection) as refused:
        engine.cancel("ann", "", NOW_MS)
    assert refused.value.macp_code == "FORBIDDEN"
    policy = PolicyDescriptor(
        policy_id="policy.any", rules='{"commitment": {"authority": "any_participant"}}'
    )
    shared = open_session(policy=policy)
    assert shared.cancel("ann", "no use", NOW_MS) is not None
    assert shared.cancel("ben", "me too", NOW_MS) is None
    assert shared.session.state == "CANCELLED"


def test_unanswered_offer_is_accepted_implicitly_when_its_time_has_passed() -> None:
    policy = PolicyDescriptor(
        policy_id="policy.implicit",
        mode=HANDOFF,
        rules='{"acceptance": {"implicit_accept_timeout_ms": 5000}}',
    )
    engine = open_session(HANDOFF, policy, participants=("lead", "ben"))
    first = Accepted(
        message=start_message(
            HANDOFF, policy_version="policy.implicit", participants=("lead", "ben")
        ),
        at_ms=NOW_MS,
        ordinal=1,
        state="OPEN",
    )
    offer = engine.receive(
        say("lead", "HandoffOffer", HANDOFF, handoff_id="h1", target_participant="ben"), NOW_MS
    )
    assert engine.advance(NOW_MS + 4999) == []
    events = engine.advance(NOW_MS + 9000)
    (accepted,) = events
    assert isinstance(accepted, Accepted)
    assert (accepted.message.message_id, accepted.message.sender, accepted.at_ms) == (
        "implicit-accept:h1",
        "ben",
        NOW_MS + 5000,
    )
    assert engine.session.mode_state.phase == "Accepted"
    again = rebuild(first, engine.session.mode, policy, [offer, *events])
    assert again.session.mode_state == engine.session.mode_state


def test_time_suspended_does_not_count_towards_an_implicit_acceptance() -> None:
    policy = PolicyDescriptor(
        policy_id="policy.implicit",
        mode=HANDOFF,
        rules='{"acceptance": {"implicit_accept_timeout_ms": 5000}}',
    )
    engine = open_session(HANDOFF, policy, participants=("lead", "ben"))
    engine.receive(
        say("lead", "HandoffOffer", HANDOFF, handoff_id="h1", target_participant="ben"), NOW_MS
    )
    engine.suspend("lead", "", NOW_MS + 1000)
    assert engine.advance(NOW_MS + 20_000) == []
    engine.resume("lead", "", NOW_MS + 21_000)
    assert engine.advance(NOW_MS + 24_999) == []
    (accepted,) = engine.advance(NOW_MS + 25_000)
    assert isinstance(accepted, Accepted)
    assert (accepted.message.message_id, accepted.at_ms) == ("implicit-accept:h1", NOW_MS + 25_000)


def test_extension_mode_takes_its_listed_messages_and_the_initiators_commitment() -> None:
    listed = Descriptor(
        mode="ext.standup.v1", mode_version="3", message_types=("Report", "Commitment")
    )
    modes = ModeRegistry().register(listed)
    engine = open_session("ext.standup.v1", modes=modes, mode_version="", ttl_ms=0)
    assert engine.session.mode_version == "3"
    report = Message(mode="ext.standup.v1", message_type="Report", message_id="r", sender="ann")
    engine.receive(report, NOW_MS)
    unknown = Message(mode="ext.standup.v1", message_type="Shout", message_id="s", sender="ann")
    with pytest.raises(Rejection, match="no message Shout"):
        engine.receive(unknown, NOW_MS)
    with pytest.raises(Rejection, match="who started the session"):
        engine.receive(commitment("ann", "ext.standup.v1", mode_version="3"), NOW_MS)
    engine.receive(commitment("lead", "ext.standup.v1", mode_version="3"), NOW_MS)
    assert engine.session.resolution == b'{"action":"decision.selected","commitment_id":"c1"}'


def test_promoted_mode_is_strict_listed_and_stays() -> None:
    listed = Descriptor(mode="ext.a.v1", mode_version="1", message_types=("X", "Commitment"))
    modes = ModeRegistry().register(listed).promote("ext.a.v1", "org.a.v1")
    assert "org.a.v1" in [mode.mode for mode in modes.standard]
    assert modes.find("ext.a.v1") is None
    assert refused_start(start_message("org.a.v1", ttl_ms=0), modes) == "INVALID_ENVELOPE"
    nobody = start_message("org.a.v1", mode_version="1", participants=())
    assert refused_start(nobody, modes) == "INVALID_ENVELOPE"
    with pytest.raises(Rejection, match="stays"):
        modes.unregister("org.a.v1")


@pytest.mark.parametrize(
    "descriptor",
    [
        Descriptor(mode=" ", mode_version="1", message_types=("X", "Commitment")),
        Descriptor(mode="macp.mode.x.v1", mode_version="1", message_types=("Commitment",)),
        Descriptor(mode="ext.multi_round.v1", mode_version="1", message_types=("Commitment",)),
        Descriptor(mode="ext.x.v1", mode_version="", message_types=("Commitment",)),
        Descriptor(mode="ext.x.v1", mode_version="1", message_types=()),
        Descriptor(mode="ext.x.v1", mode_version="1", message_types=("X",)),
        Descriptor(
            mode="ext.x.v1",
            mode_version="1",
            message_types=("X", "Commitment"),
            terminal_message_types=("X",),
        ),
    ],
)
def test_extension_mode_with_a_bad_descriptor_is_refused(descriptor: Descriptor) -> None:
    with pytest.raises(Rejection):
        ModeRegistry().register(descriptor)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (
            Message(message_type="Vote", message_id="m", macp_version="2.0"),
            "UNSUPPORTED_PROTOCOL_VERSION",
        ),
        (Message(message_type="", message_id="m"), "INVALID_ENVELOPE"),
        (Message(message_type="Vote", message_id=""), "INVALID_ENVELOPE"),
        (Message(message_type="Vote", message_id="m", session_id="s"), "INVALID_ENVELOPE"),
        (Message(message_type="Signal", message_id="m", session_id="s"), "INVALID_ENVELOPE"),
        (Message(message_type="Progress", message_id="m", mode="x"), "INVALID_ENVELOPE"),
        (Message(message_type="Progress", message_id="m", session_id="s"), "INVALID_ENVELOPE"),
        (
            Message(
                message_type="Vote",
                message_id="m",
                session_id="s",
                mode="x",
                payload=bytes(1_048_577),
            ),
            "PAYLOAD_TOO_LARGE",
        ),
    ],
)
def test_envelope_of_a_wrong_shape_is_refused(message: Message, code: str) -> None:
    with pytest.raises(Rejection) as refused:
        check_shape(message)
    assert refused.value.macp_code == code


def test_signal_needs_a_type_once_it_has_a_payload() -> None:
    check_ambient(Message(message_type="Signal", message_id="m"))
    check_ambient(
        Message(message_type="Signal", message_id="m", payload=write(SIGNAL, {"signal_type": "a"}))
    )
    blank = Message(message_type="Signal", message_id="m", payload=write(SIGNAL, {"data": b"x"}))
    with pytest.raises(Rejection, match="signal_type"):
        check_ambient(blank)
