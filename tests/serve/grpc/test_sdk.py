"""`macp-sdk-python` drives every mode, policies, streams, watches and the life of sessions."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.coordination.published import core, sdk, sdk_agent, sdk_policy
from tests.serve.grpc.running import Server, grpc, plain_stub, running

COMMIT = {"authority_scope": "tests", "reason": "agreed"}


def auth(name: str) -> Any:
    return sdk.AuthConfig.for_dev_agent(name)


@pytest.fixture
def lead(server: Server) -> Iterator[Any]:
    client = server.client("lead")
    yield client
    client.close()


def started(kind: Any, client: Any, participants: list[str], **more: Any) -> Any:
    session = kind(client, **more)
    session.start(intent="decide", participants=participants, ttl_ms=60_000)
    return session


def state_of(session: Any) -> str:
    name: str = sdk_state(session.metadata().metadata.state)
    return name


def sdk_state(number: int) -> str:
    name: str = (
        core.SessionMetadata.DESCRIPTOR.fields_by_name["state"]
        .enum_type.values_by_number[number]
        .name
    )
    return name.removeprefix("SESSION_STATE_")


def as_(name: str) -> dict[str, Any]:
    return {"sender": name, "auth": auth(name)}


def test_runtime_tells_its_protocol_modes_and_manifest(lead: Any) -> None:
    hello = lead.initialize()
    assert hello.selected_protocol_version == "1.0"
    assert hello.runtime_info.name == "macp-runtime"
    assert "ext.multi_round.v1" in hello.supported_modes
    assert [mode.mode for mode in lead.list_modes().modes] == [
        f"macp.mode.{name}.v1" for name in ("decision", "proposal", "task", "handoff", "quorum")
    ]
    assert [mode.mode for mode in lead.list_ext_modes().modes] == ["ext.multi_round.v1"]
    assert lead.get_manifest().manifest.agent_id == "macp-runtime"
    assert list(lead.list_roots().roots) == []


def test_decision(lead: Any) -> None:
    session = started(sdk.DecisionSession, lead, ["lead", "ann", "ben"])
    session.propose("p1", "merge", rationale="tests pass")
    session.evaluate("p1", "APPROVE", confidence=0.9, **as_("ann"))
    session.raise_objection("p1", reason="late", severity="low", **as_("ben"))
    session.vote("p1", "APPROVE", **as_("ann"))
    with pytest.raises(sdk.MacpAckError) as refused:
        session.vote("p1", "APPROVE", **as_("ann"))
    assert refused.value.failure.code == "INVALID_ENVELOPE"
    session.commit(action="decision.selected", **COMMIT)
    assert state_of(session) == "RESOLVED"


def test_proposal(lead: Any) -> None:
    session = started(sdk.ProposalSession, lead, ["lead", "ann"])
    session.propose("p1", "ten")
    session.counter_propose("p2", "p1", "eight", **as_("ann"))
    session.reject("p1", reason="too much", **as_("ann"))
    session.withdraw("p1")
    session.accept("p2")
    session.accept("p2", **as_("ann"))
    session.commit(action="proposal.accepted", **COMMIT)
    assert state_of(session) == "RESOLVED"


def test_task(lead: Any) -> None:
    session = started(sdk.TaskSession, lead, ["lead", "ann", "ben"])
    session.request_task("t1", "fix it")
    session.reject_task("t1", reason="busy", **as_("ben"))
    session.accept_task("t1", **as_("ann"))
    session.update_task("t1", progress=0.5, **as_("ann"))
    session.complete_task("t1", output=b"done", **as_("ann"))
    session.commit(action="task.completed", **COMMIT)
    assert state_of(session) == "RESOLVED"


def test_handoff(lead: Any) -> None:
    session = started(sdk.HandoffSession, lead, ["lead", "ann"])
    session.offer("h1", "ann", scope="pager")
    session.add_context("h1", context=b"two alarms")
    session.accept_handoff("h1", **as_("ann"))
    session.commit(action="handoff.accepted", **COMMIT)
    assert state_of(session) == "RESOLVED"


def test_handoff_is_accepted_implicitly_by_the_runtime(lead: Any) -> None:
    rules = sdk_policy.HandoffAcceptanceRules(implicit_accept_timeout_ms=1)
    lead.register_policy(
        sdk_policy.build_handoff_policy("policy.implicit", "at once", acceptance=rules)
    )
    session = started(sdk.HandoffSession, lead, ["lead", "ann"], policy_version="policy.implicit")
    session.offer("h1", "ann")
    with closing(session.open_stream()) as stream:
        stream.send_subscribe(session.session_id, after_sequence=2)
        accepted = stream.read(timeout=10)
    assert (accepted.message_id, accepted.sender) == ("implicit-accept:h1", "ann")
    session.commit(action="handoff.accepted", **COMMIT)


def test_quorum(lead: Any) -> None:
    session = started(sdk.QuorumSession, lead, ["ann", "ben", "cem"])
    session.request_approval("r1", "deploy", required_approvals=2)
    session.approve("r1", **as_("ann"))
    with pytest.raises(sdk.MacpAckError):
        session.commit(action="quorum.approved", **COMMIT)
    session.abstain("r1", **as_("ben"))
    session.approve("r1", **as_("cem"))
    session.commit(action="quorum.approved", **COMMIT)
    assert state_of(session) == "RESOLVED"


def test_multi_round(lead: Any) -> None:
    session_id = sdk.new_session_id()

    def send(sender: str, type_: str, payload: bytes) -> None:
        envelope = sdk.build_envelope(
            mode="ext.multi_round.v1",
            message_type=type_,
            session_id=session_id,
            sender=sender,
            payload=payload,
        )
        lead.send(envelope, auth=auth(sender))

    start = sdk.build_session_start_payload(
        intent="agree", participants=["ann", "ben"], ttl_ms=60_000
    )
    send("lead", "SessionStart", sdk.serialize_message(start))
    send("ann", "Contribute", b'{"value": "a"}')
    send("ben", "Contribute", b'{"value": "a"}')
    commitment = sdk.build_commitment_payload(action="multi_round.converged", **COMMIT)
    send("lead", "Commitment", sdk.serialize_message(commitment))
    assert sdk_state(lead.get_session(session_id).metadata.state) == "RESOLVED"


def test_policy_denies_with_reasons_and_codes(lead: Any) -> None:
    built = sdk_policy.build_decision_policy(
        "policy.majority", "", voting=sdk_policy.VotingRules(algorithm="majority")
    )
    lead.register_policy(built)
    assert lead.get_policy("policy.majority").policy_descriptor.rules == built.rules
    session = started(sdk.DecisionSession, lead, ["lead", "ann"], policy_version="policy.majority")
    session.propose("p1", "merge")
    with pytest.raises(sdk.MacpAckError) as refused:
        session.commit(action="decision.selected", **COMMIT)
    assert refused.value.failure.code == "POLICY_DENIED"
    assert [denial.code for denial in refused.value.denials] == ["no_votes"]
    assert refused.value.reasons == ["nobody voted APPROVE or REJECT"]
    lead.unregister_policy("policy.majority")
    session.vote("p1", "APPROVE", **as_("ann"))
    session.commit(action="decision.selected", **COMMIT)
    with pytest.raises(grpc.RpcError) as missing:
        lead.get_policy("policy.majority")
    assert missing.value.code() == grpc.StatusCode.NOT_FOUND


def test_bad_policy_is_refused_with_its_code(lead: Any) -> None:
    bad = sdk_policy.build_quorum_policy("policy.bad", "")
    bad.rules = '{"treshold": {}}'
    answer = lead.register_policy(bad)
    assert not answer.ok
    assert answer.error.startswith("INVALID_POLICY_DEFINITION: ")


def test_extension_mode_is_registered_used_promoted_and_removed(lead: Any) -> None:
    descriptor = core.ModeDescriptor(
        mode="ext.standup.v1",
        mode_version="1",
        message_types=["Report", "Commitment"],
        terminal_message_types=["Commitment"],
    )
    changes = watched(lead.watch_mode_registry)
    changes.get(timeout=10)
    lead.register_ext_mode(descriptor)
    changes.get(timeout=10)
    names = [mode.mode for mode in lead.list_ext_modes().modes]
    assert names == ["ext.multi_round.v1", "ext.standup.v1"]
    lead.promote_mode("ext.standup.v1", "org.standup.v1")
    assert "org.standup.v1" in [mode.mode for mode in lead.list_modes().modes]
    assert "stays" in lead.unregister_ext_mode("org.standup.v1").error
    descriptor.mode = "ext.second.v1"
    lead.register_ext_mode(descriptor)
    assert lead.unregister_ext_mode("ext.second.v1").ok


def test_stream_replays_from_a_sequence_then_goes_on_live(server: Server, lead: Any) -> None:
    session = started(sdk.DecisionSession, lead, ["lead", "ann"])
    session.propose("p1", "merge")
    ann = server.client("ann")
    with closing(ann), closing(ann.open_stream()) as stream:
        stream.send_subscribe(session.session_id, after_sequence=1)
        assert stream.read(timeout=10).message_type == "Proposal"
        session.vote("p1", "APPROVE")
        assert stream.read(timeout=10).message_type == "Vote"
        session.commit(action="decision.selected", **COMMIT)
        assert stream.read(timeout=10).message_type == "Commitment"
    late = server.client("ann")
    with closing(late), closing(late.open_stream()) as stream:
        stream.send_subscribe(session.session_id)
        types = [stream.read(timeout=10).message_type for _ in range(4)]
    assert types == ["SessionStart", "Proposal", "Vote", "Commitment"]


def test_messages_on_a_stream_come_back_and_errors_stay_inline(lead: Any) -> None:
    session = started(sdk.DecisionSession, lead, ["lead"])
    errors: queue.Queue[Any] = queue.Queue()
    with closing(lead.open_stream()) as stream:
        stream.on_inline_error(errors.put)
        bad = session._propose_envelope("p0", "x")
        bad.payload = b"\xff"
        stream.send(bad)
        told = errors.get(timeout=10)
        assert (told.code, told.message_id) == ("INVALID_ENVELOPE", bad.message_id)
        good = session._propose_envelope("p1", "merge")
        stream.send(good)
        assert stream.read(timeout=10).message_id == good.message_id
        stream.send(good)  # a duplicate is silent
        stream.close()
        assert stream.read(timeout=10) is None


def test_stream_of_an_unknown_session_ends_and_of_a_foreign_one_says_so(
    server: Server, lead: Any
) -> None:
    with closing(lead.open_stream()) as stream:
        stream.send_subscribe(sdk.new_session_id())
        with pytest.raises(sdk.MacpTransportError) as missing:
            stream.read(timeout=10)
    assert (missing.value.code, missing.value.macp_code) == ("NOT_FOUND", "SESSION_NOT_FOUND")
    session = started(sdk.DecisionSession, lead, ["lead"])
    zoe, errors = server.client("zoe"), queue.Queue[Any]()
    with closing(zoe), closing(zoe.open_stream()) as stream:
        stream.on_inline_error(errors.put)
        stream.send_subscribe(session.session_id)
        assert errors.get(timeout=10).code == "FORBIDDEN"


def test_session_is_suspended_resumed_and_cancelled(lead: Any) -> None:
    session = started(sdk.DecisionSession, lead, ["lead", "ann"])
    session.suspend(reason="lunch")
    with pytest.raises(sdk.MacpAckError) as refused:
        session.propose("p1", "merge")
    assert refused.value.failure.code == "SESSION_NOT_OPEN"
    assert state_of(session) == "SUSPENDED"
    session.resume()
    with pytest.raises(sdk.MacpAckError) as again:
        session.resume()
    assert again.value.failure.code == "SESSION_NOT_OPEN"
    with pytest.raises(sdk.MacpTransportError) as foreign:
        session.cancel(auth=auth("zoe"))
    assert foreign.value.macp_code == "FORBIDDEN"
    session.cancel(reason="no use")
    assert state_of(session) == "CANCELLED"


def test_agent_of_the_sdk_stops_when_its_session_is_cancelled(server: Server, lead: Any) -> None:
    session = started(sdk.DecisionSession, lead, ["lead", "ann"])
    client, ended = server.client("ann"), queue.Queue[Any]()
    participant = sdk_agent.Participant(
        participant_id="ann",
        session_id=session.session_id,
        mode="macp.mode.decision.v1",
        client=client,
    )
    participant.on_terminal(ended.put)
    thread = threading.Thread(target=participant.run, daemon=True)
    thread.start()
    session.cancel(reason="no use")
    assert ended.get(timeout=20).state == "Cancelled"
    thread.join(20)
    assert not thread.is_alive()
    client.close()


def test_sessions_are_listed_in_pages(lead: Any) -> None:
    mine = {started(sdk.DecisionSession, lead, ["lead"]).session_id for _ in range(5)}
    page, token = lead.list_sessions_page(page_size=2)
    assert len(page) == 2
    assert token
    assert mine <= {session.session_id for session in lead.list_sessions()}


def watched(watch: Callable[..., Any]) -> "queue.Queue[Any]":
    """What a watch yields, in a queue."""
    found: queue.Queue[Any] = queue.Queue()

    def pump() -> None:
        try:
            for one in watch():
                found.put(one)
        except sdk.MacpSdkError:
            return

    threading.Thread(target=pump, daemon=True).start()
    return found


def test_watchers_hear_of_sessions_policies_and_signals(server: Server, lead: Any) -> None:
    watcher = server.client("watcher")
    before = started(sdk.DecisionSession, lead, ["lead", "watcher"])
    sessions = watched(watcher.watch_sessions)
    policies = watched(watcher.watch_policies)
    assert "policy.default" in [one.policy_id for one in policies.get(timeout=10).descriptors]
    first = [sessions.get(timeout=10)]
    while first[-1].event.session.session_id != before.session_id:
        first.append(sessions.get(timeout=10))
    assert {event.event.event_type for event in first} == {1}
    after = started(sdk.DecisionSession, lead, ["lead", "watcher"])
    after.suspend()
    after.resume()
    after.cancel()
    heard = [sessions.get(timeout=10).event for _ in range(4)]
    assert {event.session.session_id for event in heard} == {after.session_id}
    names = [core.SessionLifecycleEvent.EventType.Name(one.event_type) for one in heard]
    assert names == [f"EVENT_TYPE_{n}" for n in ("CREATED", "SUSPENDED", "RESUMED", "CANCELLED")]
    lead.register_policy(sdk_policy.build_task_policy("policy.watched", ""))
    ids = [one.policy_id for one in policies.get(timeout=10).descriptors]
    assert "policy.watched" in ids
    watcher.close()


def test_watcher_knows_that_it_listens_before_there_is_a_session(tmp_path: Path) -> None:
    with running(tmp_path) as empty, plain_stub(empty) as stub:
        call = stub.WatchSessions(
            core.WatchSessionsRequest(), metadata=auth("watcher").metadata(), timeout=20
        )
        call.initial_metadata()
        lead = empty.client("lead")
        session = started(sdk.DecisionSession, lead, ["lead", "watcher"])
        lead.close()
        event = next(call).event
        assert (event.event_type, event.session.session_id) == (1, session.session_id)
        call.cancel()


def test_watcher_hears_of_ended_sessions_also_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        lead = first.client("lead")
        ended, live, gone = (
            started(sdk.DecisionSession, lead, ["lead", "watcher"]) for _ in range(3)
        )
        ended.cancel()
        gone.cancel()
        lead.close()
    subprocess.run(
        [sys.executable, "-m", "batten", "delete", gone.session_id, "--yes"],
        env={**os.environ, "BATTEN_HOME": str(tmp_path)},
        check=True,
    )
    with running(tmp_path) as second, plain_stub(second) as stub:
        call = stub.WatchSessions(
            core.WatchSessionsRequest(), metadata=auth("watcher").metadata(), timeout=20
        )
        told = [next(call).event for _ in range(2)]
        assert {(one.event_type, one.session.session_id) for one in told} == {
            (1, ended.session_id),
            (1, live.session_id),
        }
        states = {one.session.session_id: sdk_state(one.session.state) for one in told}
        assert states == {ended.session_id: "CANCELLED", live.session_id: "OPEN"}
        assert {one.observed_at_unix_ms - one.session.started_at_unix_ms for one in told} == {0}
        lead = second.client("lead")
        new = started(sdk.DecisionSession, lead, ["lead", "watcher"])
        lead.close()
        assert next(call).event.session.session_id == new.session_id
        call.cancel()


def test_signals_and_progress_reach_watchers_and_no_history(server: Server, lead: Any) -> None:
    watcher = server.client("watcher")
    call = watcher.stub.WatchSignals(
        core.WatchSignalsRequest(), metadata=auth("watcher").metadata(), timeout=20
    )
    call.initial_metadata()  # it listens now
    lead.send_signal(signal_type="heartbeat", data=b"x")
    lead.send_progress(progress_token="t", progress=1, total=2)
    signal, progress = next(call), next(call)
    assert (signal.envelope.message_type, signal.sender_authenticated) == ("Signal", True)
    assert (progress.envelope.message_type, progress.envelope.sender) == ("Progress", "lead")
    call.cancel()
    watcher.close()
