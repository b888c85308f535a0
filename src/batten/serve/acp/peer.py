"""Sends updates, responses and calls to the client."""

from collections.abc import Callable
from typing import TypeVar

from batten.contract.errors import BattenError
from batten.protocols.acp import rpc
from batten.protocols.acp.asking import read_answer
from batten.protocols.acp.shape import Shape
from batten.protocols.acp.updates import AnyUpdate, SessionUpdate
from batten.serve.client_calls import ClientCalls
from batten.serve.output import Output

Answer = TypeVar("Answer", bound=Shape)


class AcpPeer(ClientCalls[rpc.RequestId, rpc.Response]):
    """Writes messages, and matches the client's responses to our calls."""

    def __init__(self, output: Output) -> None:
        super().__init__(lambda number: number)
        self._output = output

    @property
    def has_room(self) -> bool:
        return self._output.has_room

    async def room(self) -> None:
        """Wait while the client reads slower than we write."""
        await self._output.room()

    def show(self, session_id: str, updates: list[AnyUpdate]) -> None:
        for update in updates:
            params = SessionUpdate(session_id=session_id, update=update)
            self._output.write(rpc.notification("session/update", params))

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
        """Call the client and read its response, without a timeout.

        `withdraws` returns whether a cancelled call is withdrawn: a client that cancelled the turn
        itself needs no `$/cancel_request`. Raises `ClientGone`, the client's own error, or
        `PeerError` for an invalid response.
        """

        def send(request_id: rpc.RequestId) -> None:
            self._output.write(rpc.request(request_id, method, params))

        def withdraw(request_id: rpc.RequestId) -> None:
            if withdraws():
                withdrawn = {"requestId": request_id}
                self._output.write(rpc.notification("$/cancel_request", withdrawn))

        return read_answer(await self.call(send, withdraw), kind)
