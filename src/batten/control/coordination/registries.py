"""The registries of a home: modes and policies that were registered while running, in one file."""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from batten.contract.errors import CallerError, StoreBusy, StoreReadOnly
from batten.control.coordination.broadcast import Broadcast
from batten.coordination.modes.mode import Descriptor
from batten.coordination.policy.policy import DEFAULT, SCHEMA_VERSIONS, PolicyDescriptor
from batten.coordination.registry import ModeRegistry, PolicyRegistry

FILE = "coordination.json"
_LOCK_S = 1.0
_log = logging.getLogger("batten.coordination")


class _Kept(Struct, frozen=True, kw_only=True):
    """The file's content."""

    modes: list[Descriptor] = []
    promoted: list[str] = []
    policies: list[PolicyDescriptor] = []


class Registries:
    """Modes and policies, with a file for what was registered. Without a path nothing is kept.

    Several runtimes of a home share the file: each change begins with what it holds, and what
    another process registered is found with the next look.
    """

    def __init__(self, path: str = "", policies: PolicyRegistry | None = None) -> None:
        """`policies` replace those of the file, which keeps its own while they cannot be changed.
        Raises `CallerError` for a file that cannot be read.
        """
        self._path = path
        self._fixed = policies if policies is not None and policies.read_only else None
        self.changed: Broadcast[str] = Broadcast(64)
        """Hears `modes` and `policies`."""
        self._stamp = _stamp(path)
        kept = _read(path) if path else _Kept()
        if policies is not None and self._fixed is None:
            kept = replace(kept, policies=_registered(policies))
        self._take(kept)

    def _take(self, kept: _Kept) -> None:
        self._kept = kept
        self._modes = ModeRegistry({one.mode: one for one in kept.modes}, frozenset(kept.promoted))
        self._policies = self._fixed or PolicyRegistry(
            {one.policy_id: one for one in (DEFAULT, *kept.policies)}
        )

    @property
    def modes(self) -> ModeRegistry:
        self.refresh()
        return self._modes

    @property
    def policies(self) -> PolicyRegistry:
        self.refresh()
        return self._policies

    def refresh(self) -> None:
        """Take what another process registered. A file that it left unreadable changes nothing."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._renew(_read(self._path))
        except CallerError as error:
            _log.warning("registered modes and policies stay as they were: %s", error)

    def change_modes(self, change: Callable[[ModeRegistry], ModeRegistry]) -> None:
        """Raises what `change` raises, and `JournalError` if the file cannot be written."""
        with self._locked():
            modes = change(self.modes)
            names = sorted(modes.promoted)
            kept = replace(self._kept, modes=list(modes.extensions.values()), promoted=names)
            self._write(kept)

    def change_policies(self, change: Callable[[PolicyRegistry], PolicyRegistry]) -> None:
        """Raises what `change` raises, and `JournalError` if the file cannot be written."""
        with self._locked():
            policies = change(self.policies)
            self._write(replace(self._kept, policies=_registered(policies)))

    def _renew(self, kept: _Kept) -> None:
        before = (self._modes, self._policies)
        self._take(kept)
        if self._modes != before[0]:
            self.changed.publish("modes")
        if self._policies != before[1]:
            self.changed.publish("policies")

    @contextmanager
    def _locked(self) -> Generator[None]:
        """While no other process changes the file; raises `StoreBusy` if one takes too long."""
        if not self._path:
            yield
            return
        try:
            lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreReadOnly(f"{self._path}.lock: {error.strerror}") from error
        try:
            _take_lock(lock, self._path)
            yield
        finally:
            os.close(lock)

    def _write(self, kept: _Kept) -> None:
        if self._path:
            draft = f"{self._path}.{os.getpid()}"
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                with open(os.open(draft, flags, 0o600), "wb") as file:
                    file.write(msgspec.json.encode(kept))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, self._path)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(draft)
                raise StoreReadOnly(f"{self._path} is not written: {error.strerror}") from error
            self._stamp = _stamp(self._path)
        self._renew(kept)


def _registered(policies: PolicyRegistry) -> list[PolicyDescriptor]:
    return [one for one in policies.policies.values() if one != DEFAULT]


def _stamp(path: str) -> tuple[int, int] | None:
    """Tells one content of the file from another: each has a file of its own."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns


def _take_lock(lock: int, path: str) -> None:
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise StoreBusy(f"another process changes {path}: try again") from None
            time.sleep(0.01)


def _read(path: str) -> _Kept:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Kept)
    except FileNotFoundError:
        return _Kept()
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise CallerError(f"{path} cannot be read: {error}", code="config") from error


def load_policies(directory: str) -> PolicyRegistry:
    """The policies of a directory, one JSON file each; the registry cannot be changed then."""
    registry = PolicyRegistry()
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
    except OSError as error:
        raise CallerError(f"policies cannot be read: {error}", code="config") from error
    for name in names:
        registry = registry.register(read_policy_file(os.path.join(directory, name)))
    return PolicyRegistry(registry.policies, read_only=True)


class _PolicyFile(Struct, frozen=True):
    """A policy as people write it: `rules` is an object."""

    policy_id: str
    rules: msgspec.Raw
    mode: str = "*"
    description: str = ""
    schema_version: int = 1


def read_policy_file(path: str) -> PolicyDescriptor:
    """One policy of a file. Raises `CallerError` if it is none."""
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=_PolicyFile)
        rules = bytes(found.rules).decode()
        if rules.lstrip().startswith('"'):  # the rules' text, as on the wire
            rules = msgspec.json.decode(rules, type=str)
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise CallerError(f"{path} is no policy: {error}", code="config") from error
    if found.schema_version not in SCHEMA_VERSIONS:
        known = ", ".join(map(str, SCHEMA_VERSIONS))
        raise CallerError(
            f"{path} has schema_version {found.schema_version}: write one of {known}", code="config"
        )
    return PolicyDescriptor(
        policy_id=found.policy_id,
        mode=found.mode,
        description=found.description,
        rules=rules,
        schema_version=found.schema_version,
    )
