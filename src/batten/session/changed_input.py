"""Arguments that an approval changed: stored with the answer, and read back exactly."""

from collections.abc import Callable
from typing import Any

import msgspec

from batten.contract.errors import CallerError
from batten.contract.facts import ArtifactCreated
from batten.journal.contract import Body, Journal, RequestRow
from batten.journal.keeping import must_seal, sealed_artifact
from batten.journal.recorder import Recorder
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey


def seal_changed(
    journal: Journal,
    redactor: Redactor,
    key: Callable[[], SealKey] | None,
    row: RequestRow,
    arguments: dict[str, Any],
) -> tuple[ArtifactCreated, Body] | None:
    """The sealed artifact to append with the answer; None if the fact can hold the arguments."""
    data = msgspec.json.encode(arguments)
    if not must_seal(redactor.authored, arguments, data):
        return None
    if key is None:
        raise CallerError(
            "the changed arguments hold a secret, or are too long for a fact: "
            "they need a key to be sealed with"
        )
    return sealed_artifact(
        journal,
        key(),
        row.run_id,
        data,
        summary="changed arguments",
        tool_call_id=row.tool_call_id,
    )


async def read_back(recorder: Recorder, row: RequestRow) -> dict[str, Any] | None:
    """The arguments that the approval changed; None if it changed none."""
    sealed = row.answer.get("sealed_artifact_id")
    if sealed is not None:
        return msgspec.json.decode(await recorder.unseal(str(sealed)), type=dict[str, Any])
    given: dict[str, Any] | None = row.answer.get("updated_input")
    return given
