"""The registries of a home: modes and policies that were registered while running, in one file."""

import os

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError
from batten.control.coordination.broadcast import Broadcast
from batten.coordination.modes.mode import Descriptor
from batten.coordination.policy.policy import DEFAULT, SCHEMA_VERSIONS, PolicyDescriptor
from batten.coordination.registry import ModeRegistry, PolicyRegistry

FILE = "coordination.json"


class _Kept(Struct, frozen=True, kw_only=True):
    """The file's content."""

    modes: list[Descriptor] = []
    promoted: list[str] = []
    policies: list[PolicyDescriptor] = []


class Registries:
    """Modes and policies, with a file for what was registered. Without a path nothing is kept."""

    def __init__(self, path: str = "", policies: PolicyRegistry | None = None) -> None:
        """`policies` that were loaded from files replace those of the file."""
        self._path = path
        self.changed: Broadcast[str] = Broadcast(64)
        """Hears `modes` and `policies`."""
        kept = _read(path) if path else _Kept()
        self._modes = ModeRegistry({one.mode: one for one in kept.modes}, frozenset(kept.promoted))
        self._policies = policies or PolicyRegistry(
            {one.policy_id: one for one in (DEFAULT, *kept.policies)}
        )

    @property
    def modes(self) -> ModeRegistry:
        return self._modes

    @modes.setter
    def modes(self, modes: ModeRegistry) -> None:
        self._write(modes, self._policies)
        self._modes = modes
        self.changed.publish("modes")

    @property
    def policies(self) -> PolicyRegistry:
        return self._policies

    @policies.setter
    def policies(self, policies: PolicyRegistry) -> None:
        self._write(self._modes, policies)
        self._policies = policies
        self.changed.publish("policies")

    def _write(self, modes: ModeRegistry, policies: PolicyRegistry) -> None:
        if not self._path:
            return
        kept = _Kept(
            modes=list(modes.extensions.values()),
            promoted=sorted(modes.promoted),
            policies=[]
            if policies.read_only
            else [one for one in policies.policies.values() if one != DEFAULT],
        )
        draft = f"{self._path}.{os.getpid()}"
        with open(draft, "wb") as file:
            file.write(msgspec.json.encode(kept))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self._path)


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
