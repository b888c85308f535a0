"""The seam to a runtime: what its observer asks, and what it is told."""

from collections.abc import AsyncGenerator
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from batten.contract.errors import BattenError
from batten.contract.facts.macp import SessionState
from batten.protocols.macp.errors import GRPC_CODES

DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
PERMISSION_DENIED = 7
FAILED_PRECONDITION = 9
UNIMPLEMENTED = 12
UNAVAILABLE = 14
UNAUTHENTICATED = 16
_UNTOLD = frozenset({1, 2, DEADLINE_EXCEEDED, 13, UNAVAILABLE})
"""Statuses of a call that was cut off, or failed in the middle."""
ENDED: frozenset[SessionState] = frozenset({"RESOLVED", "EXPIRED", "CANCELLED"})


class RuntimeFault(BattenError):
    """The runtime refused a call or could not be reached; `grpc_code` is its status."""

    def __init__(
        self, grpc_code: int, message: str, *, code: str | None = None, was_sent: bool = True
    ) -> None:
        super().__init__(message, code=code or GRPC_CODES.get(grpc_code, "INTERNAL_ERROR"))
        self.grpc_code = grpc_code
        self.may_be_done = was_sent and grpc_code in _UNTOLD
        """Whether the call may have had its effect all the same."""


def unavailable(message: str) -> RuntimeFault:
    """For a call that was not sent."""
    return RuntimeFault(UNAVAILABLE, message, was_sent=False)


class Trace(Struct, frozen=True):
    """The span that a call belongs to, as W3C Trace Context spells it."""

    parent: str = ""
    state: str = ""


NO_TRACE = Trace()


class Hello(Struct, frozen=True, kw_only=True):
    """What a runtime says of itself when a client introduces itself."""

    name: str
    version: str
    modes: tuple[str, ...]
    capabilities: dict[str, Any]


class SessionSnapshot(Struct, frozen=True, kw_only=True):
    """A session as the runtime tells it now."""

    session_id: str
    state: SessionState
    mode: str
    mode_version: str = ""
    configuration_version: str = ""
    policy_version: str = ""
    initiator: str = ""
    participants: tuple[str, ...] = ()
    started_at_unix_ms: int = 0
    expires_at_unix_ms: int = 0
    context_id: str = ""
    extension_keys: tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class Said(Struct, frozen=True, kw_only=True):
    """A message of a session, or a signal beside it."""

    session_id: str
    mode: str
    message_id: str
    message_type: str
    sender: str
    timestamp_unix_ms: int
    payload: bytes
    correlation: str = ""
    """The session that a signal names in its payload."""


class StreamError(Struct, frozen=True, kw_only=True):
    """An error that the runtime tells on a stream which goes on."""

    code: str
    message: str
    message_id: str = ""
    details: str = ""
    """As text; base64 if it is none."""


Frame: TypeAlias = Said | StreamError
LifecycleKind = Literal["CREATED", "RESOLVED", "EXPIRED", "SUSPENDED", "RESUMED", "CANCELLED"]


class Lifecycle(Struct, frozen=True):
    """A session that the runtime knows, or a change of one."""

    kind: LifecycleKind
    session: SessionSnapshot


class Manifest(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    agent_id: str
    title: str = ""
    description: str = ""
    supported_modes: list[str]
    metadata: dict[str, str]


class ModeInfo(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A registered mode."""

    mode: str
    mode_version: str
    title: str = ""
    description: str = ""
    determinism_class: str = ""
    participant_model: str = ""
    message_types: list[str]
    terminal_message_types: list[str]
    schema_uris: dict[str, str]


class Root(Struct, frozen=True, omit_defaults=True):
    uri: str
    name: str = ""


class Policy(Struct, frozen=True, kw_only=True, rename="camel"):
    """A policy of the runtime's registry; `rules` are opaque."""

    policy_id: str
    mode: str
    description: str
    rules: dict[str, Any]
    schema_version: int
    registered_at_unix_ms: int = 0


class Verdict(Struct, frozen=True, omit_defaults=True):
    """Whether a registry took a change."""

    ok: bool
    error: str = ""


class RuntimeClient(Protocol):
    """One runtime. Every call raises `RuntimeFault` and has a deadline; streams have none."""

    address: str

    async def initialize(self, trace: Trace = NO_TRACE) -> Hello: ...

    async def get_session(self, session_id: str, trace: Trace = NO_TRACE) -> SessionSnapshot: ...

    async def cancel_session(self, session_id: str, reason: str) -> None: ...

    async def suspend_session(self, session_id: str, reason: str) -> None: ...

    async def resume_session(self, session_id: str, reason: str) -> None: ...

    def transcript(
        self, session_id: str, after: int, *, live: bool, trace: Trace = NO_TRACE
    ) -> AsyncGenerator[Frame, None]:
        """Messages after the first `after` ones. `live`: then each new one, until it is closed;
        else it ends with the last that was accepted.
        """
        ...

    def watch_sessions(self) -> AsyncGenerator[Lifecycle, None]:
        """Every session that the runtime knows, then each change."""
        ...

    def watch_signals(self) -> AsyncGenerator[Said, None]: ...

    async def manifest(self) -> Manifest: ...

    async def modes(self) -> list[ModeInfo]: ...

    async def roots(self) -> list[Root]: ...

    async def policies(self, mode: str) -> list[Policy]: ...

    async def policy(self, policy_id: str) -> Policy: ...

    async def register_policy(self, policy: Policy) -> Verdict: ...

    async def unregister_policy(self, policy_id: str) -> Verdict: ...

    async def close(self) -> None: ...
