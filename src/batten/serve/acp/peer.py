"""Our side of the connection: what is shown to the client, what it is asked, and its answers."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from batten.contract.errors import BattenError
from batten.protocols.acp import rpc
from batten.protocols.acp.asking import read_answer
from batten.protocols.acp.shape import Shape
from batten.protocols.acp.updates import AnyUpdate, SessionUpdate
from batten.serve.output import Output

Answer = TypeVar("Answer", bound=Shape)


class ClientGone(BattenError):
    """Nobody is there to answer."""

    code = "client_gone"


class AcpPeer:
    """Writes messages, and waits for the answers to those that ask."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._waiting: dict[rpc.RequestId, asyncio.Future[rpc.Response]] = {}
        self._asked = 0
        self._gone = False

    @property
    def has_room(self) -> bool:
        return self._output.has_room

    async def room(self) -> None:
        """Wait while the client reads slower than we write."""
        await self._output.room()

    def show(self, session_id: str, updates: list[AnyUpdate]) -> None:
        for update in updates:
            told = SessionUpdate(session_id=session_id, update=update)
            self._output.write(rpc.notification("session/update", told))

    def answer(self, request_id: rpc.RequestId, result: object) -> None:
        self._output.write(rpc.result(request_id, result))

    def refuse(self, request_id: rpc.RequestId, error: BattenError) -> None:
        self._output.write(rpc.failure(request_id, rpc.rpc_error(error)))

    async def ask(
        self,
        method: str,
        params: Shape,
        kind: type[Answer],
        *,
        withdraws: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """Ask, and wait as long as the caller does. Nobody answers who is no longer asked.

        A client that cancelled the turn itself knows that, and need not be told: `withdraws`.
        Raises `ClientGone`, the client's own error, or `PeerError` for an answer that is none.
        """
        if self._gone:
            raise ClientGone("the client has closed its side")
        request_id = self._asked
        self._asked += 1
        waiting: asyncio.Future[rpc.Response] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiting
        self._output.write(rpc.request(request_id, method, params))
        try:
            return read_answer(await waiting, kind)
        except asyncio.CancelledError:
            if withdraws():
                withdrawn = {"requestId": request_id}
                self._output.write(rpc.notification("$/cancel_request", withdrawn))
            raise
        finally:
            del self._waiting[request_id]

    def answered(self, response: rpc.Response) -> None:
        """An answer has come. One that nobody waits for any more is nothing to anybody."""
        waiting = self._waiting.get(response.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(response)

    def close(self) -> None:
        """The client says nothing any more: whoever waits for it is told."""
        self._gone = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ClientGone("the client has closed its side"))
