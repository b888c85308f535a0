"""API keys: one file each under the home, with a hash of the key and never the key itself.

A key is `btn_ID_SECRET`, with 256 random bits as its secret; a plain SHA-256 of it cannot be
guessed. Files are written whole and renamed into place, so a server needs no lock; commands that
write take one, so that none undoes what another did.
"""

import fcntl
import hmac
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError, Conflict, NotFound
from batten.serve.http.errors import HttpError
from batten.serve.http.table import Principal

KeyScope = Literal["viewer", "operator", "admin"]

_log = logging.getLogger("batten.http")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
OUR_NAMES = frozenset(
    (
        *("policy", "retention", "runner", "runtime"),
        *("session-discovery", "system", "timeout"),
    )
)
"""Authors in events and in the audit log that no client may pose as."""
KEYLESS = frozenset(("client", "guest", "local", "operator", "user"))
"""Authors in both that need no key: those on this machine, and on the pipes of a session."""
_KEY = re.compile(rb"btn_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_SETTLED_NS = 1_000_000_000
"""A directory may change twice within one tick of the clock that dates the changes."""
_USED_EVERY_S = 60.0
_LOOK_EVERY_S = 0.1
_LARGEST_FILE = 1 << 16
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LAST_S = 253_402_300_799.0
"""The end of the last year that can be written."""
_PATIENCE_S = 2.0
"""For another command that writes keys."""
_HEADERS = (b"x-api-key", b"x-hecate-runtime-token")
RUNNER_HEADERS = (b"x-maestro-api-key", b"x-composer-api-key")


class StoredKey(Struct, frozen=True, omit_defaults=True):
    """What is known of a key. Fields have been added: files of earlier versions lack them."""

    id: str
    name: str
    """Of the principal."""
    scope: KeyScope
    hash: str
    """SHA-256 of the whole key, in hexadecimal."""
    created_at: str
    revoked_at: str = ""
    expires_at: str = ""
    """Empty for never."""

    def state(self, now_s: float) -> Literal["valid", "revoked", "expired"]:
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at and _seconds(self.expires_at) <= now_s else "valid"

    def is_valid(self) -> bool:
        return self.state(time.time()) == "valid"


class KeyExpired(HttpError):
    """Only the holder of the key is told."""

    def __init__(self, key: StoredKey) -> None:
        super().__init__(
            "unauthorized",
            f"the key of {key.name} expired at {key.expires_at}; ask for a new one: batten keys"
            f" rotate {key.name}",
            headers=(("www-authenticate", 'Bearer error="invalid_token"'),),
        )


class KeyStore:
    """The keys of a home, as commands manage them."""

    def __init__(self, home: str) -> None:
        self.directory = os.path.join(home, "keys")

    def create(self, name: str, scope: KeyScope, expires_at: str = "") -> tuple[StoredKey, str]:
        """Make a key; returns it with its secret text, which is stored nowhere."""
        if name in OUR_NAMES:
            raise CallerError(
                f"{name!r} is the author of what Batten does itself: take another name"
            )
        if name in KEYLESS:
            raise CallerError(f"{name!r} is the author of what needs no key: take another name")
        if not _NAME.fullmatch(name):
            raise CallerError(
                f"{name!r} is no name for a key: use up to 64 letters, digits, and . _ @ -"
            )
        with self._writing():
            if any(key.name == name and key.is_valid() for key in self.all()):
                raise Conflict(
                    f"there is a key {name} already; rotate or revoke it, or take another name"
                )
            return self._make(name, scope, expires_at)

    def rotate(
        self, name: str, overlap: timedelta, expires_at: str = ""
    ) -> tuple[StoredKey, str, list[StoredKey]]:
        """Make a new key in the place of one that is not revoked; returns it with its secret text,
        and those valid ones of the same name that end now, after `overlap` or before.

        Without `expires_at` the new one lasts as long as the old one was made for.
        """
        with self._writing():
            name = self._matching(name)[-1].name
            older = [key for key in self._matching(name) if not key.revoked_at]
            if not older:
                raise Conflict(f"the key {name} was revoked; make a new one: batten keys create")
            last = older[-1]
            if not expires_at and last.expires_at:
                lasts_s = _seconds(last.expires_at) - _seconds(last.created_at)
                expires_at = _time(time.time() + lasts_s)
            # The new one first: a command that is killed here leaves a key that works.
            made, text = self._make(name, last.scope, expires_at)
            until_s = time.time() + overlap.total_seconds()
            ended: list[StoredKey] = []
            for key in older:
                if not key.is_valid():
                    continue
                if not key.expires_at or _seconds(key.expires_at) > until_s:
                    key = msgspec.structs.replace(key, expires_at=_time(until_s))
                    self._write(key)
                ended.append(key)
            return made, text, ended

    def all(self) -> list[StoredKey]:
        """Every key, revoked ones too, oldest first, without those whose file is `damaged`."""
        return sorted(self._look()[0], key=lambda key: key.created_at)

    def damaged(self) -> list[str]:
        """What is wrong with files that hold no key. They stand in nobody's way."""
        return self._look()[1]

    def revoke(self, name: str) -> list[StoredKey]:
        """Revoke all keys of this name, or the one with this id. A running server refuses them from
        now on.
        """
        with self._writing():
            matching = self._matching(name)
            revoked = [
                msgspec.structs.replace(key, revoked_at=_now())
                for key in matching
                if not key.revoked_at
            ]
            if not revoked:
                raise Conflict(f"the key {name} was revoked at {matching[-1].revoked_at}")
            for key in revoked:
                self._write(key)
            return revoked

    def last_used(self, key: StoredKey) -> str:
        """When a server last accepted it, to the minute; empty for never."""
        try:
            return _time(os.stat(self._path(key.id, ".used")).st_mtime)
        except FileNotFoundError:
            return ""

    def note_use(self, key_id: str) -> None:
        """Remember that the key was used now. A home that is not writable is no reason to fail."""
        with suppress(OSError):
            path = self._path(key_id, ".used")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.utime(descriptor)
            finally:
                os.close(descriptor)

    def files(self) -> list[str]:
        """The names of all key files."""
        try:
            return [name for name in os.listdir(self.directory) if name.endswith(".json")]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> StoredKey:
        """One key; raises if its file is damaged."""
        path = os.path.join(self.directory, name)
        try:
            key = msgspec.json.decode(_content(path), type=StoredKey)
            for instant in (key.created_at, key.revoked_at, key.expires_at):
                _seconds(instant or key.created_at)
            if name != f"{key.id}.json":
                raise ValueError(f"it is the key {key.id}")
            if not _HASH.fullmatch(key.hash):
                raise ValueError("its hash is no SHA-256")
        except (OSError, OverflowError, RecursionError, ValueError) as error:
            raise CallerError(
                f"{path} is no key file: {error}; its key does not work. Delete it, and create"
                " the key again",
                code="config",
            ) from error
        return key

    def _look(self) -> tuple[list[StoredKey], list[str]]:
        keys: list[StoredKey] = []
        damaged: list[str] = []
        for name in sorted(self.files()):
            try:
                keys.append(self.read(name))
            except CallerError as error:
                damaged.append(error.message)
        return keys, damaged

    def _matching(self, name: str) -> list[StoredKey]:
        """By id or name, the oldest first; at least one."""
        matching = [key for key in self.all() if name in (key.id, key.name)]
        if not matching:
            if f"{name}.json" in self.files():
                self.read(f"{name}.json")
            raise NotFound(f"there is no key {name}; batten keys list shows them")
        return matching

    def _make(self, name: str, scope: KeyScope, expires_at: str) -> tuple[StoredKey, str]:
        key_id = "".join(secrets.choice(_LETTERS) for _ in range(12))
        text = f"btn_{key_id}_{secrets.token_urlsafe(32)}"
        digest = sha256(text.encode()).hexdigest()
        key = StoredKey(key_id, name, scope, digest, created_at=_now(), expires_at=expires_at)
        self._write(key)
        return key, text

    def _path(self, key_id: str, ending: str) -> str:
        return os.path.join(self.directory, key_id + ending)

    @contextmanager
    def _writing(self) -> Generator[None]:
        """Keep other commands from writing meanwhile. None takes seconds: whoever has the lock for
        longer is no command of ours, and must not keep a key from being revoked.
        """
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            until = time.monotonic() + _PATIENCE_S
            while time.monotonic() < until:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(_PATIENCE_S / 100)
            yield
        finally:
            os.close(descriptor)

    def _write(self, key: StoredKey) -> None:
        path = self._path(key.id, ".json")
        draft = f"{path}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.encode(key))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)


class KeyRing:
    """The keys of a home, as a server checks them: read again whenever they change."""

    def __init__(self, store: KeyStore, others: Iterable[str] = ()) -> None:
        """`others`: keys of the environment, with every scope."""
        self._store = store
        self._others = [(sha256(key.encode()).digest(), _principal_of(key)) for key in others]
        self._stamp = (-1, -1)
        self._looked_at = -_LOOK_EVERY_S
        self._keys: dict[str, StoredKey] = {}
        self._has_files = False
        self._version = 0
        self._used: dict[str, float] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is no key at all. With revoked or damaged files alone, no key works."""
        self._refresh()
        return not self._has_files and not self._others

    @property
    def version(self) -> int:
        """Grows whenever the keys were read again."""
        self._refresh()
        return self._version

    def principal(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """The principal whose key the headers carry; None without a valid one. Raises `KeyExpired`
        if it was valid.
        """
        text = presented_key(headers)
        if text is None:
            return None
        if self._others and (found := self._among_others(text)) is not None:
            return found
        self._refresh()
        parts = _KEY.fullmatch(text)
        key = self._keys.get(parts[1].decode()) if parts else None
        if key is None or key.revoked_at:
            return None
        if not hmac.compare_digest(sha256(text).hexdigest(), key.hash):
            return None
        if key.expires_at and not key.is_valid():
            raise KeyExpired(key)
        now = time.monotonic()
        if now - self._used.get(key.id, -_USED_EVERY_S) >= _USED_EVERY_S:
            self._used[key.id] = now
            self._store.note_use(key.id)
        return Principal(key.name, key.scope, key.id)

    def holds(self, key_id: str) -> bool:
        """Whether a key that was valid still is."""
        self._refresh()
        key = self._keys.get(key_id)
        if key is None:
            return any(principal.key_id == key_id for _, principal in self._others)
        return key.is_valid()

    def _among_others(self, text: bytes) -> Principal | None:
        """Compares with all of them, so that the time tells nothing."""
        digest = sha256(text).digest()
        found: Principal | None = None
        for known, principal in self._others:
            if hmac.compare_digest(digest, known):
                found = principal
        return found

    def _refresh(self) -> None:
        looked_at = time.monotonic()
        if looked_at - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = looked_at
        try:
            status = os.stat(self._store.directory)
            stamp = (status.st_mtime_ns, status.st_ino)
        except FileNotFoundError:
            stamp = (0, 0)
        if stamp == self._stamp:
            return
        now = time.time_ns()
        keys: dict[str, StoredKey] = {}
        files = self._store.files()
        for name in files:
            try:
                key = self._store.read(name)
            except CallerError as error:
                _log.warning("%s", error)
            else:
                keys[key.id] = key
        self._keys, self._has_files = keys, bool(files)
        self._version += 1
        self._stamp = stamp if now - stamp[0] > _SETTLED_NS else (-1, -1)


def _principal_of(key: str) -> Principal:
    """Named by a digest: no part of the key itself goes into facts and logs."""
    name = f"api-key-{sha256(key.encode()).hexdigest()[:8]}"
    return Principal(name, "admin", name)


def presented_key(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key in `Authorization: Bearer`, `X-Api-Key` or `X-Hecate-Runtime-Token`."""
    given = headers.get(b"authorization")
    if given is not None:
        scheme, _, text = given.partition(b" ")
        return text.strip() if scheme.lower() == b"bearer" else None
    for name in _HEADERS:
        if name in headers:
            return headers[name]
    return None


def presents_key(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request has any key, of whatever kind."""
    return any(name in headers for name in (b"authorization", *_HEADERS, *RUNNER_HEADERS))


def _now() -> str:
    return _time(time.time())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(min(seconds, _LAST_S), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _seconds(instant: str) -> float:
    """A stored time since 1970. Raises `ValueError`."""
    at = datetime.fromisoformat(instant)
    if at.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone")
    return at.timestamp()


def _content(path: str) -> bytes:
    """The content of a plain file. Waits for nothing, whatever has that name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
            raise ValueError("it is no plain file, or too large")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ValueError("another user could have written it")
        return file.read()
