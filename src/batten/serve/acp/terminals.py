"""Runs shell commands in the client's terminals, where its user sees them.

The commands are the client's processes: they run outside our sandbox, and only it can kill them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Self

from batten.contract.errors import BattenError, ProviderError
from batten.protocols.acp.asking import (
    CREATE_TERMINAL,
    KILL_TERMINAL,
    RELEASE_TERMINAL,
    TERMINAL_OUTPUT,
    WAIT_FOR_EXIT,
    CreateTerminalParams,
    CreateTerminalResult,
    ExitStatus,
    TerminalOutputResult,
    TerminalParams,
)
from batten.protocols.acp.rpc import RpcError
from batten.serve.acp.patience import PatientPeer
from batten.workspace.argv import shell_argv
from batten.workspace.commands import Exit, Launch, Stream

_MOST_OUTPUT = 1 << 20
"""Bytes of output that the client keeps: the last ones."""
_CUT = b"[the beginning of the output was not kept]\n"


class ClientTerminals:
    """Starts commands in the client's terminals."""

    def __init__(
        self,
        peer: PatientPeer,
        session_id: Callable[[], str],
        workspace: str,
        group: asyncio.TaskGroup,
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        self._workspace = workspace
        self._group = group

    async def spawn(self, command: str) -> "ClientTerminal":
        argv = shell_argv(command)
        params = CreateTerminalParams(
            session_id=self._session_id(),
            command=argv[0],
            args=argv[1:],
            cwd=self._workspace,
            output_byte_limit=_MOST_OUTPUT,
        )
        creating = self._group.create_task(self._create(params))
        try:
            await asyncio.shield(asyncio.wait([creating]))
        except asyncio.CancelledError:
            self._group.create_task(self._release_late(creating))
            raise
        created = creating.result()
        if isinstance(created, BattenError):
            raise created
        launch = Launch(
            line=command,
            argv=argv,
            cwd=self._workspace,
            env_keys=[],
            sandbox_layer="none",
            terminal_id=created,
        )
        return ClientTerminal(self._peer, self._session_id(), launch, created)

    async def _create(self, params: CreateTerminalParams) -> str | BattenError:
        try:
            return (await self._peer.ask(CREATE_TERMINAL, params, CreateTerminalResult)).terminal_id
        except RpcError as error:
            said = f"the client did not open a terminal: {error}"
            return ProviderError(said, code="client_terminal_failed")
        except BattenError as error:
            return error

    async def _release_late(self, creating: "asyncio.Task[str | BattenError]") -> None:
        """Release a terminal whose creation was cancelled, once it exists."""
        created = await creating
        if isinstance(created, str):
            params = TerminalParams(session_id=self._session_id(), terminal_id=created)
            with suppress(BattenError):
                await self._peer.end(RELEASE_TERMINAL, params)


class ClientTerminal:
    """A command in a client's terminal. Exiting the context kills it and releases the terminal."""

    killed: tuple[str, ...] = ()
    cut = False

    def __init__(
        self, peer: PatientPeer, session_id: str, launch: Launch, terminal_id: str
    ) -> None:
        self._peer = peer
        self._params = TerminalParams(session_id=session_id, terminal_id=terminal_id)
        self.launch = launch
        self._exit: Exit | None = None
        self._read = False

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """All output, once the command has ended: until then the client shows it."""
        await self.wait()
        if self._read:
            return
        self._read = True
        kept = await self._peer.ask(TERMINAL_OUTPUT, self._params, TerminalOutputResult)
        self.cut = kept.truncated
        if kept.truncated:
            yield "stdout", _CUT
        if kept.output:
            yield "stdout", kept.output.encode("utf-8", "replace")

    async def wait(self) -> Exit:
        """Wait for the exit status, without a timeout."""
        if self._exit is None:
            ended = await self._peer.peer.ask(
                WAIT_FOR_EXIT, self._params, ExitStatus, withdraws=lambda: False
            )
            unknown = ended.exit_code is None and ended.signal is None
            self._exit = Exit(ended.exit_code, "unknown" if unknown else ended.signal)
        return self._exit

    async def terminate(self, grace_s: float = 1.0) -> None:
        """Kill the command at once; the protocol has no graceful way."""
        await self._peer.end(KILL_TERMINAL, self._params)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Release the terminal; a client that does not answer is ignored after the timeout."""
        with suppress(BattenError):
            await self._peer.end(RELEASE_TERMINAL, self._params)
