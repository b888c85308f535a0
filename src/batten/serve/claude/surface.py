"""Serves the SDK: reads its lines and carries them out.

Prompts run one after the other; control requests are answered while a turn runs. When the client
closes its side, its earlier prompts and requests are still finished.
"""

import asyncio
from functools import partial

from batten.contract.commands import Interrupt, Prompt, ShutDown
from batten.contract.errors import BattenError, CallerError, PeerError
from batten.protocols.claude import control
from batten.serve.claude.agents import definitions
from batten.serve.claude.control_channel import ControlChannel
from batten.serve.claude.controls import Controls
from batten.serve.claude.hooks import client_hooks
from batten.serve.claude.renderer import ClaudeRenderer
from batten.serve.claude.servers import LentServers
from batten.serve.claude.toolboxes import ClientToolboxes
from batten.serve.lines import Lines
from batten.serve.showing import Showing
from batten.session.live import LiveSession

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a client's line: a prompt may contain images."""

_MOST_WAITING = 1024
"""Pending requests; more are refused."""
_MOST_WAITING_BYTES = 64 * 1024 * 1024
"""Size of pending requests above which no line is read until one of them is answered."""


class ClaudeSurface:
    """Serves one client on one session."""

    def __init__(
        self,
        channel: ControlChannel,
        live: LiveSession,
        showing: Showing,
        controls: Controls,
        servers: LentServers,
        toolboxes: ClientToolboxes,
        renderer: ClaudeRenderer,
        group: asyncio.TaskGroup,
    ) -> None:
        self._channel = channel
        self._live = live
        self._showing = showing
        self._controls = controls
        self._servers = servers
        self._toolboxes = toolboxes
        self._renderer = renderer
        self._group = group
        self._waiting_bytes = 0
        self._taken = asyncio.Event()
        self._carrying = asyncio.Lock()
        self._asked: dict[asyncio.Task[None], str] = {}
        """Unanswered requests, with their ids."""
        self._initialized = False

    async def serve(self, lines: Lines) -> None:
        """Serve until the client has closed its side and all its requests are done."""
        reading = self._group.create_task(self._read(lines))
        try:
            await self._showing.run()
        finally:
            self._channel.close()
            reading.cancel()
            for task in self._asked:
                task.cancel()

    async def _read(self, lines: Lines) -> None:
        try:
            async for _, line in lines.strict():
                await self._take(control.parse(line), len(line))
        except PeerError as error:
            await self._close()
            self._live.fail(CallerError(str(error), code="usage"))
        else:
            await self._close()
            await self._live.take(ShutDown())

    async def _close(self) -> None:
        """After the last line: wait until all requests are answered."""
        self._channel.close()
        if self._asked:
            await asyncio.wait(frozenset(self._asked))

    async def _hold(self, size: int) -> None:
        """Count a pending request, and wait while pending requests are too large together."""
        self._waiting_bytes += size
        while self._waiting_bytes > _MOST_WAITING_BYTES:
            self._taken.clear()
            await self._taken.wait()

    def _release(self, size: int) -> None:
        self._waiting_bytes -= size
        self._taken.set()

    def _refuse(self, request_id: str, problem: str) -> None:
        # An error message often quotes the request.
        self._channel.send(control.refusal(request_id, self._renderer.redact(problem)))

    async def _take(self, said: control.Incoming | None, size: int) -> None:
        """Handle a line of this size. Waits if the client does not read our responses."""
        match said:
            case Prompt():
                before = frozenset(self._asked)
                await self._live.take(said, partial(asyncio.wait, before) if before else None)
            case control.Answered():
                self._channel.respond(said.request_id, said)
            case control.Misasked():
                self._refuse(said.request_id, said.problem)
                await self._channel.room()
            case control.Withdrawn():
                for task, request_id in self._asked.items():
                    if request_id == said.request_id:
                        task.cancel()
            case control.Asked(request_id, control.InterruptTurn()):
                await self._interrupt(request_id)
                await self._channel.room()
            case control.Asked() if len(self._asked) >= _MOST_WAITING:
                problem = f"{_MOST_WAITING} requests wait already"
                self._refuse(said.request_id, problem)
                await self._channel.room()
            case control.Asked():
                task = self._group.create_task(self._answer(said))
                self._asked[task] = said.request_id
                task.add_done_callback(self._asked.pop)
                task.add_done_callback(lambda _: self._release(size))
                await self._hold(size)
            case None:
                pass

    async def _interrupt(self, request_id: str) -> None:
        """Interrupt at once, without waiting for other requests."""
        try:
            await self._live.take(Interrupt())
        except BattenError as error:
            self._refuse(request_id, str(error))
        else:
            self._channel.send(control.success(request_id))

    async def _answer(self, asked: control.Asked) -> None:
        try:
            async with self._carrying:
                await self._channel.room()
                if isinstance(asked.request, control.Initialize):
                    await self._initialize(asked.request_id, asked.request)
                else:
                    response = await self._controls.carry_out(asked.request)
                    self._channel.send(control.success(asked.request_id, response))
        except BattenError as error:
            self._refuse(asked.request_id, str(error))
        except Exception as error:  # a request is unvalidated input: only it fails
            self._refuse(asked.request_id, f"{type(error).__name__}: {error}")

    async def _initialize(self, request_id: str, request: control.Initialize) -> None:
        """Answered before the client's servers are connected, which may take long."""
        if self._initialized:
            raise CallerError("initialize is asked once")
        hooks = client_hooks(self._channel, request.hooks or {}, lambda: self._controls.mode)
        agents = definitions(request.agents or {})
        self._initialized = True
        self._live.lend(hooks=hooks)
        self._renderer.shows_child_text = request.forward_subagent_text
        self._toolboxes.agents |= agents
        if request.skills is not None:
            self._toolboxes.offer_skills(request.skills)
        await self._controls.instruct(request)
        self._channel.send(control.success(request_id, self._controls.description()))
        await self._servers.connect()
