"""Arguments that whoever approved a call changed: kept with the answer, and read back as given."""

from collections.abc import Callable
from typing import Any

import msgspec

from batten.contract.errors import CallerError
from batten.contract.facts import ArtifactCreated
from batten.contract.ids import new_artifact_id
from batten.journal.contract import Body, Journal, RequestRow
from batten.journal.recorder import Recorder
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey

LARGEST = 96 * 1024
"""Bytes of arguments; larger ones are sealed, since the fact has no room for them."""


class Sealing:
    """Changed arguments as they are, encrypted, where the fact would not have all of them."""

    def __init__(
        self, journal: Journal, redactor: Redactor, key: Callable[[], SealKey] | None
    ) -> None:
        self._journal = journal
        self._redactor = redactor
        self._key = key

    def seal(
        self, row: RequestRow, arguments: dict[str, Any]
    ) -> tuple[ArtifactCreated, Body] | None:
        """The artifact that a guest adds to the run; None if the fact says everything."""
        data = msgspec.json.encode(arguments)
        if len(data) <= LARGEST and not self._redactor.value(arguments)[1]:
            return None
        if self._key is None:
            raise CallerError(
                "the changed arguments hold a secret, or are too long for a fact: "
                "they need a key to be sealed with"
            )
        body = self._journal.inline(self._key().seal(data, row.run_id.encode()))
        created = ArtifactCreated(
            artifact_id=new_artifact_id(),
            kind="sealed",
            size_bytes=body.size,
            summary="changed arguments",
            sha256=body.sha256,
            mime_type="application/octet-stream",
            status="created",
            tool_call_id=row.tool_call_id,
            metadata={"run_id": row.run_id},
        )
        return created, body


async def read_back(recorder: Recorder, row: RequestRow) -> dict[str, Any] | None:
    """The arguments a call was approved with; None if they are those asked about."""
    sealed = row.answer.get("sealed_artifact_id")
    if sealed is not None:
        return msgspec.json.decode(await recorder.unseal(str(sealed)), type=dict[str, Any])
    given: dict[str, Any] | None = row.answer.get("updated_input")
    return given
