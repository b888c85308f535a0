"""The modes and policies that sessions may start with: values, changed by replacing them."""

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from batten.coordination.modes.decision import Decision
from batten.coordination.modes.extensions import Extension, MultiRound, check_descriptor
from batten.coordination.modes.handoff import Handoff
from batten.coordination.modes.mode import Descriptor, Mode
from batten.coordination.modes.proposal import Proposal
from batten.coordination.modes.quorum import Quorum
from batten.coordination.modes.task import Task
from batten.coordination.policy.policy import DEFAULT, PolicyDescriptor
from batten.coordination.policy.registration import check_policy
from batten.coordination.rejection import Rejection, forbidden, invalid

AnyMode = Mode[Any]
STANDARD: dict[str, AnyMode] = {
    mode.descriptor.mode: mode for mode in (Decision(), Proposal(), Task(), Handoff(), Quorum())
}
BUILT_IN: dict[str, AnyMode] = {**STANDARD, MultiRound.descriptor.mode: MultiRound()}


class ModeRegistry(Struct, frozen=True):
    """Built-in modes, and extension modes with whether they were promoted."""

    extensions: dict[str, Descriptor] = {}
    promoted: frozenset[str] = frozenset()

    def find(self, name: str) -> AnyMode | None:
        if (mode := BUILT_IN.get(name)) is not None:
            return mode
        descriptor = self.extensions.get(name)
        if descriptor is None:
            return None
        return Extension(descriptor, strict=name in self.promoted)

    def has(self, name: str) -> bool:
        return name in BUILT_IN or name in self.extensions

    @property
    def names(self) -> list[str]:
        return sorted({*BUILT_IN, *self.extensions})

    @property
    def standard(self) -> list[Descriptor]:
        """The modes of the standard, and the promoted ones."""
        promoted = [self.extensions[name] for name in sorted(self.promoted)]
        return [mode.descriptor for mode in STANDARD.values()] + promoted

    @property
    def extension(self) -> list[Descriptor]:
        """Extension modes that were not promoted."""
        own = [
            descriptor
            for name, descriptor in sorted(self.extensions.items())
            if name not in self.promoted
        ]
        return [MultiRound.descriptor, *own]

    def register(self, descriptor: Descriptor) -> "ModeRegistry":
        """The registry with one more mode. Raises `Rejection`."""
        check_descriptor(descriptor, frozenset(self.names))
        return replace(self, extensions={**self.extensions, descriptor.mode: descriptor})

    def unregister(self, name: str) -> "ModeRegistry":
        """The registry without an extension mode. Raises `Rejection`."""
        if name in BUILT_IN:
            raise forbidden(f"mode {name} is built in")
        if name in self.promoted:
            raise forbidden(f"mode {name} was promoted and stays")
        if name not in self.extensions:
            raise Rejection("MODE_NOT_SUPPORTED", f"there is no extension mode {name!r}")
        rest = {key: value for key, value in self.extensions.items() if key != name}
        return replace(self, extensions=rest)

    def promote(self, name: str, new_name: str = "") -> "ModeRegistry":
        """The registry with an extension mode among the standard ones, maybe under a new name."""
        if name in BUILT_IN:
            raise forbidden(f"mode {name} is built in")
        if name in self.promoted:
            raise invalid(f"mode {name} was promoted already")
        descriptor = self.extensions.get(name)
        if descriptor is None:
            raise Rejection("MODE_NOT_SUPPORTED", f"there is no extension mode {name!r}")
        target = new_name.strip() or name
        if target.startswith("macp.mode."):
            raise forbidden("macp.mode.* is reserved for the modes of the standard")
        if target != name and target in self.names:
            raise invalid(f"mode {target} is already registered")
        rest = {key: value for key, value in self.extensions.items() if key != name}
        return ModeRegistry(
            {**rest, target: replace(descriptor, mode=target)}, self.promoted | {target}
        )


class PolicyRegistry(Struct, frozen=True):
    """Policies by id; `policy.default` is always among them."""

    policies: dict[str, PolicyDescriptor] = field(
        default_factory=lambda: {DEFAULT.policy_id: DEFAULT}
    )
    read_only: bool = False

    def find(self, policy_id: str) -> PolicyDescriptor | None:
        return self.policies.get(policy_id or DEFAULT.policy_id)

    def of_mode(self, mode: str = "") -> list[PolicyDescriptor]:
        """Policies for a mode, those for all modes included; every policy without one."""
        found = sorted(self.policies.values(), key=lambda policy: policy.policy_id)
        return [policy for policy in found if not mode or policy.mode in ("*", mode)]

    def register(self, policy: PolicyDescriptor) -> "PolicyRegistry":
        """The registry with one more policy. Raises `Rejection`."""
        self._check_writable()
        check_policy(policy)
        if policy.policy_id in self.policies:
            raise Rejection(
                "INVALID_POLICY_DEFINITION", f"policy {policy.policy_id} is already registered"
            )
        return replace(self, policies={**self.policies, policy.policy_id: policy})

    def unregister(self, policy_id: str) -> "PolicyRegistry":
        """The registry without a policy; running sessions keep theirs. Raises `Rejection`."""
        self._check_writable()
        if policy_id == DEFAULT.policy_id:
            raise forbidden(f"{policy_id} is built in")
        if policy_id not in self.policies:
            raise Rejection("UNKNOWN_POLICY_VERSION", f"there is no policy {policy_id!r}")
        rest = {key: value for key, value in self.policies.items() if key != policy_id}
        return replace(self, policies=rest)

    def _check_writable(self) -> None:
        if self.read_only:
            raise Rejection(
                "REGISTRY_READ_ONLY", "the policies were loaded from files: change them there"
            )
