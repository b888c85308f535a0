"""Matches the responses of a client to our calls; every protocol uses this."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from batten.contract.errors import BattenError

CallId = TypeVar("CallId")
Response = TypeVar("Response")


class ClientGone(BattenError):
    """The client closed its side before it answered."""

    code = "client_gone"

    def __init__(self) -> None:
        super().__init__("the client has closed its side")


class ClientCalls(Generic[CallId, Response]):
    """Matches responses to calls by id. `id_of` builds the id from the number of the call."""

    def __init__(self, id_of: Callable[[int], CallId]) -> None:
        self._id_of = id_of
        self._count = 0
        self._pending: dict[CallId, asyncio.Future[Response]] = {}
        self._closed = False

    async def call(
        self, send: Callable[[CallId], object], withdraw: Callable[[CallId], object]
    ) -> Response:
        """Send a call and wait for its response; raises `ClientGone`.

        `withdraw` is called when the caller is cancelled and no longer needs the response.
        """
        if self._closed:
            raise ClientGone
        call_id = self._id_of(self._count)
        self._count += 1
        send(call_id)
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._pending[call_id] = response
        try:
            return await response
        except asyncio.CancelledError:
            withdraw(call_id)
            raise
        finally:
            del self._pending[call_id]

    def respond(self, call_id: CallId, response: Response) -> None:
        """Deliver a response to its caller. A response without a pending call is dropped."""
        pending = self._pending.get(call_id)
        if pending is not None and not pending.done():
            pending.set_result(response)

    def close(self) -> None:
        """Make all pending and later calls raise `ClientGone`."""
        self._closed = True
        for pending in self._pending.values():
            if not pending.done():
                pending.set_exception(ClientGone())
