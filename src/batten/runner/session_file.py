"""The session of a runner as a bundle in its workspace, for a runner on another machine."""

import logging
import os
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
from hashlib import sha256
from typing import BinaryIO

from batten.contract.errors import BadBundle, CallerError, JournalError, NotFound
from batten.contract.ids import SessionId, from_uuid, is_ulid, session_stream
from batten.journal.bundles.checking import Checked, check
from batten.journal.bundles.transfer import (
    SealedPart,
    Source,
    export_session,
    import_session,
    last_position,
    presence,
)
from batten.journal.opening import open_store, removal_lock
from batten.redact.seal import SealKey
from batten.runner.flush import SUFFIX, SessionFile
from batten.runner.restore import Restored
from batten.sinks.audit.derive import IMPORTED
from batten.sinks.audit.log import AuditLog
from batten.sinks.imported import silently
from batten.workspace.files import open_file
from batten.workspace.root import ResolvedPath, Root, parent_of

PLACE = ".maestro/agent/sessions"
PASSPHRASE = "BATTEN_BUNDLE_PASSPHRASE"
"""With this variable, what is sealed goes along."""
LARGEST = 8 << 30
"""Bytes that a bundle may unpack to."""
_PIECE = 1 << 20
_DIGITS = 16
"""Of a file's digest in its name."""
_MOST_KEPT = 8
"""Files of one session."""

_log = logging.getLogger("batten.runner")

Keep = Callable[[str], SessionFile]
"""Writes the session with this id in the journal."""


def journal_id(name: str) -> str:
    """The id in the journal of a session that a control plane named.

    Our own ids and UUIDs are themselves; any other name gives the same id on every machine.
    """
    if name.startswith("chat_") and is_ulid(name):
        return name
    with suppress(ValueError):
        return from_uuid(name, "chat")
    digits = sha256(b"maestro session\0" + name.encode()).hexdigest()
    return from_uuid(f"{digits[:12]}8{digits[13:16]}8{digits[17:32]}", "chat")


def write(home: str, workspace: str, passphrase: str | None, session_id: str) -> SessionFile:
    """Write a session of this home into the workspace, beside the last files of earlier drains:
    their manifests can still be restored.
    """
    directory = Root(workspace).resolve(PLACE, "write")
    aside = f".{session_id}.{os.getpid()}.partial"
    place = ResolvedPath(directory.base, (*directory.parts, aside), aside)
    sealed = None if passphrase is None else SealedPart(partial(SealKey.find, home), passphrase)
    _record(home, "session.exported", session_id)
    with removal_lock(home, shared=True), parent_of(place, create=True) as folder:
        with _new_file(aside, folder) as file:
            export_session(home, session_id, file, sealed)
        name = f"{session_id}-{file.digest()[:_DIGITS]}{SUFFIX}"
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
        _forget_oldest(session_id, folder)
    return SessionFile(path=os.path.join(directory.path, name), sha256=file.digest())


def _forget_oldest(session_id: str, folder: int) -> None:
    """Keep the newest files of a session."""

    def age(name: str) -> int:
        return -os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns

    with suppress(OSError):  # what cannot be removed stays
        # The descriptor is for paths only, and cannot be listed itself.
        found = os.listdir(f"/proc/self/fd/{folder}")
        files = [one for one in found if one.startswith(f"{session_id}-") and one.endswith(SUFFIX)]
        for name in sorted(files, key=age)[_MOST_KEPT:]:
            os.unlink(name, dir_fd=folder)


class _Hashed:
    """A file whose bytes are hashed as they are written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def digest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def _new_file(name: str, folder: int) -> Generator[_Hashed]:
    """A file that is whole and on the disk at the end, or gone. Only its owner reads it: it holds
    prompts."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
            yield _Hashed(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def adopt(
    home: str, workspace: str, kept: SessionFile | None, name: str, passphrase: str | None
) -> str:
    """Store the session of a drained runner in this home, unless it is there; its journal id.

    Raises `NotFound` if neither the home nor the file has it, and `BadBundle` if the file is not
    the one that was written.
    """
    os.makedirs(home, mode=0o700, exist_ok=True)
    if kept is None or not os.path.lexists(kept.path):
        return _stored(home, name, kept)
    place = Root(workspace).resolve(kept.path)
    checked = _checked(place, kept, passphrase)
    session_id = checked.session.session_id
    named = os.path.basename(place.path).removesuffix(SUFFIX).partition("-")[0]
    if is_ulid(named) and named != session_id:
        raise BadBundle(f"Session file {place.path} holds another session: {session_id}")
    with removal_lock(home), closing(open_store(home)) as journal:
        source = Source(place.path, LARGEST, checked, passphrase)
        if presence(journal, source.manifest) == "absent":
            key = None if passphrase is None else SealKey.load(home)
            _record(home, IMPORTED, session_id)
            with silently(home, source, last_position(journal)):
                import_session(journal, source, key)
    return session_id


def _record(home: str, action: str, session_id: str) -> None:
    """Add an entry to the audit log. A log that cannot be written holds up no drain."""
    try:
        with closing(AuditLog.open(home)) as log:
            log.append(
                actor="runner",
                actor_type="system",
                action=action,
                resource="session",
                resource_id=session_id,
            )
    except JournalError as error:
        _log.warning("%s is not in the audit log: %s", action, error)


def take_over(home: str, workspace: str, restored: Restored, passphrase: str | None) -> str | None:
    """`adopt` the session of a manifest; None if another implementation wrote it, and this home
    does not have the session: it then starts anew, with the state and cursor of the manifest.
    """
    if not restored.is_foreign:
        return adopt(home, workspace, restored.kept, restored.drained_id, passphrase)
    name = restored.drained_id
    return journal_id(name) if is_stored(home, name) else None


def is_stored(home: str, name: str) -> bool:
    """Whether this home has the session that a control plane named."""
    os.makedirs(home, mode=0o700, exist_ok=True)
    with closing(open_store(home)) as journal:
        return journal.run_now(session_stream(SessionId(journal_id(name)))) is not None


def _stored(home: str, name: str, kept: SessionFile | None) -> str:
    if not is_stored(home, name):
        missing = "names no session file" if kept is None else f"names {kept.path}, which is gone"
        raise NotFound(
            f"Session {name} cannot be restored: it is not in {home}, and the manifest {missing}",
            code="invalid_snapshot_manifest",
        )
    return journal_id(name)


def _checked(place: ResolvedPath, kept: SessionFile, passphrase: str | None) -> Checked:
    hashed = sha256()
    with open_file(place) as (file, _):
        while piece := file.read(_PIECE):
            hashed.update(piece)
    if kept.sha256 and hashed.hexdigest() != kept.sha256:
        raise BadBundle(
            f"Session file {place.path} is not the one that was drained: its SHA-256 is"
            f" {hashed.hexdigest()}, and the manifest says {kept.sha256}"
        )
    try:
        return check(place.path, LARGEST, passphrase)
    except CallerError as error:
        raise BadBundle(f"Session file {place.path} cannot be restored: {error}") from error
