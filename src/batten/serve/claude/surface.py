"""The conversation with the SDK: its lines in, carried out as they come; ours out.

Prompts wait for each other; everything else the client asks is answered while a turn runs.
That its side ends is no cancel: what it asked for is finished first.
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
"""Bytes of a line of the client's: a prompt may bring pictures."""

_MOST_WAITING = 1024
"""Requests that wait; more are refused."""
_MOST_WAITING_BYTES = 64 * 1024 * 1024
"""The size of waiting requests. With more, no line is read until one of them is answered."""


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
        """Requests are carried out one after the other."""
        self._asked: dict[asyncio.Task[None], str] = {}
        """Those that are not answered yet, with their ids."""
        self._initialized = False

    async def serve(self, lines: Lines) -> None:
        """Until the client's side has ended and everything it asked for is done."""
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
        """No more lines come: wait until the requests before the end are answered."""
        self._channel.close()
        if self._asked:
            await asyncio.wait(frozenset(self._asked))

    async def _hold(self, size: int) -> None:
        """A request of this size waits. No line is read while they take too much."""
        self._waiting_bytes += size
        while self._waiting_bytes > _MOST_WAITING_BYTES:
            self._taken.clear()
            await self._taken.wait()

    def _release(self, size: int) -> None:
        self._waiting_bytes -= size
        self._taken.set()

    def _refuse(self, request_id: str, problem: str) -> None:
        # What is wrong with a request often says what was in it.
        self._channel.send(control.refusal(request_id, self._renderer.redact(problem)))

    async def _take(self, said: control.Incoming | None, size: int) -> None:
        """What a line of this size says. Answers that nobody reads stop the reading too."""
        match said:
            case Prompt():
                before = frozenset(self._asked)
                await self._live.take(said, partial(asyncio.wait, before) if before else None)
            case control.Answered():
                self._channel.respond(said)
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
        """At once, whatever else is being carried out."""
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
        except Exception as error:  # the edge of foreign values: the request fails, not we
            self._refuse(asked.request_id, f"{type(error).__name__}: {error}")

    async def _initialize(self, request_id: str, request: control.Initialize) -> None:
        """Answered before the client's servers are greeted: it may take its time with those."""
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
