"""An observer follows sessions of a real runtime elsewhere, from before they open to their end."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from batten.contract import facts
from tests.control.coordination.given import SECRET
from tests.control.observer.elsewhere import (
    FRAME,
    OBSERVER,
    describe,
    elsewhere,
    in_thread,
    observing,
    panel,
    transcript,
)
from tests.control.observer.recording import recording_runtime
from tests.coordination.published import sdk
from tests.serve.grpc.running import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with elsewhere(tmp_path_factory.mktemp("elsewhere")) as started:
        yield started


async def test_d35_a_run_posted_before_its_session_is_followed_to_its_end(
    tmp_path: Path, server: Server
) -> None:
    session_id = sdk.new_session_id()
    async with observing(tmp_path, server.address) as here:
        run_id = await describe(here.journal, session_id)
        await here.until(run_id, facts.RunStarted.TYPE)
        with panel(server.address, session_id) as agents:
            await in_thread(agents.start)
            await in_thread(agents.propose, 1)
            await in_thread(agents.commit)
        row = await here.ended(run_id)
        assert row.status == "completed"
        events = await here.events(run_id)
        assert [event.type for event in events] == [
            "run.created",
            "run.started",
            "session.bound",
            *(["participant.seen"] * 3),
            "session.state.changed",
            "session.stream.opened",
            "artifact.created",
            "policy.resolved",
            "message.received",
            "message.received",
            "proposal.created",
            "policy.commitment.evaluated",
            "message.received",
            "decision.finalized",
            "session.state.changed",
            "run.completed",
        ]
        seen = [event.data["messageId"] for event in events if event.type == "message.received"]
        assert seen == transcript(server, session_id, 3)


async def test_a_session_that_ends_between_two_polls_is_seen_whole(
    tmp_path: Path, server: Server
) -> None:
    with panel(server.address) as agents:
        await in_thread(agents.start)
        await in_thread(agents.propose, 1)
        await in_thread(agents.commit)
        session_id = agents.session_id
    async with observing(tmp_path, server.address) as here:
        run_id = await describe(here.journal, session_id)
        row = await here.ended(run_id)
        assert row.status == "completed"
        assert [one.message_type for one in await here.said(run_id)] == [
            "SessionStart",
            "Proposal",
            "Commitment",
        ]
        states = await here.states(run_id)
        assert states == ["SESSION_STATE_OPEN", "SESSION_STATE_RESOLVED"]


async def test_a_session_that_expires_fails_its_run_with_that_code(
    tmp_path: Path, server: Server
) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as agents:
            run_id = await describe(here.journal, agents.session_id)
            await in_thread(agents.start, 1000)
            row = await here.ended(run_id)
        assert row.status == "failed"
        failed = await here.one(run_id, facts.RunFailed)
        assert (failed.code, failed.outcome) == ("SESSION_EXPIRED", "timeout")
        assert (await here.states(run_id))[-1] == "SESSION_STATE_EXPIRED"


async def test_a_session_that_agents_cancel_cancels_its_run(tmp_path: Path, server: Server) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as agents:
            run_id = await here.followed(agents)
            await in_thread(partial(agents.session.cancel, reason="no use"))
            row = await here.ended(run_id)
        assert row.status == "cancelled"
        assert (await here.states(run_id))[-1] == "SESSION_STATE_CANCELLED"
        fact = await here.one(run_id, facts.RunCancelled)
        assert (fact.by, fact.reason) == ("lead", "no use")
        said = [one.message_type for one in await here.said(run_id)]
        assert "SessionCancel" not in said  # its sender, the runtime, takes no part


async def test_suspending_and_resuming_are_told(tmp_path: Path, server: Server) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as agents:
            run_id = await here.followed(agents)
            lead = agents.clients["lead"]
            await in_thread(lead.suspend_session, agents.session_id)
            await here.until(run_id, FRAME, 3)
            await in_thread(lead.resume_session, agents.session_id)
            await here.until(run_id, FRAME, 4)
            await in_thread(agents.commit_after, 1)
            await here.ended(run_id)
        assert await here.states(run_id) == [
            "SESSION_STATE_OPEN",
            "SESSION_STATE_SUSPENDED",
            "SESSION_STATE_OPEN",
            "SESSION_STATE_RESOLVED",
        ]


async def test_a_mode_that_the_runtime_lacks_fails_the_run(tmp_path: Path, server: Server) -> None:
    async with observing(tmp_path, server.address) as here:
        run_id = await describe(here.journal, sdk.new_session_id(), mode="macp.mode.chess.v1")
        await here.ended(run_id)
        failed = await here.one(run_id, facts.RunFailed)
        assert failed.code == "MODE_NOT_SUPPORTED"
        assert "macp.mode.chess.v1" in failed.message
        assert "macp.mode.decision.v1" in failed.message


async def test_a_session_that_does_not_open_in_time_fails_the_run(
    tmp_path: Path, server: Server
) -> None:
    async with observing(tmp_path, server.address, session_poll_timeout_ms=300) as here:
        run_id = await describe(here.journal, sdk.new_session_id())
        await here.ended(run_id)
        failed = await here.one(run_id, facts.RunFailed)
        assert failed.code == "RUNTIME_TIMEOUT"
        assert "did not open within 0.3 s" in failed.message
        types = [event.type for event in await here.events(run_id)]
        assert types == ["run.created", "run.started", "run.failed"]


async def test_a_session_that_is_silent_longer_than_the_idle_time_goes_on(
    tmp_path: Path, server: Server
) -> None:
    """The fourth idea of the reference's list of traps."""
    async with observing(tmp_path, server.address, stream_idle_timeout_ms=50) as here:
        with panel(server.address) as agents:
            run_id = await here.followed(agents)
            with pytest.raises(TimeoutError):  # many idle times pass, and nothing happens
                async with asyncio.timeout(1):
                    await here.until(run_id, FRAME, 3)
            await in_thread(agents.commit_after, 1)
            row = await here.ended(run_id)
        assert row.status == "completed"
        assert len(await here.said(run_id)) == 3
        assert not [one for one in await here.events(run_id) if "reconnecting" in str(one.data)]


