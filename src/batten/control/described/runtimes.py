"""The seam to a runtime: what validating and cancelling runs need to know of it."""

from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from batten.contract.errors import BattenError, NotReady
from batten.control.coordination.registries import Registries

PATIENCE_S = 5.0
"""How long a runtime may take for a change of a session's state."""


class RuntimeProfile(Struct, frozen=True, kw_only=True):
    """What a runtime can do."""

    supported_modes: tuple[str, ...]
    capabilities: dict[str, Any] | UnsetType = UNSET


class RuntimeClient(Protocol):
    """A runtime, with the control plane's own identity.

    Each method raises a `BattenError` with a code of the protocol if the runtime refuses or cannot
    be reached.
    """

    async def profile(self) -> RuntimeProfile: ...

    async def cancel(self, session_id: str, reason: str) -> None:
        """Raises `NotFound` for a session that it does not have."""
        ...

    async def suspend(self, session_id: str, reason: str) -> None: ...

    async def resume(self, session_id: str, reason: str) -> None: ...


def profile_of_home(path: str, fault: str) -> RuntimeProfile:
    """What the runtime of this home can do, from its registries. Raises `NotReady` for a `fault`
    of its process.
    """
    if fault:
        raise NotReady(f"{fault}; see --runtime-bind", code="RUNTIME_UNAVAILABLE")
    return RuntimeProfile(
        supported_modes=tuple(Registries(path).modes.names),
        capabilities={
            "sessions": {"stream": True, "listSessions": True, "watchSessions": True},
            "policyRegistry": {"registerPolicy": True, "listPolicies": True, "listChanged": True},
        },
    )


def unsupported_mode(mode: str, known: Iterable[str]) -> str:
    """What is said of a descriptor whose mode the runtime does not have."""
    return f"Runtime does not support mode '{mode}'. Supported: {', '.join(known)}"


def timed_out(hope: str) -> NotReady:
    """A runtime that was asked and did not do it in time."""
    return NotReady(f"the runtime did not answer in time: {hope}", code="RUNTIME_TIMEOUT")


def unavailable(address: str) -> BattenError:
    return NotReady(f"no connection to the runtime at {address}", code="RUNTIME_UNAVAILABLE")
