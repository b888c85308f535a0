"""A session as its client sees it: updates as they happen, and an answer to each prompt."""

import asyncio
from collections.abc import Callable

from msgspec import UNSET
from msgspec.structs import replace

from batten.agent.execution import Ended
from batten.contract.envelope import Envelope
from batten.contract.facts import (
    ApprovalRequested,
    AssistantTextComplete,
    PolicyModelRewrote,
    RequestOpened,
    ToolStarted,
    UserMessage,
)
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome
from batten.journal.contract import Journal, Stored
from batten.journal.recorder import load_artifact, whole_envelope
from batten.protocols.acp.frames import AcpFrames, explained
from batten.protocols.acp.meter import Meter
from batten.protocols.acp.methods import PromptResult
from batten.protocols.acp.rpc import RequestId
from batten.protocols.acp.stops import RunEnd, stop_of
from batten.protocols.acp.tool_frames import Patches
from batten.protocols.acp.updates import ConfigOptions, ToolCallFields
from batten.serve.acp.peer import AcpPeer
from batten.serve.following import Following
from batten.serve.renderer import Describe


class Turn:
    """A prompt that waits for its answer."""

    def __init__(self, request_id: RequestId, stop: Callable[[], None]) -> None:
        self.request_id = request_id
        self.stop = stop
        """Ends its run, which must have begun."""
        self.cancelled = False
        """The client wants it to end; its answer is then `cancelled`, whatever happened."""


Options = Callable[[str | None], ConfigOptions]
"""A session's options, with this model in place of the one that was chosen."""


class AcpRenderer(Following):
    """Shows the runs of one session, one after the other."""

    def __init__(self, peer: AcpPeer, workspace: str, patches: Patches) -> None:
        super().__init__()
        self._peer = peer
        self._workspace = workspace
        self._patches = patches
        self._frames = AcpFrames(workspace, patches)
        self._meter: Meter | None = None
        self._options: Options | None = None
        self._rewritten = False
        """Another model answers than the one that was chosen."""
        self._session_id = ""
        self._run_id = ""
        self._told: dict[str, asyncio.Event] = {}
        """Questions and child runs of this run, by their ids: set once they were shown."""
        self.turn: Turn | None = None
        """The prompt that is worked on."""

    def measure(self, meter: Meter, options: Options) -> None:
        """Tell what the session uses, too, and which model if it is another than was chosen."""
        self._meter, self._options = meter, options

    @property
    def is_cancelled(self) -> bool:
        """Whether the client cancelled the prompt that is worked on."""
        return self.turn is not None and self.turn.cancelled

    def begin(self, session_id: str, describe: Describe) -> None:
        self._session_id = session_id

    def prompted(self, text: str) -> None:
        self._shown = -1
        self._told.clear()
        if self.turn is not None and self.is_cancelled:
            self.turn.stop()  # it was asked for before there was a run to end

    def beside(self, stored: Stored, journal: Journal) -> None:
        """What belongs to no run is told where it is asked for."""

    def note(self, note: Note) -> None:
        if not self._closed:
            self._peer.show(self._session_id, self._frames.note(note, room=self._peer.has_room))

    def ended(self, ended: Ended, journal: Journal) -> None:
        if self._closed:
            return
        if ended.durable:
            self._show_rest(journal, ended.run_id)
        if self._rewritten:
            self._tell_model(None)
        self._answer(self._frames.ending or RunEnd(ended.outcome, self.redact(ended.message)))

    def fail(self, outcome: Outcome, message: str) -> None:
        """It ends in a way that no run tells of."""
        if self.turn is not None and not self._closed:
            self._answer(RunEnd(outcome, self.redact(message)))

    def finish(self) -> None:
        """There is no last frame."""

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        self._closed = True
        self._answer(self._frames.ending or RunEnd(outcome, self.redact(message)))

    async def replay(
        self, journal: Journal, run_id: str, until: int | None, past: AcpFrames
    ) -> None:
        """Show a run that is over, at the client's pace."""
        after = -1
        while page := journal.read(run_id, after=after):
            for stored in page:
                if until is not None and stored.sequence > until:
                    return
                self._peer.show(self._session_id, past.feed(_envelope(stored, journal)))
            after = page[-1].sequence
            await self._peer.room()
        self._peer.show(self._session_id, past.calls.leave_none_open())

    def past(self) -> AcpFrames:
        """A codec for what was before."""
        return AcpFrames(self._workspace, self._patches, replays=True)

    async def asked_about(self, request_id: str, call_id: str) -> ToolCallFields | None:
        """The call that a question is about, once the client was told of it."""
        await self._told.setdefault(request_id, asyncio.Event()).wait()
        return self._frames.calls.fields(call_id)

    async def starter_of(self, child_run_id: str) -> ToolCallFields | None:
        """The call that started a child run, of which the client is told nothing else."""
        await self._told.setdefault(child_run_id, asyncio.Event()).wait()
        return self._frames.calls.parent_of(child_run_id)

    def _answer(self, end: RunEnd) -> None:
        """Answer the prompt, once; what is to be said of the end comes before."""
        turn, self.turn = self.turn, None
        if turn is None:
            return
        stop = stop_of(end, asked=turn.cancelled)
        if stop.said:
            self._peer.show(self._session_id, [explained(stop.said, f"{self._run_id}.end")])
        if stop.error is not None:
            self._peer.refuse(turn.request_id, stop.error)
        else:
            assert stop.reason is not None
            self._peer.answer(turn.request_id, PromptResult(stop_reason=stop.reason))

    def _tell_model(self, model: str | None) -> None:
        self._rewritten = model is not None
        if self._options is not None:
            self._peer.show(self._session_id, [self._options(model)])

    def _feed(self, stored: Stored, journal: Journal) -> None:
        self._run_id = stored.run_id
        envelope = _envelope(stored, journal)
        self._peer.show(self._session_id, self._frames.feed(envelope))
        if self._meter is not None:
            told = self._meter.feed(envelope.data, envelope.occurred_at)
            self._peer.show(self._session_id, told)
        match envelope.data:
            case (
                ApprovalRequested(approval_id=known)
                | RequestOpened(request_id=known)
                | ToolStarted(child_run_id=str(known))
            ):
                self._told.setdefault(known, asyncio.Event()).set()
            case PolicyModelRewrote(to_model=model):
                self._tell_model(model)
            case _:
                pass


def _envelope(stored: Stored, journal: Journal) -> Envelope:
    """An envelope with its whole fact, and texts that were too long for it."""
    envelope = whole_envelope(stored, journal)
    fact = envelope.data
    if isinstance(fact, UserMessage | AssistantTextComplete) and fact.artifact_id is not UNSET:
        text = load_artifact(journal, fact.artifact_id).decode(errors="replace")
        return replace(envelope, data=replace(fact, text=text))
    return envelope
