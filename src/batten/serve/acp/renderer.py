"""Renders a session as ACP updates, and answers each prompt."""

import asyncio
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from batten.agent.execution import Ended
from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.notes import Note
from batten.contract.outcomes import Outcome, RunEnd
from batten.journal.contract import Stored
from batten.protocols.acp.content import ImageBlock
from batten.protocols.acp.frames import AcpFrames, message_of, user_message_id
from batten.protocols.acp.meter import Meter
from batten.protocols.acp.methods import PromptResult
from batten.protocols.acp.rpc import RequestId
from batten.protocols.acp.stops import stop_of
from batten.protocols.acp.tool_frames import Patch
from batten.protocols.acp.updates import ConfigOptions, ToolCallFields, UserMessageChunk
from batten.serve.acp.peer import AcpPeer
from batten.serve.acp.sources import Sources
from batten.serve.renderer import Describe, Renderer


class Turn(Struct):
    """A prompt request without a response yet."""

    request_id: RequestId
    cancelled: bool = False
    """The client cancelled it; its stop reason is then always `cancelled`."""


Options = Callable[[str | None], ConfigOptions]
"""A session's options, with this model in place of the chosen one."""


class _Fetching(Renderer):
    """Fetches patches and long texts before a fact is shown."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._patches: dict[str, Patch | None] = {}
        """The patches of the next fact, by artifact id."""

    async def complete(self, envelope: Envelope) -> Envelope:
        match envelope.data:
            case (
                facts.UserMessage(artifact_id=str(whole))
                | facts.AssistantTextComplete(artifact_id=str(whole)) as fact
            ):
                text = await self._sources.text(whole)
                return replace(envelope, data=replace(fact, text=text))
            case facts.ToolEditProposed() | facts.ToolFileWriteProposed() as fact:
                await self._fetch([fact.patch_artifact_id])
            case facts.ToolMultiEditProposed() as fact:
                await self._fetch(fact.patch_artifact_ids)
            case _:
                pass
        return envelope

    async def _fetch(self, artifact_ids: list[str]) -> None:
        self._patches.clear()
        for artifact_id in artifact_ids:
            self._patches[artifact_id] = await self._sources.patch(artifact_id)


class AcpRenderer(_Fetching):
    """Shows the runs of one session, one after the other."""

    follows = completes = True

    def __init__(self, peer: AcpPeer, workspace: str, sources: Sources) -> None:
        super().__init__(sources)
        self._peer = peer
        self._workspace = workspace
        self._frames = AcpFrames(workspace, self._patches.get)
        self._meter: Meter | None = None
        self._task_id = ""
        self._spent: int | None = None
        self._options: Options | None = None
        self._rewritten = False
        """Whether a model other than the chosen one is in use."""
        self._session_id = ""
        self._run_id = ""
        self._announced: dict[str, asyncio.Event] = {}
        """Requests and child runs of this run, by id: set once they were shown."""
        self.turn: Turn | None = None
        """The current prompt."""

    def measure(self, meter: Meter, task_id: str, options: Options) -> None:
        """Also show usage, and the model in use when it is not the chosen one."""
        self._meter, self._task_id, self._options = meter, task_id, options

    @property
    def is_cancelled(self) -> bool:
        """Whether the client cancelled the current prompt."""
        return self.turn is not None and self.turn.cancelled

    def begin(self, session_id: str, describe: Describe) -> None:
        self._session_id = session_id

    def prompted(self, text: str) -> None:
        self._announced.clear()

    def note(self, note: Note) -> None:
        if not self.closed:
            self._peer.show(self._session_id, self._frames.note(note, room=self._peer.has_room))

    def ended(self, ended: Ended) -> None:
        if self.closed:
            return
        if self._rewritten:
            self._tell_model(None)
        self._answer(self._frames.ending or RunEnd(ended.outcome, self.redact(ended.message)))

    def fail(self, outcome: Outcome, message: str) -> None:
        if self.turn is not None and not self.closed:
            self._answer(RunEnd(outcome, self.redact(message)))

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        self.closed = True
        self._answer(self._frames.ending or RunEnd(outcome, self.redact(message)))

    def past(self) -> "PastRenderer":
        """A renderer of the session's earlier runs."""
        return PastRenderer(self._peer, self._session_id, self._workspace, self._sources)

    async def asked_about(self, request_id: str, call_id: str) -> ToolCallFields | None:
        """Wait until a request was shown; the tool call that it is about."""
        await self._announced.setdefault(request_id, asyncio.Event()).wait()
        return self._frames.calls.fields(call_id)

    async def starter_of(self, child_run_id: str) -> ToolCallFields | None:
        """The tool call that started a child run: all that the client sees of it."""
        await self._announced.setdefault(child_run_id, asyncio.Event()).wait()
        return self._frames.calls.parent_of(child_run_id)

    def _answer(self, end: RunEnd) -> None:
        """Answer the prompt, once, after an explanation of its end if there is one."""
        turn, self.turn = self.turn, None
        if turn is None:
            return
        stop = stop_of(end, asked=turn.cancelled, cut_short=self._frames.cut_short)
        if stop.said:
            self._peer.show(self._session_id, [message_of(stop.said, f"{self._run_id}.end")])
        if stop.error is not None:
            self._peer.refuse(turn.request_id, stop.error)
        else:
            assert stop.reason is not None
            self._peer.answer(turn.request_id, PromptResult(stop_reason=stop.reason))

    def _tell_model(self, model: str | None) -> None:
        self._rewritten = model is not None
        if self._options is not None:
            self._peer.show(self._session_id, [self._options(model)])

    async def complete(self, envelope: Envelope) -> Envelope:
        if isinstance(envelope.data, facts.AssistantMessageComplete) and self._meter is not None:
            self._spent = await self._sources.spent(self._task_id)
        return await super().complete(envelope)

    def show(self, stored: Stored, envelope: Envelope) -> None:
        self._run_id = stored.run_id
        self._peer.show(self._session_id, self._frames.feed(envelope))
        if self._meter is not None:
            updates = self._meter.feed(envelope.data, envelope.occurred_at, self._spent)
            self._peer.show(self._session_id, updates)
        match envelope.data:
            case (
                facts.ApprovalRequested(approval_id=known)
                | facts.RequestOpened(request_id=known)
                | facts.ToolStarted(child_run_id=str(known))
            ):
                self._announced.setdefault(known, asyncio.Event()).set()
            case facts.PolicyModelRewrote(to_model=model):
                self._tell_model(model)
            case _:
                pass


class PastRenderer(_Fetching):
    """Shows ended runs, including their prompts."""

    def __init__(self, peer: AcpPeer, session_id: str, workspace: str, sources: Sources) -> None:
        super().__init__(sources)
        self._peer = peer
        self._session_id = session_id
        self._frames = AcpFrames(workspace, self._patches.get, replays=True)
        self._image: ImageBlock | None = None
        """The image of the next fact."""

    async def complete(self, envelope: Envelope) -> Envelope:
        self._image = None
        if isinstance(envelope.data, facts.UserAttachment) and envelope.data.kind == "image":
            self._image = await self._sources.image(envelope.data)
        return await super().complete(envelope)

    def show(self, stored: Stored, envelope: Envelope) -> None:
        self._peer.show(self._session_id, self._frames.feed(envelope))
        if self._image is not None:
            place = user_message_id(envelope.run_id, 0)
            chunk = UserMessageChunk(content=self._image, message_id=place)
            self._peer.show(self._session_id, [chunk])

    def end_run(self) -> None:
        """Close the calls that the last run left open."""
        self._peer.show(self._session_id, self._frames.leave_none_open())
