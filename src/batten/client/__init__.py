"""The embedding library: start workers, read typed events, answer requests, interrupt.

    async with Worker.start(model="anthropic/claude-sonnet-4-5", workspace="repo") as worker:
        result = await worker.ask("Why does the build fail?")

See `docs/client.md`.
"""

from batten.client.command import Command, Completed, Exit, Output
from batten.client.errors import (
    FellBehind,
    NoAnswer,
    NoOutput,
    NotStarted,
    UtilityRefused,
    WorkerClosed,
    WorkerDied,
    WorkerError,
)
from batten.client.events import (
    Answer,
    ApprovalAsked,
    ClientToolCalled,
    Compacted,
    ElicitationAsked,
    Ended,
    Event,
    JournalEvent,
    Picture,
    Problem,
    QuestionAsked,
    Request,
    RequestResolved,
    RetryAsked,
    RunStarted,
    Status,
    TextDelta,
    TextRetracted,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolProposed,
    ToolStarted,
    Unknown,
)
from batten.client.greeting import About
from batten.client.history import History, RunInfo
from batten.client.output import StructuredResult
from batten.client.process import own_process
from batten.client.result import Result, Usage
from batten.client.run import Run
from batten.client.tools import ClientTool, client_tool
from batten.client.transport import Launch, Start, Transport
from batten.client.utilities import FilePage, FoundFiles
from batten.client.watch import FileChanged, Watch
from batten.client.worker import Worker
from batten.contract.errors import BattenError, CallerError, Conflict, NotFound, PeerError
from batten.contract.outcomes import Outcome

__all__ = [
    "About",
    "Answer",
    "ApprovalAsked",
    "BattenError",
    "CallerError",
    "ClientTool",
    "ClientToolCalled",
    "Command",
    "Compacted",
    "Completed",
    "Conflict",
    "ElicitationAsked",
    "Ended",
    "Event",
    "Exit",
    "FellBehind",
    "FileChanged",
    "FilePage",
    "FoundFiles",
    "History",
    "JournalEvent",
    "Launch",
    "NoAnswer",
    "NoOutput",
    "NotFound",
    "NotStarted",
    "Outcome",
    "Output",
    "PeerError",
    "Picture",
    "Problem",
    "QuestionAsked",
    "Request",
    "RequestResolved",
    "Result",
    "RetryAsked",
    "Run",
    "RunInfo",
    "RunStarted",
    "Start",
    "Status",
    "StructuredResult",
    "TextDelta",
    "TextRetracted",
    "ThinkingDelta",
    "ToolEnded",
    "ToolOutput",
    "ToolProposed",
    "ToolStarted",
    "Transport",
    "Unknown",
    "Usage",
    "UtilityRefused",
    "Watch",
    "Worker",
    "WorkerClosed",
    "WorkerDied",
    "WorkerError",
    "client_tool",
    "own_process",
]
