"""How a conversation with a worker begins: what is agreed, and who the worker is."""

from msgspec import UNSET, Struct

from batten import __version__
from batten.client.connection import Said
from batten.client.errors import NotStarted, WorkerDied
from batten.client.mailbox import Flow, Slot
from batten.contract.errors import BattenError
from batten.protocols.maestro import PROTOCOL_VERSION
from batten.protocols.maestro import outgoing as heard
from batten.protocols.maestro.incoming import Hello
from batten.protocols.maestro.outgoing import ClientCapabilities, ClientInfo
from batten.protocols.maestro.vocabulary import OPERATIONS, ExecutorType, RequestType


class About(Struct, frozen=True, kw_only=True):
    """Who answers: the model, and the session it works in."""

    session_id: str
    model: str
    provider: str
    executor: ExecutorType
    """`replay` if no model is asked, but a scenario played."""
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
        ),
        role="controller",
    )


class Greeting:
    """Hears the first words up to the answer to `init`."""

    def __init__(self, flow: Flow) -> None:
        self._ready: heard.Ready | None = None
        self._session: heard.SessionInfo | None = None
        self.answer: Slot[About] = Slot(flow)

    def take(self, message: Said, size: int) -> None:
        match message:
            case heard.HelloOk() if message.protocol_version != PROTOCOL_VERSION:
                spoken = f"it speaks {message.protocol_version}, not {PROTOCOL_VERSION}"
                self.answer.fail(NotStarted(f"the worker cannot be understood: {spoken}"))
            case heard.Ready():
                self._ready = message
            case heard.SessionInfo():
                self._session = message
            case heard.Error():
                self.answer.fail(NotStarted(message.message))
            case heard.Status() if self._ready is not None and self._session is not None:
                self.answer.put(_about(self._ready, self._session))
            case _:
                pass

    def fail(self, error: BattenError) -> None:
        self.answer.fail(not_started(error) if isinstance(error, WorkerDied) else error)


def not_started(died: WorkerDied) -> NotStarted:
    """A worker that died before it was there."""
    said = NotStarted(f"the worker did not come up: {died.message}", exit_code=died.exit_code)
    said.complaints = died.complaints
    return said


def _about(ready: heard.Ready, session: heard.SessionInfo) -> About:
    return About(
        session_id=session.session_id or "",
        model=ready.model,
        provider=ready.provider,
        executor="live" if ready.executor_type is UNSET else ready.executor_type,
        workspace=session.cwd,
        git_branch=session.git_branch,
    )
