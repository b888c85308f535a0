"""One prompt in progress: its events, its requests, its interrupt."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from inspect import isawaitable

from batten.client.connection import AnyMessage, Connection
from batten.client.encoding import encoded
from batten.client.errors import NoAnswer, WorkerClosed, WorkerError
from batten.client.events import Answer, ClientToolCalled, Event, RequestResolved
from batten.client.mailbox import Mailbox
from batten.client.result import Result
from batten.client.tools import Function
from batten.client.unfolding import RunUnfolding
from batten.contract.errors import BattenError, CallerError, Conflict
from batten.protocols.maestro.incoming import Interrupt, ServerRequestResponse

_INTERRUPT_S = 15.0
"""How long an interrupted run may take to end; the worker's own limit is shorter."""
_LONGEST_REASON = 10_000


class Run:
    """Iterate it for its events; the last one is `Ended`. One reader at a time."""

    def __init__(
        self, link: Connection, group: asyncio.TaskGroup, functions: Mapping[str, Function]
    ) -> None:
        self._connection = link
        self._group = group
        self._functions = functions
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._unfolding = RunUnfolding(self._reply)
        self._mailbox: Mailbox[Event] = Mailbox(link.flow)
        self._over = asyncio.Event()

    @property
    def run_id(self) -> str:
        """Empty until it has started."""
        return self._unfolding.run_id

    @property
    def result(self) -> Result:
        """How it ended. Raises `Conflict` while it is running."""
        if self._unfolding.result is None:
            raise Conflict("the run has not ended; read its events up to `Ended`")
        return self._unfolding.result

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        while (event := await self._mailbox.get()) is not None:
            yield event

    async def interrupt(self) -> None:
        """Interrupt the run and all utilities. Its events go on until `Ended`."""
        if not self._over.is_set():
            self._unfolding.interrupted = True
            await self._connection.send(Interrupt())

    def take(self, message: AnyMessage, size: int) -> None:
        event = self._unfolding.take(message)
        if event is None:
            return
        match event:
            case ClientToolCalled() if event.tool in self._functions:
                call = self._call(event, self._functions[event.tool])
                self._calls[event.request_id] = self._group.create_task(call)
                return
            case RequestResolved() if event.request_id in self._calls:
                self._calls.pop(event.request_id).cancel()
            case _:
                pass
        self._mailbox.put(event, size)
        if self._unfolding.result is not None:
            self._finish(None)

    def fail(self, error: BattenError) -> None:
        self._finish(error)

    async def leave(self) -> None:
        """Stop reading; interrupt the run if it is going on, and wait for its end."""
        self._mailbox.discard()
        if self._over.is_set():
            return
        try:
            async with asyncio.timeout(_INTERRUPT_S):
                await self.interrupt()
                await self._over.wait()
        except TimeoutError:
            self._connection.fail(NoAnswer(f"the run did not end within {_INTERRUPT_S:.0f} s"))
        except BattenError:
            return  # the worker died, and the run with it
        except BaseException:
            # The run may still be going on, so that this worker can take no further prompt.
            self._connection.fail(WorkerClosed("a run was left before it had ended"))
            raise

    def _finish(self, error: BattenError | None) -> None:
        self._mailbox.close(error)
        self._over.set()
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()

    async def _reply(self, response: ServerRequestResponse) -> None:
        if response.request_id not in self._unfolding.waiting:
            raise Conflict(
                f"request {response.request_id} is over: it was answered, or its run has ended"
            )
        line = encoded(response)
        self._unfolding.waiting.discard(response.request_id)
        await self._connection.write(line)

    async def _call(self, called: ClientToolCalled, function: Function) -> None:
        """Run a function of the embedder's; the model sees the error if it raises one."""
        try:
            answer = function(**called.arguments)
            if not isawaitable(answer):
                raise CallerError(f"{called.tool} is no async function: it returned {answer!r}")
            await _answered(called, await answer)
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            await _failed(called, error)
        except Exception as error:  # the edge to code of the embedder's
            await _failed(called, error)


async def _answered(called: ClientToolCalled, answer: Answer) -> None:
    with suppress(Conflict, WorkerError):  # already answered, or the worker is gone
        await called.answer(answer)


async def _failed(called: ClientToolCalled, error: BaseException) -> None:
    try:
        why = str(error)
    except Exception:  # `str(error)` itself raised
        why = "it cannot say why"
    text = f"{type(error).__name__}: {why}"[:_LONGEST_REASON]
    with suppress(BattenError):
        await called.fail(text.encode(errors="backslashreplace").decode())
