"""Serves a Maestro client on standard input and output.

Importing this is cheap: the session, opened after the client was greeted, loads the agent, its
tools and the store.
"""

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from batten.contract.errors import BattenError, CallerError, PeerError, UnknownModel
from batten.protocols.json_line import Malformed
from batten.protocols.maestro import faults
from batten.protocols.maestro.connection import VIEWER_REFUSED, problem
from batten.protocols.maestro.incoming import Hello, Incoming, ShutDown, read, utility_id_of
from batten.protocols.maestro.outgoing import Error
from batten.serve.maestro.greeting import (
    checked_model,
    opens_surely,
    other_version,
    ready,
    session_info,
)
from batten.serve.maestro.limits import Limits, limits_of
from batten.serve.maestro.stdio_sink import StdioSink
from batten.serve.output import say
from batten.serve.stdio import Stdio
from batten.wiring.opener import SessionOpener

if TYPE_CHECKING:
    from batten.contract.outcomes import Outcome
    from batten.serve.maestro.session import MaestroSession


class MaestroSurface:
    """One client on standard input and output."""

    def __init__(self, stdio: Stdio, opener: SessionOpener) -> None:
        self._stdio = stdio
        self._opener = opener
        self._sink = StdioSink(stdio.output)
        self._begun = asyncio.Event()
        """The client has sent its first message, or has hung up."""
        self._silent = True
        self._opened = asyncio.Event()
        self._session: MaestroSession | None = None
        self._leaving = False

    async def run(self) -> int:
        from batten.contract.ids import new_session_id

        base = self._opener.base
        named = checked_model(base) if base.model else ""
        limits = limits_of(base.environ)
        if base.workspace and not os.path.isdir(os.path.join(base.cwd, base.workspace)):
            raise CallerError(f"--workspace {base.workspace} is not a directory", code="usage")
        session_id = str(new_session_id())
        await self._begun.wait()
        if self._silent:
            return 0
        is_ready = bool(named) and opens_surely(base, self._opener.home)
        if is_ready:
            self._sink.send(ready(named, session_id))
            # Written now: loading the session blocks the loop.
            await self._stdio.output.drained(0)
        session = await self._open(session_id, limits)
        session_id = session.session.session_id
        if not is_ready:
            self._sink.send(ready(session.model, session_id))
        self._sink.send(session_info(session_id, session.workspace))
        if self._sink.connection.takes_over:
            await session.go_on()
        self._session = session
        self._opened.set()
        return await session.serve()

    async def take(self, message: dict[str, Any]) -> None:
        try:
            said = read(message)
        except PeerError as error:
            self._sink.send(faults.broken(str(error)))
            return
        if isinstance(said, Hello):
            self._greet(said)
            return
        refused = self._sink.connection.refusal(said)
        if refused is not None:
            is_viewer = refused == VIEWER_REFUSED
            self._sink.send(faults.broken(refused) if is_viewer else _fault(refused, said))
            return
        if self._leaving:
            return
        self._begin()
        await self._opened.wait()
        assert self._session is not None
        try:
            if isinstance(said, ShutDown):
                self._leaving = True
                await self._session.shut_down()
            else:
                await self._session.take(said, self._sink.connection.connection_id)
        except BattenError as error:
            self._sink.send(_fault(str(error), said))

    async def refuse(self, malformed: Malformed) -> None:
        self._sink.send(faults.broken(f"Failed to parse command: {malformed.problem}"))

    async def hang_up(self) -> None:
        self._begun.set()
        if not self._silent and not self._leaving:
            await self._opened.wait()
            assert self._session is not None
            await self._session.hang_up()

    def fail(self, outcome: "Outcome", message: str) -> None:
        _show_stack(sys.exception())
        if self._opened.is_set():
            self._sink.send(Error(message=message, fatal=True, error_type="fatal"))
        else:
            self._sink.send(faults.not_started(message))

    def _begin(self) -> None:
        self._silent = False
        self._begun.set()

    def _greet(self, hello: Hello) -> None:
        connection = self._sink.connection
        wrong = problem(connection.established, hello)
        if wrong is not None:
            self._sink.send(faults.broken(wrong))
            return
        self._sink.send(connection.greet(hello))
        self._sink.send(connection.info())
        notice = other_version(hello)
        if notice is not None:
            self._sink.send(notice)
        self._begin()

    async def _open(self, session_id: str, limits: Limits) -> "MaestroSession":
        from batten.serve.maestro.session import MaestroSession

        session = MaestroSession(self._stdio, self._sink, limits)
        takes_over = self._sink.connection.takes_over
        await session.open(self._opener, session_id, goes_on=takes_over)
        return session


def _fault(text: str, message: Incoming) -> Error:
    """Why a message was not carried out; of a utility with its id."""
    utility_id = utility_id_of(message)
    return faults.said(text) if utility_id is None else faults.of_tool(text, utility_id)


def _show_stack(fault: BaseException | None) -> None:
    """Write the stack of a failure on standard error.

    Wrong input is told by its message alone. Of an unknown model the protocol's own checks expect
    the stack. A bug is shown by the process itself.
    """
    is_input = isinstance(fault, CallerError) and not isinstance(fault, UnknownModel)
    if isinstance(fault, BattenError) and not is_input:
        import traceback

        say("".join(traceback.format_exception(fault, chain=False)))
