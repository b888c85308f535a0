"""The seam to a runtime: what validating and cancelling runs need to know of it."""

from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from batten.contract.errors import BattenError, NotReady
from batten.control.coordination.registries import Registries


class RuntimeProfile(Struct, frozen=True, kw_only=True):
    """What a runtime can do."""

    supported_modes: tuple[str, ...]
    capabilities: dict[str, Any] | UnsetType = UNSET


class RuntimeClient(Protocol):
    """A runtime, with the control plane's own identity.

    Each method raises `NotReady` with the code `RUNTIME_UNAVAILABLE` if the runtime cannot be
    reached, `NotFound` for an unknown session, and another `BattenError` with a code of the
    protocol if it refuses.
    """

    async def profile(self) -> RuntimeProfile: ...

    async def cancel(self, session_id: str, reason: str) -> None: ...

    async def suspend(self, session_id: str, reason: str) -> None: ...

    async def resume(self, session_id: str, reason: str) -> None: ...


def profile_of_home(path: str, *, is_running: bool) -> RuntimeProfile:
    """What the runtime of this home can do, from its registries. Raises `NotReady`."""
    if not is_running:
        raise NotReady(
            "no runtime runs beside this service, or it is about to start; see --runtime-bind",
            code="RUNTIME_UNAVAILABLE",
        )
    return RuntimeProfile(
        supported_modes=tuple(Registries(path).modes.names),
        capabilities={
            "sessions": {"stream": True, "listSessions": True, "watchSessions": True},
            "policyRegistry": {"registerPolicy": True, "listPolicies": True, "listChanged": True},
        },
    )


def unavailable(address: str) -> BattenError:
    return NotReady(f"no connection to the runtime at {address}", code="RUNTIME_UNAVAILABLE")
