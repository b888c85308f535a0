"""Rows, facts and envelopes for the tests of Hecate."""

from typing import Any

from msgspec.structs import replace

from batten.contract.envelope import Envelope, decode, encode, payload
from batten.contract.facts import Fact
from batten.journal.contract import ArtifactRow, RequestRow, RunRow, SessionRow, Stored

RUN = "run_01M1GJ3K00EANR001AAM00R00A"
TASK = "task_01M1GJ3K00EANR001AAM00R00B"
CHAT = "chat_01M1GJ3K00EANR001AAM00R00C"
APPROVAL = "appr_01M1GJ3K00EANR001AAM00R00D"
ARTIFACT = "art_01M1GJ3K00EANR001AAM00R00E"


def run_row(**given: Any) -> RunRow:
    fields: dict[str, Any] = {
        "run_id": RUN,
        "kind": "agent_loop",
        "status": "running",
        "outcome": None,
        "task_id": TASK,
        "session_id": CHAT,
        "prior_run_id": None,
        "parent_run_id": None,
        "model": "m-small",
        "provider": "scripted",
        "workspace_path": "/work",
        "workspace_mode": "in_place",
        "priority": 0,
        "prompt": "Count the parcels.",
        "next_sequence": 7,
        "base_sequence": 0,
        "turns": 1,
        "cost_micros_usd": 0,
        "cost_unknown": False,
        "cancel_requested": False,
        "fence": 1,
        "worker_id": "w-1",
        "lease_until": "2026-09-02T08:00:30.000Z",
        "lease_boot_ms": 0,
        "created_at": "2026-09-02T08:00:00.000Z",
        "ended_at": None,
    }
    return RunRow(**{**fields, **given})


def session_row(**given: Any) -> SessionRow:
    fields: dict[str, Any] = {
        "session_id": CHAT,
        "task_id": TASK,
        "workspace_path": "/work",
        "surface": "serve",
        "settings": {},
        "last_run_id": None,
        "created_at": "2026-09-02T07:59:00.000Z",
        "updated_at": "2026-09-02T07:59:30.000Z",
        "closed": False,
        "forked_from": None,
        "forked_at_run_id": None,
    }
    return SessionRow(**{**fields, **given})


def request_row(**given: Any) -> RequestRow:
    fields: dict[str, Any] = {
        "request_id": APPROVAL,
        "run_id": RUN,
        "request_class": "approval",
        "tool_call_id": "c1",
        "summary": "rm -r build",
        "digest": "d1",
        "deadline_at": "2026-09-02T09:00:00.000Z",
        "resolvers": ("operator",),
        "status": "pending",
        "decision": None,
        "by": None,
        "answer": {},
    }
    return RequestRow(**{**fields, **given})


def patch_row(**given: Any) -> ArtifactRow:
    fields: dict[str, Any] = {
        "artifact_id": ARTIFACT,
        "run_id": RUN,
        "kind": "patch",
        "status": "applied",
        "size_bytes": 12,
        "sha256": "ab" * 32,
        "mime_type": "text/x-diff",
        "summary": "a.txt: 1 hunk, +1/-1",
        "tool_call_id": "c1",
        "metadata": {
            "target_path": "a.txt",
            "base_revision": "sha256:8a4f",
            "stats": {"additions": 1, "deletions": 1, "hunks": 1},
            "sealed_artifact_id": "art_01M1GJ3K00EANR001AAM00R00F",
        },
        "created_at": "2026-09-02T08:00:01.000Z",
        "applied_at": "2026-09-02T08:00:02.000Z",
        "reverted_at": None,
    }
    return ArtifactRow(**{**fields, **given})


def enveloped(fact: Fact, sequence: int = 0) -> Envelope:
    """The fact as stored: decoded from its own bytes."""
    made = Envelope(
        event_id=f"evt_01M1GJ3K00EANR001AAM0{sequence:05d}",
        run_id=RUN,
        task_id=TASK,
        session_id=CHAT,
        sequence=sequence,
        occurred_at=f"2026-09-02T08:00:{sequence % 60:02d}.000Z",
        type=fact.type,
        data=payload(fact),
    )
    return decode(encode(made))


def stored(fact: Fact, sequence: int = 0, position: int = 1, run_id: str = RUN) -> Stored:
    envelope = replace(enveloped(fact, sequence), run_id=run_id, data=payload(fact))
    return Stored(
        position=position,
        run_id=run_id,
        sequence=sequence,
        type=fact.type,
        body=encode(envelope),
    )
