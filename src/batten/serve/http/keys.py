"""API keys: one file each under the home, with a hash of the key and never the key itself.

A key is `btn_ID_SECRET`, with 256 random bits as its secret; a plain SHA-256 of it cannot be
guessed. Files are written whole and renamed into place, so commands and a server need no lock.
"""

import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError, Conflict, NotFound
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
_HEADERS = (b"x-api-key", b"x-hecate-runtime-token")


class StoredKey(Struct, frozen=True, omit_defaults=True):
    """What is known of a key."""

    id: str
    name: str
    """Of the principal."""
    scope: KeyScope
    hash: str
    """SHA-256 of the whole key, in hexadecimal."""
    created_at: str
    revoked_at: str = ""


class KeyStore:
    """The keys of a home, as commands manage them."""

    def __init__(self, home: str) -> None:
        self.directory = os.path.join(home, "keys")

    def create(self, name: str, scope: KeyScope) -> tuple[StoredKey, str]:
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
        if any(key.name == name and not key.revoked_at for key in self.all()):
            raise Conflict(f"there is a key {name} already; revoke it or take another name")
        key_id = "".join(secrets.choice(_LETTERS) for _ in range(12))
        text = f"btn_{key_id}_{secrets.token_urlsafe(32)}"
        digest = sha256(text.encode()).hexdigest()
        key = StoredKey(key_id, name, scope, digest, created_at=_now())
        self._write(key)
        return key, text

    def all(self) -> list[StoredKey]:
        """Every key, revoked ones too, oldest first. Raises if a file is damaged."""
        found = [self.read(name) for name in self.files()]
        return sorted(found, key=lambda key: key.created_at)

    def revoke(self, name: str) -> StoredKey:
        """Revoke a key by its name or id. A running server refuses it from now on."""
        matching = [key for key in self.all() if name in (key.id, key.name)]
        if not matching:
            raise NotFound(f"there is no key {name}; batten keys list shows them")
        for key in matching:
            if not key.revoked_at:
                revoked = msgspec.structs.replace(key, revoked_at=_now())
                self._write(revoked)
                return revoked
        raise Conflict(f"the key {name} was revoked at {matching[-1].revoked_at}")

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
            with open(path, "rb") as file:
                return msgspec.json.decode(file.read(), type=StoredKey)
        except (OSError, ValueError) as error:
            raise CallerError(
                f"{path} is no key file: {error}; delete it, and create the key again",
                code="config",
            ) from error

    def _path(self, key_id: str, ending: str) -> str:
        return os.path.join(self.directory, key_id + ending)

    def _write(self, key: StoredKey) -> None:
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        path = self._path(key.id, ".json")
        draft = f"{path}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
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
        """The principal whose key the headers carry; None without a valid one."""
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
        return not key.revoked_at

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


def _now() -> str:
    return _time(time.time())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
