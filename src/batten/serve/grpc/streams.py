"""One StreamSession call: messages of the client in, accepted messages of the session out, and
last its cancellation.

The journal is the buffer: a slow reader delays nobody and loses nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, Protocol

from batten.control.coordination import store
from batten.control.coordination.answers import Answer
from batten.control.coordination.runtime import Runtime
from batten.coordination.engine import Accepted
from batten.coordination.envelope import AMBIENT
from batten.coordination.rejection import Rejection
from batten.serve.grpc import wire
from batten.serve.grpc.identity import Identity


class Sender(Protocol):
    """Sends an envelope for an identity, as `Send` does. Raises `Rejection`."""

    async def __call__(self, envelope: Any, identity: Identity) -> Answer: ...


class Viewer(Protocol):
    """Raises `Rejection` unless the identity may look at a session; returns its last frame."""

    async def __call__(self, session_id: str, identity: Identity) -> int: ...


class SessionStream:
    """A call that is bound to the session of its first frame."""

    def __init__(
        self,
        runtime: Runtime,
        identity: Identity,
        context: Any,
        send: Sender,
        view: Viewer,
        *,
        with_judgements: bool = False,
        with_suspensions: bool = False,
    ) -> None:
        self._runtime = runtime
        self._identity = identity
        self._context = context
        self._send = send
        self._view = view
        self._with_judgements = with_judgements
        self._with_suspensions = with_suspensions
        self._session_id = ""
        self._follower: asyncio.Task[None] | None = None
        self._written = 0
        """The last ordinal that the client was sent, or that its subscription leaves out."""
        self._progress = asyncio.Condition()
        self._writing = asyncio.Lock()

    async def run(self, requests: AsyncIterator[Any]) -> Rejection | None:
        """Serve until the client ends its side; returns why the call must fail, if it must."""
        async with asyncio.TaskGroup() as group:
            fatal = await self._read(requests, group)
            if self._follower is not None:
                if fatal is None:
                    await self._drained(self._follower)
                async with self._writing:  # a write that is cut off leaves a call that never ends
                    self._follower.cancel()
        return fatal

    async def _read(
        self, requests: AsyncIterator[Any], group: asyncio.TaskGroup
    ) -> Rejection | None:
        async for request in requests:
            has_envelope = request.HasField("envelope")
            if has_envelope == bool(request.subscribe_session_id):
                return _bad_request("a frame has an envelope or subscribe_session_id, one of them")
            session_id = (
                request.envelope.session_id if has_envelope else request.subscribe_session_id
            )
            if has_envelope and not session_id and request.envelope.message_type in AMBIENT:
                return _bad_request("a stream takes the messages of a session: use Send")
            if self._session_id and session_id != self._session_id:
                return _bad_request(f"the stream is bound to session {self._session_id}")
            self._session_id = session_id
            fatal = (
                await self._sent(request.envelope, group)
                if has_envelope
                else await self._subscribed(session_id, request.after_sequence, group)
            )
            if fatal is not None:
                return fatal
        return None

    async def _sent(self, envelope: Any, group: asyncio.TaskGroup) -> Rejection | None:
        ordinal = 0
        try:
            ordinal = (await self._send(envelope, self._identity)).ordinal
        except Rejection as rejection:
            await self._tell(rejection, envelope.message_id)
        if self._follower is None:
            if ordinal:
                self._follow(group, ordinal - 1)
            else:  # it binds the stream all the same: others' messages come from now on
                with suppress(Rejection):
                    self._follow(group, await self._view(self._session_id, self._identity))
        return None

    async def _subscribed(
        self, session_id: str, after: int, group: asyncio.TaskGroup
    ) -> Rejection | None:
        try:
            last = await self._view(session_id, self._identity)
        except Rejection as rejection:
            if rejection.macp_code == "SESSION_NOT_FOUND":
                return rejection
            await self._tell(rejection)
            return None
        if self._follower is None:
            self._follow(group, min(after, last))
        else:
            await self._replay(after)
        return None

    def _follow(self, group: asyncio.TaskGroup, after: int) -> None:
        self._written = after
        self._follower = group.create_task(self._deliver(after))

    async def _deliver(self, after: int) -> None:
        async with aclosing(await self._messages(after)) as pages:
            async for page in pages:
                for accepted in page:
                    async with self._writing:
                        await self._context.write(wire.write_accepted(accepted))
                        self._written = accepted.ordinal
                async with self._progress:
                    self._progress.notify_all()

    async def _replay(self, after: int) -> None:
        """Send again what the follower has sent or left out; it goes on with what is new."""
        async with self._writing, aclosing(await self._messages(after)) as pages:
            if after >= self._written:
                return
            async for page in pages:
                for accepted in page:
                    if accepted.ordinal > self._written:
                        return
                    await self._context.write(wire.write_accepted(accepted))
                if page[-1].ordinal == self._written:
                    return

    async def _messages(self, after: int) -> AsyncGenerator[list[Accepted], None]:
        run_id = await self._runtime.run_of(self._session_id)
        assert run_id is not None
        return store.follow(
            self._runtime.keeping,
            run_id,
            after_ordinal=after,
            with_judgements=self._with_judgements,
            with_suspensions=self._with_suspensions,
        )

    async def _drained(self, follower: asyncio.Task[None]) -> None:
        """Wait until the client has what was accepted before it ended its side."""
        session = await self._runtime.find(self._session_id)
        if session is not None:
            last = session.last_frame
            async with self._progress:
                await self._progress.wait_for(lambda: self._written >= last or follower.done())

    async def _tell(self, rejection: Rejection, message_id: str = "") -> None:
        error = wire.error(rejection, self._session_id, message_id)
        await self._write(wire.core.StreamSessionResponse(error=error))

    async def _write(self, response: Any) -> None:
        async with self._writing:
            await self._context.write(response)


def _bad_request(message: str) -> Rejection:
    return Rejection("INVALID_REQUEST", message)
