"""The texts behind a patch, for a client that shows a file before and after its change."""

from collections.abc import Callable

from batten.contract.errors import BattenError
from batten.journal.contract import Journal
from batten.journal.recorder import load_artifact, open_sealed
from batten.protocols.acp.tool_frames import Patch
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.serve.remainder import at_once
from batten.workspace import patches

_LONGEST_BYTES = 512 * 1024
"""Of both texts together; of a longer change only its diff is shown."""


def patch_reader(
    journal: Journal, redactor: Redactor, key: Callable[[], SealKey]
) -> Callable[[str], Patch | None]:
    """Reads a patch by its artifact's id; secrets are left out of what it gives."""

    def read(artifact_id: str) -> Patch | None:
        row = at_once(journal.artifact(artifact_id))
        if row is None:
            return None
        path = str(row.metadata.get("target_path", ""))
        try:
            sealed_id = str(row.metadata.get("sealed_artifact_id"))
            body = at_once(open_sealed(journal, key(), sealed_id))
            texts = texts_of(patches.decode(body), redactor)
        except BattenError:
            texts = None  # without the key nobody sees it whole
        if texts is not None:
            return Patch(path, *texts)
        try:
            diff = at_once(load_artifact(journal, artifact_id))
            return Patch(path, diff=diff.decode(errors="replace"))
        except BattenError:
            return None

    return read


def texts_of(body: patches.PatchBody, redactor: Redactor) -> tuple[str | None, str] | None:
    """Before and after without secrets; None if they cannot be shown as texts."""
    if body.after is None or len(body.before or b"") + len(body.after) > _LONGEST_BYTES:
        return None
    before = None if body.before is None else redactor.text(body.before.decode(errors="replace"))
    return before, redactor.text(body.after.decode(errors="replace"))
