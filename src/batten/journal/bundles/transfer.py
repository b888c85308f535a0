"""Sessions leave a store as bundles and enter another, and a whole home is copied."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from batten.contract.errors import Refused
from batten.journal.bundles.checking import Checked
from batten.journal.bundles.container import Sink
from batten.journal.bundles.manifest import Manifest
from batten.journal.contract import Journal
from batten.redact.seal import SealKey

if TYPE_CHECKING:
    from batten.journal.sqlite import SqliteJournal

Presence = Literal["absent", "same", "longer"]
"""Whether a session is in the store; `longer`: it has gone on since the bundle was written."""


class SealedPart(Struct, frozen=True):
    """The key that opens this home's sealed bodies, and the passphrase for the bundle."""

    home_key: Callable[[], SealKey]
    """Called only if there is something sealed."""
    passphrase: str


class Source(Struct, frozen=True):
    """A bundle that was checked."""

    path: str
    limit: int
    """The most bytes to unpack."""
    checked: Checked
    passphrase: str | None
    """None to leave its sealed part alone."""

    @property
    def manifest(self) -> Manifest:
        return self.checked.manifest


class Backup(Struct, kw_only=True):
    """What a backup has."""

    bodies: int = 0
    bytes: int = 0
    damaged: list[str] = []
    """Digests of bodies that are missing or damaged in the home."""


def export_session(
    address: str, session_id: str, file: Sink, sealed: SealedPart | None
) -> Manifest:
    """Write a session as of now. Without `sealed`, sealed bodies are left out. Blocks."""
    from batten.journal.sqlite.exporting import export_session

    return export_session(address, session_id, file, sealed)


def presence(journal: Journal, manifest: Manifest) -> Presence:
    """Raises `Conflict` if the store has other facts of the session."""
    from batten.journal.sqlite.importing import presence

    return presence(_lasting(journal).reader, manifest)


def last_position(journal: Journal) -> int:
    """Where facts that are imported now come after."""
    return _lasting(journal).reader.position()


def import_session(journal: Journal, source: Source, key: SealKey | None) -> None:
    """Store a session with its ids, chain and bytes. Blocks; call it on a thread.

    `key` seals again what the passphrase opens. Raises `Conflict`, with nothing stored, if an id of
    the bundle is already used.
    """
    from batten.journal.sqlite.importing import import_session

    import_session(_lasting(journal), source, key)


def back_up(address: str, target: str, *, with_key: bool) -> Backup:
    """Copy a home to a new directory, or to a new `.tar.gz` file. Blocks.

    Raises `Conflict` if the target exists, `NotFound` without a journal. An unfinished copy has
    another name, so that it is not taken for a backup.
    """
    from batten.journal.sqlite.backup import back_up

    return back_up(address, target, with_key=with_key)


def _lasting(journal: Journal) -> "SqliteJournal":
    from batten.journal.sqlite import SqliteJournal

    if not isinstance(journal, SqliteJournal):
        raise Refused("a store that ends with its process takes no bundles")
    return journal
