"""Serves an editor: carries out its requests and sends updates.

A prompt is answered when its run has ended, all other requests meanwhile. When the client closes
its side, its runs are cancelled: it could not answer their requests any more.
"""

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

from batten import __version__
from batten.contract.errors import BattenError, Conflict, NotFound
from batten.contract.outcomes import exit_code
from batten.protocols.acp import PROTOCOL_VERSION, methods, rpc
from batten.protocols.acp.options import SetOptionParams, SetOptionResult
from batten.protocols.acp.prompt import command_of
from batten.protocols.acp.servers import config_of
from batten.protocols.acp.shape import Shape
from batten.protocols.json_line import Malformed
from batten.serve.acp.peer import AcpPeer
from batten.serve.output import say
from batten.serve.stdio import Stdio
from batten.wiring.opener import SessionOpener

if TYPE_CHECKING:
    from typing import Any

    from batten.contract.outcomes import Outcome
    from batten.serve.acp.session import OpenSession

_MOST_WAITING = 256
"""Concurrent requests; more are refused."""
_FROM_ENVIRONMENT = methods.AuthMethod(
    id="environment",
    name="Keys in the environment",
    description="Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY for this agent.",
)
_CAPABILITIES = methods.AgentCapabilities(
    load_session=True,
    prompt_capabilities=methods.PromptCapabilities(image=True, audio=False, embedded_context=True),
    mcp_capabilities=methods.McpCapabilities(http=True, sse=True, acp=False),
    session_capabilities={
        name: {} for name in ("list", "resume", "fork", "close", "delete", "additionalDirectories")
    },
    auth=methods.AuthCapabilities(logout=None),
)


