"""Checks a bundle before anything of it is stored: digests, chain, places, rows.

A bundle is data from outside. It is read twice, first to check it and then to store it; each
reading walks through exactly the members that its manifest names, in order.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from batten.contract.envelope import MAX_ENVELOPE_BYTES, Envelope, decode
from batten.contract.errors import BadBundle, BattenError
from batten.contract.facts import TERMINAL
from batten.contract.ids import SessionId, session_stream
from batten.journal.appending import first_hash
from batten.journal.bundles.container import ContainerReader
from batten.journal.bundles.manifest import (
    EVENTS,
    LARGEST_MANIFEST,
    MANIFEST,
    BundledRun,
    Manifest,
    body_member,
    decode_manifest,
    sealed_member,
    state_member,
)
from batten.journal.contract import SessionRow
from batten.journal.rows import Changes, FactContext, RunFold, fold
from batten.redact.seal import SealKey
from batten.settings.regular import open_regular

_ID = re.compile(r"[a-z]+_[0-9A-Za-z_-]{1,80}")


class Event(Struct, frozen=True, gc=False):
    """A fact of a bundle, its place in the chain checked."""

    run: int
    """The number of its run in the manifest."""
    sequence: int
    body: bytes
    chain: bytes
    envelope: Envelope

    @property
    def is_terminal(self) -> bool:
        return self.envelope.type in TERMINAL


class Visitor(Protocol):
    """Receives the members of a bundle, in this order."""

    def begin(self, manifest: Manifest) -> None: ...

    def events(self, events: Iterator[Event]) -> None: ...

    def body(self, digest: str, chunks: Iterable[bytes]) -> None: ...

    def sealed(self, digest: str, data: bytes) -> None: ...

    def state(self, run: BundledRun, data: bytes) -> None: ...


def read_manifest(path: str, limit: int) -> Manifest:
    """What a bundle says of itself; nothing else of it is checked."""
    with open_regular(path) as file:
        return _manifest(ContainerReader(file, limit))


def read_facts(path: str, limit: int) -> Iterator[Event]:
    """The facts of a bundle alone."""
    with open_regular(path) as file:
        reader = ContainerReader(file, limit)
        manifest = _manifest(reader)
        _member(reader, EVENTS)
        yield from _events(manifest, _lines(reader.chunks()))


def walk(path: str, limit: int, visitor: Visitor) -> None:
    """Read a bundle to its end. Raises `BadBundle` for anything that its manifest does not say."""
    with open_regular(path) as file:
        reader = ContainerReader(file, limit)
        manifest = _manifest(reader)
        visitor.begin(manifest)
        _member(reader, EVENTS)
        visitor.events(_events(manifest, _lines(reader.chunks())))
        for body in manifest.bodies:
            size = _member(reader, body_member(body.sha256))
            if size != body.size:
                raise BadBundle(f"the body {body.sha256} has {size} bytes, not {body.size}")
            visitor.body(body.sha256, reader.chunks())
        for digest in manifest.sealed:
            visitor.sealed(digest, _whole(reader, sealed_member(digest)))
        for number, run in enumerate(manifest.runs):
            if run.base is not None and run.base.has_state:
                visitor.state(run, _whole(reader, state_member(number)))
        if reader.next() is not None:
            raise BadBundle("the bundle has more members than its manifest names")


def _manifest(reader: ContainerReader) -> Manifest:
    manifest = decode_manifest(_whole(reader, MANIFEST, LARGEST_MANIFEST))
    check_manifest(manifest)
    return manifest


def _member(reader: ContainerReader, name: str) -> int:
    member = reader.next()
    if member is None or member.name != name:
        found = "its end" if member is None else repr(member.name)
        raise BadBundle(f"the bundle should go on with {name}, but {found} follows")
    return member.size


def _whole(reader: ContainerReader, name: str, most: int = 1 << 31) -> bytes:
    if _member(reader, name) > most:
        raise BadBundle(f"{name} is too large", code="bundle_too_large")
    return b"".join(reader.chunks())


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > MAX_ENVELOPE_BYTES:
            raise BadBundle(f"a fact is longer than {MAX_ENVELOPE_BYTES} bytes")
    if rest:
        raise BadBundle(f"the last fact in {EVENTS} is cut")


def _events(manifest: Manifest, lines: Iterator[bytes]) -> Iterator[Event]:
    """The facts, each checked to be the next of its run; at the end, the ends of all chains."""
    runs = manifest.runs
    numbers = {run.run_id: number for number, run in enumerate(runs)}
    sequences = [run.base_sequence for run in runs]
    chains = [bytes.fromhex(run.base.chain) if run.base else first_hash(run.run_id) for run in runs]
    for line in lines:
        try:
            envelope = decode(line)
        except BattenError as error:
            raise BadBundle(f"a fact cannot be read: {error}") from error
        number = numbers.get(envelope.run_id, -1)
        if number < 0 or envelope.sequence != sequences[number]:
            raise BadBundle(
                f"fact {envelope.sequence} of {envelope.run_id} is not the next of that run"
            )
        if len(line) > MAX_ENVELOPE_BYTES:
            raise BadBundle(f"a fact is longer than {MAX_ENVELOPE_BYTES} bytes")
        chains[number] = sha256(chains[number] + line).digest()
        sequences[number] += 1
        yield Event(number, envelope.sequence, line, chains[number], envelope)
    for run, sequence, chain in zip(runs, sequences, chains, strict=True):
        if (sequence, chain.hex()) != (run.next_sequence, run.head):
            raise BadBundle(f"the facts of {run.run_id} are not those that were exported")


def check_manifest(manifest: Manifest) -> None:
    """Whether the manifest agrees with itself."""
    session_id = manifest.session.session_id
    names = [run.run_id for run in manifest.runs]
    stream = session_stream(SessionId(session_id))
    for name in (session_id, *names):
        if _ID.fullmatch(name) is None:
            raise BadBundle(f"{name[:100]!r} is not an id")
    if len(set(names)) != len(names) or stream not in names:
        raise BadBundle("the bundle's runs are not those of one session")
    for run in manifest.runs:
        if (run.kind == "session") != (run.run_id == stream):
            raise BadBundle(f"run {run.run_id} cannot have the kind {run.kind}")
        if (run.base is not None) != (run.base_sequence > 0):
            raise BadBundle(f"run {run.run_id} lacks the base of its pruned facts")
        if run.base is not None:
            _check_base(run, session_id if run.run_id == stream else None)
    last = manifest.session.last_run_id
    if last is not None and last not in names:
        raise BadBundle(f"the session's last run {last[:100]!r} is not in the bundle")
    if manifest.sealed and manifest.passphrase is None:
        raise BadBundle("the bundle has sealed bodies, but does not say how to open them")


def _check_base(run: BundledRun, session_id: str | None) -> None:
    assert run.base is not None
    rows = run.base.rows
    owners = {row.run_id for row in rows.requests} | {row.run_id for row in rows.artifacts}
    owners |= {row.run_id for row in rows.ledger}
    sessions = {row.session_id for row in rows.sessions}
    if owners - {run.run_id} or sessions - {session_id}:
        raise BadBundle(f"the base of {run.run_id} has rows of another run")
    if rows.fold.kind != run.kind:
        raise BadBundle(f"the base of {run.run_id} is of another kind")


class Checked(Struct, frozen=True):
    """A bundle that was read to its end, and the rows folded from it."""

    manifest: Manifest
    folds: list[RunFold]
    """Of each run of the manifest."""
    changes: Changes
    released: frozenset[str]
    """Artifacts whose creation was pruned."""

    @property
    def session(self) -> SessionRow:
        return self.changes.sessions[self.manifest.session.session_id]


class Check:
    """Checks everything and keeps only the rows. The passphrase opens the sealed part."""

    def __init__(self, passphrase: str | None) -> None:
        self._changes = Changes()
        self._folds: list[RunFold] = []
        self._released: set[str] = set()
        self._opener = Opener(passphrase)

    def begin(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._opener.begin(manifest)
        for run in manifest.runs:
            if run.base is None:
                self._folds.append(RunFold(kind=run.kind, created_at=run.created_at))
                continue
            rows = run.base.rows
            self._folds.append(rows.fold)
            before = rows.changes()
            for mine, theirs in (
                (self._changes.requests, before.requests),
                (self._changes.artifacts, before.artifacts),
            ):
                if any(name in mine for name in theirs):
                    raise BadBundle(f"the base of {run.run_id} has rows of another run")
            self._changes.requests.update(before.requests)
            self._changes.artifacts.update(before.artifacts)
            self._changes.sessions.update(before.sessions)
            self._changes.ledger += before.ledger
            self._released.update(set(before.artifacts).difference(rows.kept))

    def body(self, digest: str, chunks: Iterable[bytes]) -> None:
        hashed = sha256()
        for chunk in chunks:
            hashed.update(chunk)
        if hashed.hexdigest() != digest:
            raise BadBundle(f"the body {digest} is not what was exported")

    def sealed(self, digest: str, data: bytes) -> None:
        self._opener.content(digest, data)

    def state(self, run: BundledRun, data: bytes) -> None:
        self._opener.state(run, data)

    def events(self, events: Iterator[Event]) -> None:
        session_id = self._manifest.session.session_id
        ended: set[int] = set()
        for event in events:
            run, envelope = self._manifest.runs[event.run], event.envelope
            if (envelope.session_id, envelope.task_id or None) != (session_id, run.task_id):
                raise BadBundle(f"fact {event.sequence} of {run.run_id} is of another session")
            if event.is_terminal:
                if event.run in ended or self._folds[event.run].ended_at is not None:
                    raise BadBundle(f"run {run.run_id} ends twice")
                ended.add(event.run)
            place = FactContext(
                run.run_id, run.task_id, session_id, event.sequence, envelope.occurred_at
            )
            try:
                self._folds[event.run] = fold(
                    self._folds[event.run], self._changes, place, envelope.data
                )
            except BattenError as error:
                raise BadBundle(f"fact {event.sequence} of {run.run_id}: {error}") from error

    def result(self) -> Checked:
        manifest = self._manifest
        self._check_session()
        self._check_bodies()
        return Checked(manifest, self._folds, self._changes, frozenset(self._released))

    def _check_session(self) -> None:
        said, sessions = self._manifest.session, self._changes.sessions
        folded = sessions.get(said.session_id)
        if folded is None or len(sessions) != 1:
            raise BadBundle("the bundle's facts do not open its session")
        if any(run.base is not None for run in self._manifest.runs):
            # Pruned facts may have changed these; nothing else says how.
            folded = replace(folded, last_run_id=said.last_run_id, updated_at=said.updated_at)
            sessions[said.session_id] = folded
        if folded != said:
            raise BadBundle("the bundle's session is not what its facts say")

    def _check_bodies(self) -> None:
        manifest = self._manifest
        given = {body.sha256 for body in manifest.bodies}
        left_out = set(manifest.left_out)
        needed: set[str] = set()
        sealed: set[str] = set()
        for row in self._changes.artifacts.values():
            if row.sha256 and row.artifact_id not in self._released:
                needed.add(row.sha256)
                if row.kind == "sealed":
                    sealed.add(row.sha256)
        if given != needed - left_out or not left_out <= sealed or given & left_out:
            raise BadBundle("the bundle's bodies are not those that its artifacts need")
        if set(manifest.sealed) != given & sealed:
            raise BadBundle("the bundle's sealed bodies are not those that its artifacts need")


class Opener:
    """Decrypts the sealed part with the passphrase; without one, does nothing."""

    def __init__(self, passphrase: str | None) -> None:
        self._passphrase = passphrase
        self._key: SealKey | None = None

    def begin(self, manifest: Manifest) -> None:
        if self._passphrase is not None and manifest.passphrase is not None:
            self._key = manifest.passphrase.key(self._passphrase)

    def content(self, digest: str, data: bytes) -> bytes | None:
        return self._open(data, content_context(digest))

    def state(self, run: BundledRun, data: bytes) -> bytes | None:
        return self._open(data, state_context(run.run_id))

    def _open(self, data: bytes, context: bytes) -> bytes | None:
        if self._key is None:
            return None
        try:
            return self._key.unseal(data, context)
        except BattenError as error:
            raise BadBundle(
                "the passphrase does not open the bundle's sealed part, or that part is damaged",
                code="wrong_passphrase",
            ) from error


def content_context(digest: str) -> bytes:
    """Binds the content of a sealed body to that body."""
    return b"bundle content " + digest.encode()


def state_context(run_id: str) -> bytes:
    """Binds a pruned run's conversation to that run."""
    return b"bundle state " + run_id.encode()


def check(path: str, limit: int, passphrase: str | None) -> Checked:
    """Read a whole bundle. Raises `BadBundle` if anything in it is not as it was exported."""
    visitor = Check(passphrase)
    walk(path, limit, visitor)
    return visitor.result()
