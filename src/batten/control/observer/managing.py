"""What clients of the control plane ask of a session elsewhere, in the observer's own name."""

from batten.contract.errors import NotFound
from batten.control.described.runtimes import RuntimeProfile
from batten.control.observer.contract import NOT_FOUND, RuntimeFault
from batten.control.observer.link import RuntimeLink


class RuntimeElsewhere:
    """Implements the seam of described runs over the link that everybody shares."""

    def __init__(self, link: RuntimeLink) -> None:
        self._link = link

    async def profile(self) -> RuntimeProfile:
        hello = await self._link.probe("Initialize", lambda client: client.initialize())
        return RuntimeProfile(supported_modes=hello.modes, capabilities=hello.capabilities)

    async def cancel(self, session_id: str, reason: str) -> None:
        try:
            await self._link.call(
                "CancelSession", lambda client: client.cancel_session(session_id, reason)
            )
        except RuntimeFault as fault:
            if fault.grpc_code != NOT_FOUND:
                raise
            raise NotFound(fault.message, code="NOT_FOUND") from fault

    async def suspend(self, session_id: str, reason: str) -> None:
        await self._link.call(
            "SuspendSession", lambda client: client.suspend_session(session_id, reason)
        )

    async def resume(self, session_id: str, reason: str) -> None:
        await self._link.call(
            "ResumeSession", lambda client: client.resume_session(session_id, reason)
        )
