"""The embedding library: start workers, read typed events, answer requests, interrupt.

    async with Worker.start(model="anthropic/claude-sonnet-4-5", workspace="repo") as worker:
        result = await worker.ask("Why does the build fail?")

See `docs/client.md`.
"""

from batten.client.command import Command as Command
from batten.client.command import Completed as Completed
from batten.client.command import Exit as Exit
from batten.client.command import Output as Output
from batten.client.errors import FellBehind as FellBehind
from batten.client.errors import NoAnswer as NoAnswer
from batten.client.errors import NoOutput as NoOutput
from batten.client.errors import NoReply as NoReply
from batten.client.errors import NotStarted as NotStarted
from batten.client.errors import ServerError as ServerError
from batten.client.errors import ServerRefused as ServerRefused
from batten.client.errors import Unreachable as Unreachable
from batten.client.errors import UtilityRefused as UtilityRefused
from batten.client.errors import WorkerClosed as WorkerClosed
from batten.client.errors import WorkerDied as WorkerDied
from batten.client.errors import WorkerError as WorkerError
from batten.client.events import Answer as Answer
from batten.client.events import ApprovalAsked as ApprovalAsked
from batten.client.events import ClientToolCalled as ClientToolCalled
from batten.client.events import Compacted as Compacted
from batten.client.events import ElicitationAsked as ElicitationAsked
from batten.client.events import Ended as Ended
from batten.client.events import Event as Event
from batten.client.events import JournalEvent as JournalEvent
from batten.client.events import Picture as Picture
from batten.client.events import Problem as Problem
from batten.client.events import QuestionAsked as QuestionAsked
from batten.client.events import Request as Request
from batten.client.events import RequestResolved as RequestResolved
from batten.client.events import RetryAsked as RetryAsked
from batten.client.events import RunStarted as RunStarted
from batten.client.events import Status as Status
from batten.client.events import TextDelta as TextDelta
from batten.client.events import TextRetracted as TextRetracted
from batten.client.events import ThinkingDelta as ThinkingDelta
from batten.client.events import ToolEnded as ToolEnded
from batten.client.events import ToolOutput as ToolOutput
from batten.client.events import ToolProposed as ToolProposed
from batten.client.events import ToolStarted as ToolStarted
from batten.client.events import Unknown as Unknown
from batten.client.greeting import About as About
from batten.client.history import History as History
from batten.client.history import RunInfo as RunInfo
from batten.client.output import StructuredResult as StructuredResult
from batten.client.process import own_process as own_process
from batten.client.result import Result as Result
from batten.client.result import Usage as Usage
from batten.client.run import Run as Run
from batten.client.server import ArtifactInfo as ArtifactInfo
from batten.client.server import PendingRequest as PendingRequest
from batten.client.server import Server as Server
from batten.client.server import connect as connect
from batten.client.tools import ClientTool as ClientTool
from batten.client.tools import client_tool as client_tool
from batten.client.transport import Launch as Launch
from batten.client.transport import Start as Start
from batten.client.transport import Transport as Transport
from batten.client.utilities import FilePage as FilePage
from batten.client.utilities import FoundFiles as FoundFiles
from batten.client.watch import FileChanged as FileChanged
from batten.client.watch import Watch as Watch
from batten.client.worker import Worker as Worker
from batten.contract.errors import BattenError as BattenError
from batten.contract.errors import CallerError as CallerError
from batten.contract.errors import Conflict as Conflict
from batten.contract.errors import NotFound as NotFound
from batten.contract.errors import PeerError as PeerError
from batten.contract.outcomes import Outcome as Outcome
