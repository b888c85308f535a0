"""The handshake with a worker: what both sides offer, and facts about the worker."""

from msgspec import UNSET, Struct

from batten import __version__
from batten.client.connection import AnyMessage
from batten.client.errors import NotStarted, WorkerDied
from batten.client.mailbox import Flow, Slot
from batten.contract.errors import BattenError
from batten.protocols.maestro import PROTOCOL_VERSION, outgoing
from batten.protocols.maestro.incoming import Hello
from batten.protocols.maestro.outgoing import ClientCapabilities, ClientInfo
from batten.protocols.maestro.vocabulary import OPERATIONS, ExecutorType, RequestType


class About(Struct, frozen=True, kw_only=True):
    """The worker's model and session."""

    session_id: str
    model: str
    provider: str
    executor: ExecutorType
    """`replay` if a scenario plays instead of a model."""
    workspace: str
    git_branch: str | None


def hello(resolves: tuple[RequestType, ...], *, journal_events: bool) -> Hello:
    return Hello(
        protocol_version=PROTOCOL_VERSION,
        client_info=ClientInfo("batten.client", __version__),
        capabilities=ClientCapabilities(
            server_requests=resolves,
            utility_operations=OPERATIONS,
            raw_agent_events=journal_events or UNSET,
            endings=True,
            takes_over=False,
        ),
        role="controller",
    )


class Greeting:
    """Collects messages up to the answer to `init`."""

    def __init__(self, flow: Flow) -> None:
        self._ready: outgoing.Ready | None = None
        self._session: outgoing.SessionInfo | None = None
        self.answer: Slot[About] = Slot(flow)

    def take(self, message: AnyMessage, size: int) -> None:
        match message:
            case outgoing.HelloOk() if message.protocol_version != PROTOCOL_VERSION:
                spoken = f"it speaks {message.protocol_version}, not {PROTOCOL_VERSION}"
                self.answer.fail(NotStarted(f"the worker cannot be understood: {spoken}"))
            case outgoing.Ready():
                self._ready = message
            case outgoing.SessionInfo():
                self._session = message
            case outgoing.Error():
                self.answer.fail(NotStarted(message.message))
            case outgoing.Status() if self._ready is not None and self._session is not None:
                self.answer.put(_about(self._ready, self._session))
            case _:
                pass

    def fail(self, error: BattenError) -> None:
        self.answer.fail(not_started(error) if isinstance(error, WorkerDied) else error)


def not_started(died: WorkerDied) -> NotStarted:
    """The error for a worker that died before it was ready."""
    error = NotStarted(f"the worker did not come up: {died.message}", exit_code=died.exit_code)
    error.complaints = died.complaints
    return error


def _about(ready: outgoing.Ready, session: outgoing.SessionInfo) -> About:
    return About(
        session_id=session.session_id or "",
        model=ready.model,
        provider=ready.provider,
        executor="live" if ready.executor_type is UNSET else ready.executor_type,
        workspace=session.cwd,
        git_branch=session.git_branch,
    )
