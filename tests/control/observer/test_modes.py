"""One session of each mode, seen by an observer as the runtime itself sees it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from batten.control.coordination.ids import journal_session
from batten.control.observer.hosted import TOKEN_VARIABLE
from batten.journal.contract import Journal
from batten.journal.sqlite import SqliteJournal
from batten.protocols.macp.events import CanonicalEvent
from batten.serve.grpc import wire
from tests.control.observer.elsewhere import (
    OBSERVER,
    agent,
    describe,
    elsewhere,
    events_of,
    in_thread,
    observing,
)
from tests.control.views.sessions import SESSIONS, spoken
from tests.coordination.published import sdk
from tests.coordination.scripts import each_script, load, messages, policy_of, start_message
from tests.serve.grpc.running import Server, bearer, plain_stub, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with elsewhere(tmp_path_factory.mktemp("elsewhere")) as started:
        yield started


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A runtime in development, where a token is the sender's name, except the observer's."""
    home = tmp_path_factory.mktemp("lenient")
    with running(home, **{TOKEN_VARIABLE: OBSERVER}) as started:
        yield started


def speak(server: Server, mode: str, session_id: str) -> None:
    """Send the mode's session, each message by its own agent."""
    clients: dict[str, Any] = {}
    for message in spoken(mode):
        if message.sender not in clients:
            clients[message.sender] = agent(server.address, message.sender)
        envelope = wire.write_envelope(replace(message, session_id=session_id))
        clients[message.sender].send(envelope)
    for client in clients.values():
        client.close()


async def own_events(server: Server, session_id: str) -> list[CanonicalEvent]:
    """What the runtime's own home tells of the session."""
    journal: Journal = SqliteJournal.open(server.home)
    try:
        row = await journal.session(journal_session(session_id))
        assert row is not None
        assert row.last_run_id is not None
        return await events_of(journal, row.last_run_id)
    finally:
        journal.close()


def of_messages(events: list[CanonicalEvent]) -> list[tuple[Any, ...]]:
    """What came of messages and their policy; each home has its own runs, times and name."""
    return [
        (one.type, one.subject, _told(one))
        for one in events
        if one.source.kind == "runtime" and one.type not in _OWN
    ]


def _told(event: CanonicalEvent) -> dict[str, Any]:
    if not event.type.startswith("policy."):
        return event.data
    return {name: value for name, value in event.data.items() if name != "sender"}


_OWN = frozenset({"message.send_failed", "session.state.changed"})
"""What only the runtime itself knows, or an observer asks for."""


@pytest.mark.parametrize("mode", SESSIONS)
async def test_a_session_elsewhere_has_the_events_of_one_at_home(
    tmp_path: Path, server: Server, mode: str
) -> None:
    session_id = sdk.new_session_id()
    async with observing(tmp_path, server.address) as here:
        run_id = await describe(here.journal, session_id, mode=mode)
        await in_thread(speak, server, mode, session_id)
        assert (await here.ended(run_id)).status == "completed"
        seen = of_messages(await here.events(run_id))
    assert seen == of_messages(await own_events(server, session_id))
    assert len([one for one in seen if one[0] == "message.received"]) == len(spoken(mode))
    assert seen[-1][0] == "decision.finalized"
    assert [one[0] for one in seen[:2]] == ["policy.resolved", "message.received"]


@each_script
async def test_a_conformance_script_is_seen_as_the_runtime_sees_it(
    tmp_path: Path, lenient: Server, path: Path
) -> None:
    script, session_id = load(path), sdk.new_session_id()
    async with observing(tmp_path, lenient.address) as here:
        run_id = await describe(here.journal, session_id, mode=script["mode"])
        await in_thread(act, lenient, script, session_id)
        own = of_messages(await own_events(lenient, session_id))
        count = sum(one[0] == "message.received" for one in own)
        await here.until_said(run_id, count)
        await here.until_judged(run_id, sum(one[0].startswith("policy.") for one in own))
        if script["expected_final_state"] == "Resolved":
            assert (await here.ended(run_id)).status == "completed"
        assert of_messages(await here.events(run_id)) == own


def act(server: Server, script: Any, session_id: str) -> None:
    """Play a script, whatever the runtime makes of its messages."""
    policy = policy_of(script)
    with plain_stub(server) as stub:
        if policy is not None:
            described = wire.policy_descriptor(policy)
            asked = wire.policies.RegisterPolicyRequest(policy_descriptor=described)
            stub.RegisterPolicy(asked, metadata=bearer("admin"))
        said = [message for message, _ in messages(script, session_id)]
        for message in [start_message(script, session_id), *said]:
            request = wire.core.SendRequest(envelope=wire.write_envelope(message))
            stub.Send(request, metadata=bearer(message.sender))