async def test_signals_of_a_session_are_told_once_with_their_sender(
    tmp_path: Path, server: Server
) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as agents, panel(server.address) as others:
            run_id = await here.followed(agents)
            await in_thread(others.signal, "ben", "risk.other")
            sent = await here.heard(run_id, partial(agents.signal, "ann", "risk.flag"))
            await in_thread(agents.commit_after, 1)
            await here.ended(run_id)
        events = [one for one in await here.events(run_id) if one.type == "signal.emitted"]
        assert events
        assert {one.data["sender"] for one in events} == {"ann"}
        assert {one.data["decodedPayload"]["signalType"] for one in events} == {"risk.flag"}
        ids = [one.data["messageId"] for one in events]
        assert len(ids) == len(set(ids)) <= len(sent)
        seen = [one for one in await here.events(run_id) if one.type == "participant.seen"]
        assert len(seen) == 3


async def test_a_stranger_s_signal_about_a_session_stays_out_of_its_run(
    tmp_path: Path, server: Server
) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as agents:
            run_id = await here.followed(agents)
            await here.heard(run_id, partial(agents.signal, "ann", "risk.flag"))
            await in_thread(agents.signal, "weak", "risk.forged")
            await here.heard(run_id, partial(agents.signal, "ben", "risk.later"))
            await in_thread(agents.commit_after, 1)
            await here.ended(run_id)
        told = [one for one in await here.events(run_id) if one.type == "signal.emitted"]
        assert {one.data["sender"] for one in told} == {"ann", "ben"}
        seen = [one for one in await here.events(run_id) if one.type == "participant.seen"]
        assert {one.data["participantId"] for one in seen} == {"lead", "ann", "ben"}


async def test_a_signal_is_told_though_another_message_has_its_id(
    tmp_path: Path, server: Server
) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as agents:
            run_id = await here.followed(agents)
            await here.heard(run_id, partial(agents.signal, "ann", "risk.first"))
            taken = (await here.said(run_id))[0].message_id
            assert isinstance(taken, str)
            for name in ("ann", "ben", "ann"):
                await in_thread(partial(agents.signal, name, "risk.flag", id_=taken))
            await here.heard(run_id, partial(agents.signal, "ben", "risk.last"))
        told = [one for one in await here.events(run_id) if one.type == "signal.emitted"]
        assert [one.data["sender"] for one in told if one.data["messageId"] == taken] == [
            "ann",
            "ben",
        ]


async def test_without_named_participants_everybody_may_signal(
    tmp_path: Path, server: Server
) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as agents:
            run_id = await describe(here.journal, agents.session_id)
            await in_thread(partial(agents.session.start, intent="x", participants=[], ttl_ms=9999))
            await here.until(run_id, FRAME, 2)
            await here.heard(run_id, partial(agents.signal, "ann", "risk.flag"))


async def test_a_secret_in_a_message_is_sealed(tmp_path: Path, server: Server) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as agents:
            hidden = ["number [0-9]+"]
            run_id = await describe(here.journal, agents.session_id, redact=hidden)
            await in_thread(agents.start)
            await in_thread(agents.session.propose, "p1", f"use {SECRET}")
            await in_thread(agents.session.propose, "p2", "call number 12345")
            await in_thread(agents.session.propose, "p3", "x" * 100_000)
            await in_thread(agents.commit)
            await here.ended(run_id)
        bodies = b"".join([one.body for one in await here.journal.read(run_id, limit=100)])
        assert SECRET.encode() not in bodies
        assert b"12345" not in bodies
        assert b64encode(b"call number 12345")[:16] not in bodies
        said = await here.said(run_id)
        kept = [await here.payload(run_id, one) for one in said]
        assert SECRET.encode() in kept[1]
        assert b"12345" in kept[2]
        assert len(kept[3]) > 100_000


async def test_calls_carry_the_trace_of_the_run(tmp_path: Path) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with (
        recording_runtime() as (address, calls),
        observing(tmp_path, address, session_poll_timeout_ms=200) as here,
    ):
        run_id = await describe(
            here.journal, sdk.new_session_id(), traceparent=parent, tracestate="vendor=1"
        )
        await here.ended(run_id)
    sent = [dict(metadata) for _, metadata in calls]
    told = {one["traceparent"] for one in sent}
    assert len(told) == 1
    (one,) = told
    assert one.split("-")[1] == "0af7651916cd43dd8448eb211c80319c"
    assert one != parent
    assert {one["tracestate"] for one in sent} == {"vendor=1"}
    assert {one["authorization"] for one in sent} == {f"Bearer {OBSERVER}"}
