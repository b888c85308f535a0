"""What clients of the control plane ask of a session elsewhere, in the observer's own name."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from batten.contract.errors import NotFound, NotReady
from batten.control.described.runtimes import RuntimeProfile
from batten.control.observer.contract import NOT_FOUND, RuntimeClient, RuntimeFault
from batten.control.observer.link import RuntimeLink

T = TypeVar("T")
_NOT_READY = frozenset({"RUNTIME_UNAVAILABLE", "RUNTIME_TIMEOUT"})


class RuntimeElsewhere:
    """Implements the seam of described runs over the link that everybody shares."""

    def __init__(self, link: RuntimeLink) -> None:
        self._link = link

    async def profile(self) -> RuntimeProfile:
        hello = await self._ask("Initialize", lambda client: client.initialize())
        return RuntimeProfile(supported_modes=hello.modes, capabilities=hello.capabilities)

    async def cancel(self, session_id: str, reason: str) -> None:
        await self._ask("CancelSession", lambda client: client.cancel_session(session_id, reason))

    async def suspend(self, session_id: str, reason: str) -> None:
        await self._ask("SuspendSession", lambda client: client.suspend_session(session_id, reason))

    async def resume(self, session_id: str, reason: str) -> None:
        await self._ask("ResumeSession", lambda client: client.resume_session(session_id, reason))

    async def _ask(self, name: str, ask: Callable[[RuntimeClient], Awaitable[T]]) -> T:
        try:
            return await self._link.call(name, ask)
        except RuntimeFault as fault:
            if fault.grpc_code == NOT_FOUND:
                raise NotFound(fault.message, code="NOT_FOUND") from fault
            if fault.code in _NOT_READY:
                raise NotReady(fault.message, code=fault.code) from fault
            raise
