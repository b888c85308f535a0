"""The process of a hosted runner's session: opens it, carries out orders, and reports.

It speaks `session_wire` on standard input and output, and ends with its runner.
"""

import asyncio
import os
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from batten.contract.errors import BattenError
from batten.contract.outcomes import exit_code, outcome_of_error
from batten.protocols.json_line import Malformed
from batten.protocols.maestro.incoming import Prompt, read, utility_id_of
from batten.protocols.maestro.outgoing import Message
from batten.protocols.maestro.vocabulary import RequestType
from batten.serve.maestro.greeting import checked_model, ready, session_info
from batten.serve.maestro.limits import limits_of
from batten.serve.maestro.session_wire import (
    Audience,
    Done,
    End,
    Fault,
    Leave,
    Open,
    Opened,
    Over,
    Prompted,
    Take,
    fault_of,
    line,
    order,
    said,
)
from batten.serve.output import Output, say
from batten.serve.stdio import Stdio
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec

if TYPE_CHECKING:
    from batten.contract.outcomes import Outcome
    from batten.serve.maestro.session import MaestroSession


class RunnerSink:
    """The `ClientSink` of all clients of a runner."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._audience = Audience()
        self._serves: frozenset[RequestType] = frozenset()

    def hear(self, audience: Audience) -> None:
        self._audience = audience
        self._serves = frozenset(audience.serves)

    @property
    def serves(self) -> frozenset[RequestType]:
        return self._serves

    @property
    def wants_raw(self) -> bool:
        return self._audience.wants_raw

    @property
    def wants_endings(self) -> bool:
        return self._audience.wants_endings

    @property
    def has_room(self) -> bool:
        return self._output.has_room

    def send(self, message: Message) -> None:
        self._output.write(said(message))

    async def room(self) -> None:
        await self._output.room()


class SessionSurface:
    """One session for the runner on standard input and output."""

    def __init__(self, stdio: Stdio, opener: SessionOpener) -> None:
        self._stdio = stdio
        self._opener = opener
        self._sink = RunnerSink(stdio.output)
        self._asked = asyncio.Event()
        self._order: Open | None = None
        self._opened = asyncio.Event()
        self._turn = asyncio.Lock()
        """Held while a message or the end is carried out; utilities do not need it."""
        self._session: MaestroSession | None = None
        self._orders: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        await self._asked.wait()
        try:
            return await self._serve()
        except BattenError as error:
            self._stdio.send(line(Over(fault=fault_of(error))))
            return exit_code(outcome_of_error(error))
        finally:
            for task in tuple(self._orders):
                task.cancel()

    async def _serve(self) -> int:
        from batten.serve.maestro.session import MaestroSession

        opening = self._order
        assert opening is not None
        base = _as_left(self._opener.base) if opening.again else self._opener.base
        if opening.model:
            base = replace(base, models=(opening.model,))
        self._opener.base = base
        if base.model:
            checked_model(base)
        session = MaestroSession(self._stdio, self._sink, limits_of(base.environ), self._prompted)
        resume = opening.session_id if opening.exists else None
        await session.open(self._opener, opening.session_id, resume)
        await session.prepare(opening.init)
        first = Opened(
            ready=ready(session.model, opening.name),
            session_info=session_info(opening.name, session.workspace),
        )
        self._stdio.send(line(first))
        await session.go_on()
        self._session = session
        self._opened.set()
        code = await session.serve()
        await session.check_ended()
        self._stdio.send(line(Over()))
        return code

    async def take(self, message: dict[str, Any]) -> None:
        given = order(message)
        match given:
            case Open():
                self._order = given
                self._asked.set()
            case Audience():
                self._sink.hear(given)
            case Take():
                self._begin(self._answer(given.number, partial(self._carry_out, given)))
            case Leave():
                self._begin(self._answer(given.number, partial(self._leave, given)))
            case End():
                self._begin(self._end(given))

    async def refuse(self, malformed: Malformed) -> None:
        say(f"batten: the runner wrote what is no order: {malformed.problem}")

    async def hang_up(self) -> None:
        """The runner is gone: leave at once, so that another can go on with the run."""
        os._exit(exit_code("cancelled"))

    def fail(self, outcome: "Outcome", message: str) -> None:
        fault = Fault(error="NotReady", code="runtime_failed", message=message)
        self._stdio.send(line(Over(fault=fault)))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._stdio.group.create_task(work)
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _answer(self, number: int, work: Callable[[], Awaitable[None]]) -> None:
        fault: Fault | None = None
        try:
            await work()
        except Exception as error:
            if not isinstance(error, BattenError):
                say("".join(traceback.format_exception(error)))
            fault = fault_of(error)
        self._stdio.send(line(Done(number=number, fault=fault)))

    async def _carry_out(self, given: Take) -> None:
        message = read(given.message)
        session = await self._ready()
        if utility_id_of(message) is not None:
            await session.finish(message, given.sender)
            return
        async with self._turn:
            await session.finish(message, given.sender)

    async def _leave(self, given: Leave) -> None:
        session = await self._ready()
        await session.leave(given.connection_id)

    async def _end(self, given: End) -> None:
        session = await self._ready()
        async with self._turn:
            await session.shut_down(given.reason)

    async def _ready(self) -> "MaestroSession":
        await self._opened.wait()
        assert self._session is not None
        return self._session

    def _prompted(self, message: Prompt) -> None:
        self._stdio.send(line(Prompted(message=message)))


def _as_left(base: SessionSpec) -> SessionSpec:
    """A specification without what `create` and `init` may change: the session has kept that.

    The mode `disabled` is never kept: what the flag says of it holds.
    """
    return replace(
        base,
        models=(),
        fallback_models=(),
        mode=base.mode if base.mode == "disabled" else None,
        system=None,
        append_system=None,
        thinking_tokens=None,
        max_output_tokens=None,
    )
