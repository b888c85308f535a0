"""A caller hears of the sessions it takes part in, and is no one else."""

from base64 import urlsafe_b64decode
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from batten.control.coordination.chair import CHAIR
from batten.coordination.envelope import Message
from batten.serve.http.keys import KEYLESS, OUR_NAMES
from tests.coordination.given import start_message
from tests.coordination.published import core, sdk
from tests.serve.grpc.running import Server, bearer, plain_stub
from tests.serve.grpc.test_access import guarded, status_of
from tests.serve.grpc.test_rejections import send
from tests.serve.grpc.test_streams import Frames, envelope, proposal, sent

pytestmark = pytest.mark.attack

__all__ = ["guarded"]


@pytest.fixture
def stub(server: Server) -> Iterator[Any]:
    with plain_stub(server) as made:
        yield made


def _started(stub: Any, sender: str, *others: str, token: str = "") -> str:
    session_id: str = sdk.new_session_id()
    message = start_message(session_id=session_id, sender=sender, participants=[sender, *others])
    assert send(stub, message, token).ok
    return session_id


def _listed(stub: Any, token: str, size: int = 0) -> list[str]:
    """The ids of all sessions that a caller is told, page by page."""
    found, page = list[str](), ""
    while True:
        request = core.ListSessionsRequest(page_size=size, page_token=page)
        answer = stub.ListSessions(request, metadata=bearer(token))
        found += [one.session_id for one in answer.sessions]
        page = answer.next_page_token
        if not page:
            return found


def test_a_caller_is_told_its_own_sessions_and_an_observer_all(guarded: Server) -> None:
    with plain_stub(guarded) as stub:
        mine = [_started(stub, "lead", "one", token="lead-token") for _ in range(3)]
        other = _started(stub, "admin", token="admin-token")
        for size in (0, 1, 2):
            assert set(mine) <= set(_listed(stub, "lead-token", size))
            assert other not in _listed(stub, "lead-token", size)
            assert set(mine) <= set(_listed(stub, "one-token", size))
            assert _listed(stub, "quorum-token", size) == []
            assert {*mine, other} <= set(_listed(stub, "watch-token", size))


def test_a_page_is_full_though_others_sessions_lie_between(guarded: Server) -> None:
    with plain_stub(guarded) as stub:
        mine = list[str]()
        for _ in range(3):
            mine.append(_started(stub, "admin", "q", token="admin-token"))
            _started(stub, "lead", token="lead-token")
        request = core.ListSessionsRequest(page_size=3)
        answer = stub.ListSessions(request, metadata=bearer("quorum-token"))
        assert [one.session_id for one in answer.sessions] == mine[::-1]
        # It names the place where the page ended, which may be another's session.
        assert b"chat_" not in urlsafe_b64decode(answer.next_page_token)


def test_watchers_hear_of_their_own_sessions(guarded: Server) -> None:
    with plain_stub(guarded) as stub:
        before = _started(stub, "admin", "one", token="admin-token")
        watching = {
            token: stub.WatchSessions(
                core.WatchSessionsRequest(), metadata=bearer(token), timeout=20
            )
            for token in ("lead-token", "watch-token")
        }
        for call in watching.values():
            call.initial_metadata()
        hidden = _started(stub, "admin", "one", token="admin-token")
        shown = _started(stub, "lead", token="lead-token")
        heard = {token: list[str]() for token in watching}
        for token, call in watching.items():
            for event in call:
                heard[token].append(event.event.session.session_id)
                if heard[token][-1] == shown:
                    break
            call.cancel()
    assert not {before, hidden} & set(heard["lead-token"])
    assert {before, hidden} <= set(heard["watch-token"])


def test_signals_of_a_session_reach_those_who_take_part(guarded: Server) -> None:
    with plain_stub(guarded) as stub:
        session_id = _started(stub, "admin", "one", token="admin-token")
        tokens = ("lead-token", "one-token", "watch-token")
        calls = [
            stub.WatchSignals(core.WatchSignalsRequest(), metadata=bearer(token), timeout=20)
            for token in tokens
        ]
        for call in calls:
            call.initial_metadata()
        inside = Message(
            message_type="Progress",
            message_id="inside",
            session_id=session_id,
            mode="macp.mode.decision.v1",
            sender="admin",
        )
        assert send(stub, inside, "admin-token").ok
        ambient = Message(message_type="Signal", message_id="ambient", sender="admin")
        assert send(stub, ambient, "admin-token").ok
        first = [next(call).envelope.message_id for call in calls]
        for call in calls:
            call.cancel()
    assert first == ["ambient", "inside", "inside"]


def test_ids_of_different_senders_do_not_collide(stub: Any) -> None:
    session_id = _started(stub, "lead", "ann", "bea")
    first = sent(stub, proposal(session_id, "ann", "p1"))
    assert (first.ok, first.duplicate) == (True, False)
    # Of the same sender it is a duplicate; of another a message of its own.
    again = sent(stub, proposal(session_id, "ann", "p1"))
    assert (again.ok, again.duplicate) == (True, True)
    evaluation = envelope(
        session_id,
        "bea",
        "Evaluation",
        "p1",
        proposal_id="p1",
        recommendation="APPROVE",
        confidence=0.5,
        reason="fine",
    )
    other = sent(stub, evaluation)
    assert (other.ok, other.duplicate) == (True, False), other
    # A stranger is not told that such a message was accepted.
    stranger = sent(stub, proposal(session_id, "eve", "p1"))
    assert (stranger.ok, stranger.duplicate, stranger.error.code) == (False, False, "FORBIDDEN")
    frames = Frames(stub, "lead")
    frames.subscribe(session_id)
    heard = [next(frames.answers).envelope for _ in range(3)]
    assert [(one.sender, one.message_id) for one in heard[1:]] == [("ann", "p1"), ("bea", "p1")]
    assert frames.end() == []


def test_a_start_is_sent_again_by_its_sender_only(stub: Any) -> None:
    session_id: str = sdk.new_session_id()
    assert send(stub, start_message(session_id=session_id, sender="lead")).ok
    assert send(stub, start_message(session_id=session_id, sender="lead")).duplicate
    taken = send(stub, start_message(session_id=session_id, sender="eve"))
    assert (taken.ok, taken.duplicate) == (False, False)
    assert taken.error.code == "SESSION_ALREADY_EXISTS"


@pytest.mark.parametrize("name", sorted({*OUR_NAMES, *KEYLESS, CHAIR, "macp-runtime", "Policy"}))
def test_no_caller_takes_the_name_of_an_author_in_development(stub: Any, name: str) -> None:
    call = core.ListSessionsRequest()
    header = (("x-macp-agent-id", name),)
    for metadata in (bearer(name), bearer(f" {name} "), header):
        status = status_of(partial(stub.ListSessions, call, metadata=metadata))
        assert status == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    assert send(stub, start_message(sender=name)).error.code == "UNAUTHENTICATED"
