"""Timeouts for calls to the client's files and terminals."""

import asyncio

from batten.contract.errors import ProviderError
from batten.protocols.acp.asking import Nothing
from batten.protocols.acp.shape import Shape
from batten.serve.acp.peer import AcpPeer, Answer

_ANSWER_S = 30.0
"""For calls that need no decision by the user."""
_ENDING_S = 5.0
"""For calls that kill or release something."""


class PatientPeer:
    """Calls the client with timeouts, capped by the timeout of questions to the user."""

    def __init__(self, peer: AcpPeer, request_s: float) -> None:
        self.peer = peer
        self._answer_s = min(_ANSWER_S, request_s)
        self._ending_s = min(_ENDING_S, request_s)

    async def ask(self, method: str, params: Shape, kind: type[Answer]) -> Answer:
        """Wait for an answer; raises `ProviderError` after the timeout."""
        return await self._within(self._answer_s, method, params, kind)

    async def end(self, method: str, params: Shape) -> None:
        """The same with the shorter timeout, for kills and releases."""
        await self._within(self._ending_s, method, params, Nothing)

    async def _within(
        self, seconds: float, method: str, params: Shape, kind: type[Answer]
    ) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                return await self.peer.ask(method, params, kind)
        except TimeoutError:
            said = f"the client did not answer {method} within {seconds:g} s"
            raise ProviderError(said, code="client_timeout") from None
