"""`batten export` and `batten import`: a session as one file."""

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
from tempfile import NamedTemporaryFile
from typing import IO, BinaryIO

import msgspec

from batten.cli import current_directory
from batten.cli.auditing import record
from batten.cli.inspection import open_journal
from batten.cli.parsing import UsageError, typed
from batten.contract.errors import BadBundle, CallerError, Conflict, NotFound, Refused
from batten.contract.marks import one_line
from batten.journal.bundles.checking import check, read_manifest
from batten.journal.bundles.manifest import Manifest
from batten.journal.bundles.transfer import (
    SealedPart,
    Source,
    export_session,
    import_session,
    last_position,
    presence,
)
from batten.journal.contract import Journal
from batten.journal.durable import sync
from batten.journal.opening import removal_lock
from batten.redact.seal import SealKey
from batten.serve.output import put, say
from batten.serve.terminal.measures import counted
from batten.session.naming import named_session
from batten.sinks.audit.derive import IMPORTED
from batten.sinks.imported import silently
from batten.wiring.home import absolute, batten_home, make_home

_VARIABLE = "BATTEN_BUNDLE_PASSPHRASE"
_SOURCES = f"give it in {_VARIABLE}, with --passphrase-file, or at a terminal"
_SHORTEST = 8
_CHUNK = 1 << 20


async def export_bundle(options: Namespace) -> int:
    home = batten_home(os.environ, current_directory())
    journal = open_journal(read_only=True)
    row = await named_session(journal, options.session)
    sealed = None
    if options.with_sealed:
        passphrase = _passphrase(options, is_new=True)
        if passphrase is None:
            raise UsageError(f"--with-sealed needs a passphrase: {_SOURCES}")
        sealed = SealedPart(partial(SealKey.find, home), passphrase)
    record("session.exported", "session", row.session_id, with_sealed=options.with_sealed)
    with removal_lock(home, shared=True):
        if options.output == "-":
            manifest = _to_standard_output(home, row.session_id, sealed)
        else:
            manifest = _to_file(home, row.session_id, sealed, options)
    say(f"batten: exported {_described(manifest)}")
    if manifest.left_out:
        why = "This home lacks them" if options.with_sealed else "--with-sealed takes them along"
        say(
            f"batten: left out: {counted(len(manifest.left_out), 'sealed body')}; without them a"
            f" resume or a revert may be refused. {why}"
        )
    if row.forked_from:
        say(f"batten: it was forked from {row.forked_from}: to resume it, export that one too")
    return 0


def _to_standard_output(home: str, session_id: str, sealed: SealedPart | None) -> Manifest:
    if sys.stdout.isatty():
        raise UsageError("a bundle is not for a terminal; write it to a file with -o FILE")
    sys.stdout.flush()
    name = "standard output"
    with _said_of(name):
        manifest = export_session(home, session_id, _Target(sys.stdout.buffer, name), sealed)
        sys.stdout.buffer.flush()
    return manifest


