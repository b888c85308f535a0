"""One session of each mode, driven by the published SDK."""

from collections.abc import Callable
from typing import Any

import msgspec

from tests.coordination.published import sdk
from tests.service.macp.plane import COMMIT, as_

PANEL = ["lead", "ann", "ben"]


def _start(kind: Any, client: Any, participants: list[str]) -> Any:
    session = kind(client)
    session.start(intent="decide", participants=participants, ttl_ms=60_000)
    return session


def decision(client: Any) -> str:
    session = _start(sdk.DecisionSession, client, PANEL)
    session.propose("p1", "merge", rationale="tests pass")
    session.evaluate("p1", "APPROVE", confidence=0.9, reason="clean", **as_("ann"))
    session.raise_objection("p1", reason="late", severity="low", **as_("ben"))
    call = {"promptTokens": 120, "completionTokens": 45, "model": "gpt-4o-mini"}
    client.send_signal(
        signal_type="llm.call.completed",
        data=msgspec.json.encode(call),
        correlation_session_id=session.session_id,
        **as_("ann"),
    )
    session.vote("p1", "APPROVE", **as_("ann"))
    session.vote("p1", "REJECT", reason="late", **as_("ben"))
    session.commit(action="decision.rejected", outcome_positive=False, **COMMIT)
    return str(session.session_id)


def proposal(client: Any) -> str:
    session = _start(sdk.ProposalSession, client, ["lead", "ann"])
    session.propose("p1", "ten", summary="ten a piece")
    session.counter_propose("p2", "p1", "eight", **as_("ann"))
    session.reject("p1", reason="too much", **as_("ann"))
    session.withdraw("p1")
    session.accept("p2")
    session.accept("p2", **as_("ann"))
    session.commit(action="proposal.accepted", **COMMIT)
    return str(session.session_id)


def task(client: Any) -> str:
    session = _start(sdk.TaskSession, client, PANEL)
    session.request_task("t1", "fix it")
    session.reject_task("t1", reason="busy", **as_("ben"))
    session.accept_task("t1", **as_("ann"))
    session.update_task("t1", progress=0.5, **as_("ann"))
    session.complete_task("t1", output=b"done", **as_("ann"))
    session.commit(action="task.completed", **COMMIT)
    return str(session.session_id)


def handoff(client: Any) -> str:
    session = _start(sdk.HandoffSession, client, PANEL)
    session.offer("h1", "ann", scope="pager")
    session.add_context("h1", context=b"two alarms")
    session.accept_handoff("h1", **as_("ann"))
    session.commit(action="handoff.accepted", **COMMIT)
    return str(session.session_id)


def quorum(client: Any) -> str:
    session = _start(sdk.QuorumSession, client, ["ann", "ben", "cem"])
    session.request_approval("r1", "deploy", required_approvals=2)
    session.approve("r1", **as_("ann"))
    session.abstain("r1", **as_("ben"))
    session.approve("r1", **as_("cem"))
    session.commit(action="quorum.approved", **COMMIT)
    return str(session.session_id)


def rounds(client: Any) -> str:
    session_id = str(sdk.new_session_id())

    def send(sender: str, type_: str, payload: bytes) -> None:
        envelope = sdk.build_envelope(
            mode="ext.multi_round.v1",
            message_type=type_,
            session_id=session_id,
            sender=sender,
            payload=payload,
        )
        client.send(envelope, auth=sdk.AuthConfig.for_dev_agent(sender))

    start = sdk.build_session_start_payload(
        intent="agree", participants=["ann", "ben"], ttl_ms=60_000
    )
    send("lead", "SessionStart", sdk.serialize_message(start))
    send("ann", "Contribute", b'{"value": "a"}')
    send("ben", "Contribute", b'{"value": "a"}')
    commitment = sdk.build_commitment_payload(action="multi_round.converged", **COMMIT)
    send("lead", "Commitment", sdk.serialize_message(commitment))
    return session_id


SESSIONS: dict[str, Callable[[Any], str]] = {
    "macp.mode.decision.v1": decision,
    "macp.mode.proposal.v1": proposal,
    "macp.mode.task.v1": task,
    "macp.mode.handoff.v1": handoff,
    "macp.mode.quorum.v1": quorum,
    "ext.multi_round.v1": rounds,
}
