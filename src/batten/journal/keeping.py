"""The rules for values that do not fit into a fact: when to seal them, when to make artifacts."""

from typing import Any, NotRequired, TypedDict

from msgspec import UNSET

from batten.contract.facts import ArtifactCreated
from batten.contract.facts.artifact import ArtifactKind, ArtifactStatus
from batten.contract.ids import new_artifact_id
from batten.journal.contract import Body, Journal
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey

LARGEST_TEXT = 40 * 1024
"""Characters of a text in one fact: escaped as JSON they still fit its envelope."""
LARGEST_VALUE = 96 * 1024
"""Bytes of JSON of a value in one fact."""


class ArtifactDetails(TypedDict):
    """The description of a new artifact; `artifact_created` has the defaults."""

    mime_type: str
    summary: str
    status: NotRequired[ArtifactStatus]
    metadata: NotRequired[dict[str, Any] | None]


def must_seal(redactor: Redactor, value: Any, exact: bytes) -> bool:
    """Whether a fact cannot hold the exact value: it contains a secret or is too large."""
    return len(exact) > LARGEST_VALUE or bool(redactor.value(value)[1])


def artifact_created(
    kind: ArtifactKind,
    body: Body,
    *,
    mime_type: str,
    summary: str,
    status: ArtifactStatus = "created",
    tool_call_id: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> ArtifactCreated:
    """The fact of a new artifact with this body; line breaks in its summary become `⏎`."""
    return ArtifactCreated(
        artifact_id=new_artifact_id(),
        kind=kind,
        size_bytes=body.size,
        summary="⏎".join(summary.splitlines()),
        sha256=body.sha256,
        mime_type=mime_type,
        status=status,
        tool_call_id=tool_call_id or UNSET,
        metadata=metadata or UNSET,
    )


def sealed_artifact(
    journal: Journal,
    key: SealKey,
    run_id: str,
    data: bytes,
    *,
    summary: str,
    tool_call_id: str | None = None,
) -> tuple[ArtifactCreated, Body]:
    """Bytes as an encrypted artifact, bound to its run."""
    body = journal.inline(key.seal(data, run_id.encode()))
    created = artifact_created(
        "sealed",
        body,
        mime_type="application/octet-stream",
        summary=summary,
        tool_call_id=tool_call_id,
        metadata={"run_id": run_id},
    )
    return created, body