class _Target:
    """Where a bundle goes. Its faults are not the journal's."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def write(self, data: bytes) -> int:
        with _said_of(self._name):
            return self._file.write(data)

    def flush(self) -> None:
        with _said_of(self._name):
            self._file.flush()


@contextmanager
def _said_of(name: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(f"{name} cannot be written: {error.strerror or error}") from error


def _to_file(home: str, session_id: str, sealed: SealedPart | None, options: Namespace) -> Manifest:
    """Write under another name first: a file with the name that was asked for is whole."""
    target = absolute(options.output, current_directory())
    if os.path.lexists(target) and not options.force:
        raise Conflict(f"{target} exists; --force replaces it")
    aside = f"{target}.{os.getpid()}.partial"
    with _said_of(target):
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with _said_of(target), open(fd, "wb") as file:
            manifest = export_session(home, session_id, _Target(file, target), sealed)
            file.flush()
            os.fsync(fd)
            os.replace(aside, target)
            sync(os.path.dirname(target))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)
    return manifest


async def import_bundle(options: Namespace) -> int:
    if options.file == "-":
        with NamedTemporaryFile() as file:  # it is read more than once
            _spool(file, options.max_size)
            return await _import(file.name, options)
    path = absolute(options.file, current_directory())
    if not os.path.isfile(path):
        raise NotFound(f"{path} is not a file")
    return await _import(path, options)


def _spool(file: IO[bytes], limit: int) -> None:
    """Copy standard input to a file."""
    if os.isatty(0):
        raise UsageError("a bundle is not typed at a terminal; pipe it in, or name its file")
    with _said_of("the temporary file of the bundle"):
        while chunk := os.read(0, _CHUNK):
            if file.tell() + len(chunk) > limit:
                raise BadBundle(f"the bundle has more than {limit} bytes; --max-size allows more")
            file.write(chunk)
        file.flush()


async def _import(path: str, options: Namespace) -> int:
    home = batten_home(os.environ, current_directory())
    manifest = read_manifest(path, options.max_size)
    passphrase = None
    if manifest.passphrase is not None and not options.no_sealed:
        passphrase = _passphrase(options, is_new=False)
        if passphrase is None:
            raise UsageError(
                f"the bundle has a sealed part, under a passphrase: {_SOURCES}; --no-sealed imports"
                " the rest"
            )
    checked = await asyncio.to_thread(check, path, options.max_size, passphrase)
    make_home(home)
    with removal_lock(home), closing(open_journal(read_only=False)) as journal:
        source = Source(path, options.max_size, checked, passphrase)
        return await _store(home, journal, source, options)


async def _store(home: str, journal: Journal, source: Source, options: Namespace) -> int:
    session = source.checked.session
    found = presence(journal, source.manifest)
    if found == "absent":
        key = None if source.passphrase is None else SealKey.load(home)
        record(IMPORTED, "session", session.session_id, exported_at=source.manifest.exported_at)
        with silently(home, source, last_position(journal)):
            await asyncio.to_thread(import_session, journal, source, key)
    if options.json:
        result = "imported" if found == "absent" else "present"
        shown = {"session_id": session.session_id, "result": result}
        put(msgspec.json.encode(shown).decode())
    elif found == "absent":
        put(f"imported {_described(source.manifest)}")
        put(f"its workspace was {one_line(session.workspace_path)}")
    else:
        since = ", and has gone on since" if found == "longer" else ""
        put(f"session {session.session_id} is here already{since}: nothing was changed")
        if source.passphrase is not None:
            say(
                "batten: to take its sealed bodies from the bundle, delete it here and import again"
            )
    if found == "absent" and source.manifest.left_out:
        say(
            f"batten: not in the bundle: {counted(len(source.manifest.left_out), 'sealed body')};"
            " a resume or a revert that needs them is refused"
        )
    if session.forked_from and await journal.session(session.forked_from) is None:
        say(f"batten: it was forked from {session.forked_from}, which is not here: import that too")
    return 0


def _described(manifest: Manifest) -> str:
    runs = sum(run.kind != "session" for run in manifest.runs)
    facts = sum(run.next_sequence - run.base_sequence for run in manifest.runs)
    return (
        f"session {manifest.session.session_id}: {counted(runs, 'run')}, {counted(facts, 'fact')},"
        f" {counted(len(manifest.bodies), 'body')}, {len(manifest.sealed)} of them sealed"
    )


def _passphrase(options: Namespace, *, is_new: bool) -> str | None:
    """From a file, the environment or a prompt; never from the command line, which others see."""
    if options.passphrase_file is not None:
        given = _first_line(options.passphrase_file)
    elif _VARIABLE in os.environ:
        given = os.environ[_VARIABLE]
    elif os.isatty(0):
        given = _prompted(is_new=is_new)
    else:
        return None
    if is_new and len(given) < _SHORTEST:
        raise CallerError(f"the passphrase has fewer than {_SHORTEST} characters", code="usage")
    return given


def _first_line(path: str) -> str:
    try:
        with open(absolute(path, current_directory()), encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--passphrase-file: cannot read {path}: {error}") from error


def _prompted(*, is_new: bool) -> str:
    from getpass import getpass

    given = typed(lambda: getpass("Passphrase: "))
    if is_new and typed(lambda: getpass("The same again: ")) != given:
        raise UsageError("the two passphrases differ")
    return given
