"""Fetches data for a session's renderer besides its facts: patches, long texts, the cost."""

from binascii import b2a_base64
from collections.abc import Callable

from batten.contract.errors import BattenError
from batten.contract.facts import UserAttachment
from batten.journal.contract import Journal
from batten.journal.recorder import load_artifact, open_sealed
from batten.protocols.acp.content import ImageBlock
from batten.protocols.acp.tool_frames import Patch
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.workspace import patches

_LONGEST_BYTES = 512 * 1024
"""Of both texts together; a longer change is shown as a diff."""


class Sources:
    """Reads artifacts and spend from the journal."""

    def __init__(self, journal: Journal, redactor: Redactor, key: Callable[[], SealKey]) -> None:
        self._journal = journal
        self._redactor = redactor
        self._key = key

    async def text(self, artifact_id: str) -> str:
        """A text that was stored as an artifact because of its length."""
        return (await load_artifact(self._journal, artifact_id)).decode(errors="replace")

    async def image(self, attached: UserAttachment) -> ImageBlock | None:
        """An image of a prompt; None if it is no longer kept."""
        try:
            body = await load_artifact(self._journal, attached.artifact_id)
        except BattenError:
            return None
        data = b2a_base64(body, newline=False).decode("ascii")
        return ImageBlock(data=data, mime_type=attached.mime)

    async def patch(self, artifact_id: str) -> Patch | None:
        """A change of one file, redacted; None if it cannot be read."""
        journal = self._journal
        row = await journal.artifact(artifact_id)
        if row is None:
            return None
        path = str(row.metadata.get("target_path", ""))
        try:
            body = await open_sealed(
                journal, self._key(), str(row.metadata.get("sealed_artifact_id"))
            )
            texts = texts_of(patches.decode(body), self._redactor)
        except BattenError:
            texts = None  # the key is missing
        if texts is not None:
            return Patch(path, *texts)
        try:
            return Patch(
                path, diff=(await load_artifact(journal, artifact_id)).decode(errors="replace")
            )
        except BattenError:
            return None

    async def spent(self, task_id: str) -> int | None:
        """Micro-dollars that a session has cost so far; None if a price is unknown."""
        spend = await self._journal.spend(task_id)
        return None if spend.cost_unknown else spend.cost_micros_usd


def texts_of(body: patches.PatchBody, redactor: Redactor) -> tuple[str | None, str] | None:
    """Redacted texts before and after; None for a deletion or a change that is too long.

    The text after it is the model's: it is not rewritten by guesses, so that the client sees what
    it approves.
    """
    redactor = redactor.authored
    if body.after is None or len(body.before or b"") + len(body.after) > _LONGEST_BYTES:
        return None
    before = None if body.before is None else redactor.text(body.before.decode(errors="replace"))
    return before, redactor.text(body.after.decode(errors="replace"))
