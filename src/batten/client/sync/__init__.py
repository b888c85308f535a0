"""The client without `async`: the same names and behaviour, for programs without an event loop.

    with Worker.start(model="anthropic/claude-sonnet-4-5", workspace="repo") as worker:
        result = worker.ask("Why does the build fail?")

See `docs/client.md`.
"""

from batten.client import About as About
from batten.client import Answer as Answer
from batten.client import ArtifactInfo as ArtifactInfo
from batten.client import BattenError as BattenError
from batten.client import CallerError as CallerError
from batten.client import ClientTool as ClientTool
from batten.client import Compacted as Compacted
from batten.client import Completed as Completed
from batten.client import Conflict as Conflict
from batten.client import Ended as Ended
from batten.client import Event as Event
from batten.client import Exit as Exit
from batten.client import FellBehind as FellBehind
from batten.client import FileChanged as FileChanged
from batten.client import FilePage as FilePage
from batten.client import FoundFiles as FoundFiles
from batten.client import JournalEvent as JournalEvent
from batten.client import Launch as Launch
from batten.client import NoAnswer as NoAnswer
from batten.client import NoOutput as NoOutput
from batten.client import NoReply as NoReply
from batten.client import NotFound as NotFound
from batten.client import NotStarted as NotStarted
from batten.client import Outcome as Outcome
from batten.client import Output as Output
from batten.client import PeerError as PeerError
from batten.client import PendingRequest as PendingRequest
from batten.client import Picture as Picture
from batten.client import Problem as Problem
from batten.client import RequestResolved as RequestResolved
from batten.client import Result as Result
from batten.client import RunInfo as RunInfo
from batten.client import RunStarted as RunStarted
from batten.client import ServerError as ServerError
from batten.client import ServerRefused as ServerRefused
from batten.client import Start as Start
from batten.client import Status as Status
from batten.client import StructuredResult as StructuredResult
from batten.client import TextDelta as TextDelta
from batten.client import TextRetracted as TextRetracted
from batten.client import ThinkingDelta as ThinkingDelta
from batten.client import ToolEnded as ToolEnded
from batten.client import ToolOutput as ToolOutput
from batten.client import ToolProposed as ToolProposed
from batten.client import ToolStarted as ToolStarted
from batten.client import Transport as Transport
from batten.client import Unknown as Unknown
from batten.client import Unreachable as Unreachable
from batten.client import Usage as Usage
from batten.client import UtilityRefused as UtilityRefused
from batten.client import WorkerClosed as WorkerClosed
from batten.client import WorkerDied as WorkerDied
from batten.client import WorkerError as WorkerError
from batten.client import own_process as own_process
from batten.client.sync.history import History as History
from batten.client.sync.requests import ApprovalAsked as ApprovalAsked
from batten.client.sync.requests import ClientToolCalled as ClientToolCalled
from batten.client.sync.requests import ElicitationAsked as ElicitationAsked
from batten.client.sync.requests import QuestionAsked as QuestionAsked
from batten.client.sync.requests import Request as Request
from batten.client.sync.requests import RetryAsked as RetryAsked
from batten.client.sync.server import Server as Server
from batten.client.sync.server import connect as connect
from batten.client.sync.tools import client_tool as client_tool
from batten.client.sync.worker import Command as Command
from batten.client.sync.worker import Run as Run
from batten.client.sync.worker import Watch as Watch
from batten.client.sync.worker import Worker as Worker
