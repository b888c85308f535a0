"""What a StreamSession call delivers, whatever its frames are."""

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from batten.coordination.envelope import Message
from tests.coordination.given import say, start_message
from tests.coordination.published import core, sdk, sdk_policy
from tests.serve.grpc.running import Server, bearer, grpc, plain_stub
from tests.serve.grpc.test_access import status_of, wire

_END = object()


class Frames:
    """A call whose frames are given one by one."""

    def __init__(self, stub: Any, name: str, *more: tuple[str, str]) -> None:
        """`more` metadata than who it is."""
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self.answers = stub.StreamSession(
            iter(self._asked.get, _END), metadata=(*bearer(name), *more), timeout=20
        )

    def subscribe(self, session_id: str, after: int = 0) -> None:
        frame = core.StreamSessionRequest(subscribe_session_id=session_id, after_sequence=after)
        self._asked.put(frame)

    def send(self, envelope: Any) -> None:
        self._asked.put(core.StreamSessionRequest(envelope=envelope))

    def end(self) -> list[Any]:
        """End the client's side; what is left to be read."""
        self._asked.put(_END)
        return list(self.answers)


@pytest.fixture
def stub(server: Server) -> Iterator[Any]:
    with plain_stub(server) as made:
        yield made


def envelope(
    session_id: str, sender: str, type_: str = "Proposal", id_: str = "", **fields: Any
) -> Any:
    made = wire.write_envelope(say(sender, type_, id_=id_, **fields))
    made.session_id = session_id
    return made


def proposal(session_id: str, sender: str, name: str) -> Any:
    return envelope(session_id, sender, "Proposal", name, proposal_id=name, option="merge")


def sent(stub: Any, message: Any) -> Any:
    name = message.sender
    return stub.Send(core.SendRequest(envelope=message), metadata=bearer(name)).ack


def opened(stub: Any, **fields: Any) -> str:
    """A session of lead, ann and ben."""
    session_id: str = sdk.new_session_id()
    message = start_message(session_id=session_id, **fields)
    assert sent(stub, wire.write_envelope(message)).ok
    return session_id


def ids(answers: list[Any]) -> list[str]:
    return [one.envelope.message_id or one.error.code for one in answers]


def test_call_is_answered_before_its_first_frame(stub: Any) -> None:
    frames = Frames(stub, "ann")
    frames.answers.initial_metadata()
    assert frames.end() == []
    asked = stub.StreamSession(iter(()), timeout=20)
    assert status_of(lambda: list(asked)) == ("UNAUTHENTICATED", "UNAUTHENTICATED")


def test_sequence_past_the_end_gives_what_is_new(stub: Any) -> None:
    session_id = opened(stub)
    frames = Frames(stub, "ann")
    frames.subscribe(session_id, after=1000)
    frames.send(proposal(session_id, "ann", "p1"))
    assert next(frames.answers).envelope.message_id == "p1"
    assert frames.end() == []


@pytest.mark.parametrize("is_known", [True, False])
def test_first_frame_binds_the_stream_also_if_it_is_not_accepted(stub: Any, is_known: bool) -> None:
    session_id = opened(stub)
    first = proposal(session_id, "ann", "p1")
    if is_known:
        assert sent(stub, first).ok  # the frame is a duplicate, and silent
    else:
        first.payload = b"\xff"
    frames = Frames(stub, "ann")
    frames.send(first)
    if not is_known:
        assert next(frames.answers).error.code == "INVALID_ENVELOPE"
    frames.send(proposal(session_id, "ann", "p2"))
    assert next(frames.answers).envelope.message_id == "p2"
    assert sent(stub, proposal(session_id, "ben", "p3")).ok
    assert next(frames.answers).envelope.message_id == "p3"
    assert frames.end() == []


def test_rejected_outsider_hears_nothing_of_the_session(stub: Any) -> None:
    session_id = opened(stub)
    frames = Frames(stub, "zoe")
    frames.send(proposal(session_id, "zoe", "p1"))
    assert next(frames.answers).error.code == "FORBIDDEN"
    assert sent(stub, proposal(session_id, "ben", "p2")).ok
    frames.send(proposal(session_id, "zoe", "p3"))
    assert ids(frames.end()) == ["FORBIDDEN"]