class AcpSurface:
    """Serves one client, with any number of sessions at once."""

    def __init__(self, stdio: Stdio, opener: SessionOpener) -> None:
        self._stdio = stdio
        self._opener = opener
        self._peer = AcpPeer(stdio.output)
        self._lent: methods.ClientCapabilities | None = None
        """The client's capabilities; None before `initialize`."""
        self._sessions: dict[str, OpenSession] = {}
        self._living: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[rpc.RequestId, asyncio.Task[None]] = {}
        self._lost: dict[str, str] = {}
        """Sessions that ended with an error, with its message."""
        self._over = asyncio.Event()

    async def run(self) -> int:
        """Serve until the client closes its side or the process is asked to end."""
        await self._over.wait()
        for task in self._asked.values():
            task.cancel()
        if not self._stdio.is_ending:
            for session in tuple(self._sessions.values()):
                await session.close()
        self._peer.close()
        await asyncio.gather(*self._living.values())
        return exit_code("cancelled" if self._stdio.is_ending else "completed")

    async def take(self, message: "dict[str, Any]") -> None:
        match rpc.parse(message):
            case rpc.Request() as request:
                await self._take_request(request)
            case rpc.Notification() as notification:
                self._take_notification(notification)
            case rpc.Response() as response:
                self._peer.respond(response.id, response)
            case rpc.Invalid() as invalid:
                self._peer.refuse(invalid.id, invalid.error)

    async def refuse(self, malformed: Malformed) -> None:
        match rpc.unread(malformed):
            case rpc.Response() as response:
                self._peer.respond(response.id, response)
            case rpc.Invalid() as invalid:
                self._peer.refuse(invalid.id, invalid.error)

    async def hang_up(self) -> None:
        self._over.set()

    def fail(self, outcome: "Outcome", message: str) -> None:
        for session in self._sessions.values():
            session.fail(outcome, message)

    async def _take_request(self, request: rpc.Request) -> None:
        try:
            params = methods.read_request(request.method, request.params)
            match params:
                case methods.InitializeParams():
                    self._peer.answer(request.id, self._greet(params))
                case _ if self._lent is None:
                    raise rpc.RpcError(rpc.INVALID_REQUEST, "the first request is initialize")
                case methods.PromptParams():
                    prompt = command_of(params.prompt)
                    await self._open(params.session_id).prompt(request.id, prompt)
                case _:
                    self._begin(request.id, params)
        except BattenError as error:
            self._peer.refuse(request.id, error)
        except Exception as error:
            self._refuse_unforeseen(request.id, error)

    def _refuse_unforeseen(self, request_id: rpc.RequestId, error: Exception) -> None:
        """Report a bug: a failing request must not end other sessions."""
        from traceback import format_exception

        say(f"batten: {''.join(format_exception(error))}")
        said = f"this should not happen: {type(error).__name__}; see standard error"
        self._peer.refuse(request_id, rpc.RpcError(rpc.INTERNAL_ERROR, said))

    def _take_notification(self, notification: rpc.Notification) -> None:
        """Unknown notifications, and those for unknown sessions, are ignored."""
        known = methods.METHODS.get(notification.method)
        if known is None or known.kind != "notification":
            return
        try:
            match methods.read_params(notification.params, known.params):
                case methods.CancelParams(session_id=session_id):
                    self._open(session_id).cancel()
                case methods.CancelRequestParams(request_id=request_id):
                    self._withdraw(request_id)
                case _:
                    pass
        except BattenError:
            return

    def _withdraw(self, request_id: rpc.RequestId) -> None:
        """Cancel a request; it still gets a response."""
        task = self._asked.get(request_id)
        if task is not None:
            task.cancel()
        for session in self._sessions.values():
            if session.is_turn(request_id):
                session.cancel()

    def _greet(self, params: methods.InitializeParams) -> methods.InitializeResult:
        """Answer with our protocol version; the client decides whether it can use that."""
        if self._lent is not None:
            raise rpc.RpcError(rpc.INVALID_REQUEST, "initialize is asked once")
        self._lent = methods.capabilities_of(params.client_capabilities)
        return methods.InitializeResult(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=_CAPABILITIES,
            agent_info=methods.Implementation(name="batten", title="Batten", version=__version__),
            auth_methods=[_FROM_ENVIRONMENT],
        )

    def _begin(self, request_id: rpc.RequestId, params: Shape) -> None:
        if len(self._asked) >= _MOST_WAITING or request_id in self._asked:
            raise Conflict(f"{_MOST_WAITING} requests wait already, or one with the same id")
        task = self._stdio.group.create_task(self._answer(request_id, params))
        self._asked[request_id] = task
        task.add_done_callback(partial(self._answered, request_id))

    def _answered(self, request_id: rpc.RequestId, task: "asyncio.Task[None]") -> None:
        """A request is over; one that was withdrawn may never have begun."""
        del self._asked[request_id]
        if task.cancelled():
            self._peer.refuse(request_id, rpc.RpcError(rpc.CANCELLED, "it was withdrawn"))

    async def _answer(self, request_id: rpc.RequestId, params: Shape) -> None:
        try:
            result = await self._carry_out(params)
            self._peer.answer(request_id, result)
            self._announce(params, result)
        except BattenError as error:
            self._peer.refuse(request_id, error)
        except Exception as error:
            self._refuse_unforeseen(request_id, error)

    async def _carry_out(self, params: Shape) -> object:
        match params:
            case methods.AuthenticateParams():
                if params.method_id != _FROM_ENVIRONMENT.id:
                    problem = f"no method is named {params.method_id!r}; there is: environment"
                    raise rpc.RpcError(rpc.INVALID_PARAMS, problem)
                return {}
            case methods.NewSessionParams():
                return _made(await self._make(params))
            case methods.ForkSessionParams():
                return _made(await self._make(params, params.session_id))
            case methods.LoadSessionParams():
                session = await self._make(params, params.session_id)
                await session.replay()
                return _opened(session)
            case methods.ResumeSessionParams():
                return _opened(await self._make(params, params.session_id))
            case methods.ListSessionsParams():
                from batten.serve.acp.listing import list_sessions

                return await list_sessions(self._opener.journal, params.cwd, params.cursor)
            case methods.SetModeParams():
                await self._open(params.session_id).set_mode(params.mode_id)
                return {}
            case SetOptionParams():
                session = self._open(params.session_id)
                options = await session.set_option(params.config_id, params.value)
                return SetOptionResult(config_options=options)
            case methods.CloseSessionParams():
                await self._close(params.session_id)
                return {}
            case methods.DeleteSessionParams():
                from batten.serve.acp.listing import delete_session

                if params.session_id in self._sessions:
                    await self._close(params.session_id)
                await delete_session(self._opener.journal, params.session_id)
                return {}
            case _:
                raise rpc.RpcError(rpc.METHOD_NOT_FOUND, "there is nothing to do for it")

    def _announce(self, params: Shape, result: object) -> None:
        """Send the updates that follow the response that opened a session."""
        match params, result:
            case ((methods.LoadSessionParams() | methods.ResumeSessionParams() as known), _):
                self._open(known.session_id).announce()
            case _, methods.NewSessionResult(session_id=opened):
                self._open(opened).announce()
            case _:
                pass

    def _open(self, session_id: str) -> "OpenSession":
        session = self._sessions.get(session_id)
        if session is None and session_id in self._lost:
            raise Conflict(self._lost[session_id])
        if session is None:
            raise NotFound(f"no session {session_id[:200]!r} is open here; create or load one")
        return session

    async def _make(
        self,
        params: methods.NewSessionParams
        | methods.LoadSessionParams
        | methods.ResumeSessionParams
        | methods.ForkSessionParams,
        resume: str | None = None,
    ) -> "OpenSession":
        """Open a session, or return it if it is open already. A fork is always a new one."""
        forks = isinstance(params, methods.ForkSessionParams)
        if not os.path.isabs(params.cwd) or "\0" in params.cwd:
            raise rpc.RpcError(rpc.INVALID_PARAMS, f"cwd {params.cwd!r} is not an absolute path")
        beside = tuple(params.additional_directories or ())
        for path in beside:
            if not os.path.isabs(path) or "\0" in path:
                problem = f"additionalDirectories: {path!r} is not an absolute path"
                raise rpc.RpcError(rpc.INVALID_PARAMS, problem)
        servers = config_of(params.mcp_servers or ())
        held = None if resume is None or forks else await self._held(resume)
        if held is not None:
            if held.is_working:
                raise Conflict(f"session {resume} works on a prompt")
            return held
        if resume is not None and await self._opener.journal.session(resume) is None:
            raise NotFound(f"no session is named {resume[:200]!r}")
        from batten.serve.acp.opening import Opening

        assert self._lent is not None
        self._stdio.guard_process()
        opening = Opening(self._opener, self._peer, self._stdio, self._lent)
        session = await opening.open(params.cwd, servers, resume, fork=forks, beside=beside)
        self._sessions[session.session_id] = session
        self._lost.pop(session.session_id, None)
        self._living[session.session_id] = self._stdio.group.create_task(self._live(session))
        return session

    async def _held(self, session_id: str) -> "OpenSession | None":
        """The session if it is open; waits for the end of one that is closing."""
        held, living = self._sessions.get(session_id), self._living.get(session_id)
        if living is not None and (held is None or held.is_closing):
            await asyncio.wait([living])
            return None
        return held

    async def _live(self, session: "OpenSession") -> None:
        try:
            await session.work()
        finally:
            del self._sessions[session.session_id]
            if session.problem:
                self._lost[session.session_id] = session.problem
            await session.leave()
            del self._living[session.session_id]

    async def _close(self, session_id: str) -> None:
        living = self._living.get(session_id)
        await self._open(session_id).close()
        if living is not None:
            await asyncio.wait([living])


def _made(session: "OpenSession") -> methods.NewSessionResult:
    return methods.NewSessionResult(
        session_id=session.session_id,
        modes=session.modes,
        config_options=session.options,
        meta=session.described,
    )


def _opened(session: "OpenSession") -> methods.OpenedSessionResult:
    return methods.OpenedSessionResult(
        modes=session.modes, config_options=session.options, meta=session.described
    )