def test_subscription_after_a_message_replays_what_was_before(stub: Any) -> None:
    session_id = opened(stub)
    assert sent(stub, proposal(session_id, "ann", "p1")).ok
    frames = Frames(stub, "ann")
    frames.send(proposal(session_id, "ann", "p2"))
    assert next(frames.answers).envelope.message_id == "p2"
    frames.subscribe(session_id)
    assert [next(frames.answers).envelope.message_id for _ in range(3)] == ["m0", "p1", "p2"]
    frames.subscribe(session_id, after=2)
    assert next(frames.answers).envelope.message_id == "p2"
    frames.subscribe(session_id, after=3)
    frames.send(proposal(session_id, "ann", "p3"))
    assert next(frames.answers).envelope.message_id == "p3"
    assert frames.end() == []


@pytest.mark.parametrize("is_bound", [True, False])
def test_signal_is_no_frame_of_a_stream(stub: Any, is_bound: bool) -> None:
    frames = Frames(stub, "ann")
    if is_bound:
        frames.subscribe(opened(stub))
    frames.send(wire.write_envelope(Message(message_type="Signal", message_id="s1")))
    assert status_of(lambda: list(frames.answers)) == ("INVALID_ARGUMENT", "INVALID_REQUEST")


def test_committing_role_outside_the_panel_sees_its_commitment(server: Server, stub: Any) -> None:
    lead = server.client("lead")
    rules = sdk_policy.CommitmentRules(authority="designated_role", designated_roles=["clerk"])
    lead.register_policy(sdk_policy.build_decision_policy("policy.clerk", "", commitment=rules))
    lead.close()
    session_id = opened(stub, policy_version="policy.clerk", configuration_version="c-1")
    assert sent(stub, proposal(session_id, "ann", "p1")).ok
    commitment = envelope(
        session_id,
        "clerk",
        "Commitment",
        "c1",
        commitment_id="c1",
        action="decision.selected",
        authority_scope="tests",
        reason="agreed",
        mode_version="1.0.0",
        configuration_version="c-1",
        outcome_positive=True,
    )
    frames = Frames(stub, "clerk")
    frames.send(commitment)
    assert next(frames.answers).envelope.message_id == "c1"
    assert frames.end() == []


def test_message_of_another_mode_is_an_inline_error(stub: Any) -> None:
    session_id = opened(stub)
    other = proposal(session_id, "ann", "p1")
    other.mode = "macp.mode.quorum.v1"
    frames = Frames(stub, "ann")
    frames.send(other)
    frames.send(proposal(session_id, "ann", "p1"))
    told = next(frames.answers)
    assert (told.error.code, told.error.message_id, told.error.session_id) == (
        "INVALID_ENVELOPE",
        "p1",
        session_id,
    )
    assert ids(frames.end()) == ["p1"]
    assert frames.answers.code() == grpc.StatusCode.OK


def cancel(stub: Any, session_id: str, reason: str = "no use") -> None:
    asked = core.CancelSessionRequest(session_id=session_id, reason=reason)
    assert stub.CancelSession(asked, metadata=bearer("lead")).ack.ok


def told_cancel(session_id: str, answer: Any) -> tuple[str, str]:
    """Who cancelled, and why."""
    envelope = answer.envelope
    assert (envelope.message_type, envelope.sender) == ("SessionCancel", "macp-runtime")
    assert (envelope.session_id, envelope.mode) == (session_id, "macp.mode.decision.v1")
    assert envelope.macp_version == "1.0"
    assert envelope.message_id == f"session-cancel:{session_id}"
    assert envelope.timestamp_unix_ms > 0
    payload = core.SessionCancelPayload.FromString(envelope.payload)
    return payload.cancelled_by, payload.reason


def test_everybody_on_a_stream_hears_that_the_session_was_cancelled(stub: Any) -> None:
    session_id = opened(stub)
    early, sending = Frames(stub, "ann"), Frames(stub, "ben")
    early.subscribe(session_id)
    assert next(early.answers).envelope.message_type == "SessionStart"
    sending.send(proposal(session_id, "ben", "p1"))
    assert next(sending.answers).envelope.message_id == "p1"
    assert next(early.answers).envelope.message_id == "p1"
    cancel(stub, session_id)
    for frames in (early, sending):
        assert told_cancel(session_id, next(frames.answers)) == ("lead", "no use")
    late = Frames(stub, "ann")
    late.subscribe(session_id)
    *messages, last = late.end()
    assert ids(messages) == ["m0", "p1"]
    assert told_cancel(session_id, last) == ("lead", "no use")
    assert (early.end(), sending.end()) == ([], [])


@pytest.mark.parametrize(("after", "told"), [(0, 3), (1, 2), (2, 1), (3, 0), (1000, 0)])
def test_cancellation_has_the_place_after_the_last_message(
    stub: Any, after: int, told: int
) -> None:
    session_id = opened(stub)
    assert sent(stub, proposal(session_id, "ann", "p1")).ok
    cancel(stub, session_id)
    frames = Frames(stub, "ann")
    frames.subscribe(session_id, after=after)
    assert len(frames.end()) == told


def test_second_subscription_of_a_call_tells_the_cancellation_again(stub: Any) -> None:
    session_id = opened(stub)
    cancel(stub, session_id)
    frames = Frames(stub, "ann")
    frames.subscribe(session_id)
    assert [next(frames.answers).envelope.message_type for _ in range(2)] == [
        "SessionStart",
        "SessionCancel",
    ]
    frames.subscribe(session_id, after=1)
    assert [one.envelope.message_type for one in frames.end()] == ["SessionCancel"]


def suspended_and_resumed(stub: Any, session_id: str) -> None:
    suspend = core.SuspendSessionRequest(session_id=session_id, reason="lunch")
    assert stub.SuspendSession(suspend, metadata=bearer("lead")).ack.ok
    resume = core.ResumeSessionRequest(session_id=session_id, reason="eaten")
    assert stub.ResumeSession(resume, metadata=bearer("lead")).ack.ok


def test_participant_that_asks_for_it_hears_of_a_suspension_and_its_end(stub: Any) -> None:
    session_id = opened(stub)
    frames = Frames(stub, "ann", ("batten-suspensions", "1"))
    frames.subscribe(session_id)
    assert next(frames.answers).envelope.message_type == "SessionStart"
    suspended_and_resumed(stub, session_id)
    suspended, resumed = next(frames.answers).envelope, next(frames.answers).envelope
    assert (suspended.message_type, resumed.message_type) == ("SessionSuspend", "SessionResume")
    assert {suspended.sender, resumed.sender} == {"macp-runtime"}
    assert {suspended.session_id, resumed.session_id} == {session_id}
    why = core.SessionSuspendPayload.FromString(suspended.payload)
    assert (why.suspended_by, why.reason) == ("lead", "lunch")
    after = core.SessionResumePayload.FromString(resumed.payload)
    assert (after.resumed_by, after.reason) == ("lead", "eaten")
    assert after.banked_ms == resumed.timestamp_unix_ms - suspended.timestamp_unix_ms
    assert sent(stub, proposal(session_id, "ben", "p1")).ok
    assert ids(frames.end()) == ["p1"]


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (0, ["SessionStart", "SessionSuspend", "SessionResume", "Proposal"]),
        (1, ["SessionSuspend", "SessionResume", "Proposal"]),
        (2, []),
    ],
)
def test_suspension_has_no_place_among_the_messages(stub: Any, after: int, told: list[str]) -> None:
    session_id = opened(stub)
    suspended_and_resumed(stub, session_id)
    assert sent(stub, proposal(session_id, "ann", "p1")).ok
    asking, counting = Frames(stub, "ann", ("batten-suspensions", "1")), Frames(stub, "ann")
    for frames, types in (
        (asking, told),
        (counting, [one for one in told if one in ("SessionStart", "Proposal")]),
    ):
        frames.subscribe(session_id, after=after)
        assert [one.envelope.message_type for one in frames.end()] == types


def test_nobody_sends_a_cancellation_as_a_message(stub: Any) -> None:
    session_id = opened(stub)
    forged = proposal(session_id, "lead", "c1")
    forged.message_type = "SessionCancel"
    forged.payload = core.SessionCancelPayload(reason="no use").SerializeToString()
    assert sent(stub, forged).error.code in ("FORBIDDEN", "INVALID_ENVELOPE")
