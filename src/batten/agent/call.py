"""One model call: its stream becomes facts, redacted as it arrives.

A model's words are searched for known values and known formats only. A text or call with a secret
in it is sealed beside its fact, and the run goes on with what the model wrote.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import msgspec
from msgspec import UNSET, Struct

from batten.agent.deps import RunDeps
from batten.agent.halt import Halt
from batten.agent.unfinished import Meter
from batten.contract import facts
from batten.contract.conversation import Message, Text, Thinking, ToolCall
from batten.contract.depth import is_too_deep
from batten.contract.errors import ProviderError
from batten.contract.facts.assistant import MessageBlock
from batten.contract.notes import Note, ThinkingPiece, ToolInputPiece
from batten.journal.keeping import LARGEST_TEXT, LARGEST_VALUE
from batten.journal.recorder import Recorder
from batten.models.contract import (
    BlockDone,
    Done,
    Model,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from batten.models.pricing import call_cost
from batten.models.retry import Retrying, RetryPolicy
from batten.models.router import Rewrote, Suit, with_fallbacks
from batten.redact.stream import StreamRedactor

_MOST_UNAWAITED = 256
"""Text deltas in flight to the journal before the model's stream has to wait."""


class ModelAnswer(Struct, frozen=True):
    """The result of one call."""

    message: Message
    done: Done
    provider: str
    model: str
    cost_micros_usd: int | None
    duration_ms: int


class ModelCall:
    """Makes one call, with its retries, and records it. Used once.

    No tool runs before the message is complete, so a stream that broke off can be started again:
    what it had said is taken back.
    """

    def __init__(
        self,
        deps: RunDeps,
        recorder: Recorder,
        turn: int,
        model: Model,
        *,
        policy: RetryPolicy,
        afford: Callable[[Model], Awaitable[None]],
        record_thinking: bool = False,
    ) -> None:
        """`afford` is awaited before a call that was paid for in part is made again; it raises
        `Halt` if the budget forbids that."""
        self._deps = deps
        self._policy = policy
        self._afford = afford
        self._meter = Meter(recorder, turn)
        self._attempt = 0
        """How often the answer was taken back."""
        self._pause_ends = 0.0
        """When the pause before the next attempt ends: a cancel before that costs nothing."""
        self._records_thinking = record_thinking
        self._recorder = recorder
        self._turn = turn
        self._model = model
        self._streams: dict[int, StreamRedactor] = {}
        self._texts: dict[int, list[str]] = {}
        self._open_texts: set[int] = set()
        """Text blocks that have begun and not ended."""
        self._blocks: list[MessageBlock] = []
        self._content: list[Text | Thinking | ToolCall] = []
        self._started_at = time.monotonic()
        self._first_at: float | None = None
        self._receipt: Awaitable[object] | None = None
        self._unawaited = 0
        self._call_ids: dict[int, str] = {}
        """The id of each block that is a tool call."""
        self._fact_count = 0
        """Facts recorded for this answer; a note names the fact it follows by this number."""

    async def make(
        self, models: tuple[Model, ...], request: ModelRequest, suit: Suit | None = None
    ) -> ModelAnswer:
        """Stream the answer into the journal. Raises `ProviderError` when no message arrives."""
        request = msgspec.structs.replace(request, report=self._meter.take)
        stream = with_fallbacks(models, request, suit=suit, policy=self._policy)
        try:
            async with aclosing(stream) as events:
                done = await self._take(events, models)
        except ProviderError:
            self._close_texts()
            if self._first_at is not None:
                self._meter.record(self._model, "broken")
            raise
        except Halt:
            self._close_texts()
            raise
        except asyncio.CancelledError:
            self._close_texts()
            if time.monotonic() >= self._pause_ends:
                self._meter.record(self._model, "cancelled")
            raise
        return self._complete(done)

    async def _take(
        self, events: AsyncIterator[ModelEvent | Retrying | Rewrote], models: tuple[Model, ...]
    ) -> Done:
        async for event in events:
            match event:
                case TextDelta():
                    self._saw_token()
                    if event.text:
                        self._open_texts.add(event.block)
                    text = self._stream(event.block).feed(event.text)
                    self._emit(facts.AssistantTextDelta, event.block, text)
                    await self._keep_pace()
                case ThinkingDelta() | ToolCallDelta():
                    self._saw_token()
                    self._note(event)
                    if self._records_thinking:
                        await self._keep_pace()
                case BlockDone():
                    self._finish_block(event)
                case Retrying():
                    await self._try_again(event)
                case Rewrote():
                    await self._rewrite(event, models)
                case Done():
                    return event
        raise ProviderError("the stream ended without its final event", code="model_protocol")

    async def _keep_pace(self) -> None:
        """Slow a model that streams faster than the journal stores."""
        if self._unawaited >= _MOST_UNAWAITED and self._receipt is not None:
            receipt, self._receipt, self._unawaited = self._receipt, None, 0
            await receipt

    async def _try_again(self, event: Retrying) -> None:
        """Record a failed attempt, and take back its output."""
        if event.begun:
            await self._void(event.message, self._model)
        self._recorder.record(retry_fact(self._model.provider, event))
        self._pause_ends = time.monotonic() + event.delay_s

    async def _rewrite(self, event: Rewrote, models: tuple[Model, ...]) -> None:
        names = [f"{model.provider}/{model.name}" for model in models]
        following = models[names.index(event.to_model)]
        if event.begun:
            await self._void(event.reason, following)
        self._model, self._pause_ends = following, 0.0
        self._recorder.record(
            facts.PolicyModelRewrote(
                from_model=event.from_model, to_model=event.to_model, reason=event.reason
            )
        )

    async def _void(self, reason: str, following: Model) -> None:
        """Take back the output of an attempt, if the task can afford a call to this model."""
        self._pause_ends = math.inf
        self._meter.record(self._model, "broken")
        await self._afford(following)
        for block in self._blocks:
            if block.kind == "thinking":
                self._recorder.forget(str(block.sealed_artifact_id))
        self._retract(reason)
        self._attempt += 1
        self._streams.clear()
        self._texts.clear()
        self._open_texts.clear()
        self._call_ids.clear()
        self._blocks, self._content, self._first_at = [], [], None

    def leave(self, reason: str) -> None:
        """Take back what came of an answer that was cut off: another worker makes the call."""
        if self._blocks or any(self._texts.values()):
            self._retract(reason)

    def _retract(self, reason: str) -> None:
        calls = [str(block.tool_call_id) for block in self._blocks if block.kind == "tool_call"]
        self._recorder.record(
            facts.AssistantRetracted(turn_index=self._turn, reason=reason, tool_call_ids=calls)
        )
        self._fact_count += 1

    def _close_texts(self) -> None:
        """Keep the text of blocks that the model did not finish."""
        for block in sorted(self._open_texts):
            self._finish_text(block, Text(""))

    def _note(self, event: ThinkingDelta | ToolCallDelta) -> None:
        if isinstance(event, ToolCallDelta):
            if self._deps.note is not None:
                call = (self._call_id(event.block, event.call_id), event.name)
                self._show(event.block, call, self._stream(event.block).feed(event.fragment))
        elif self._deps.note is not None or self._records_thinking:
            self._think(event.block, self._stream(event.block).feed(event.text))

    def _end_notes(self, block: int, content: Thinking | ToolCall) -> None:
        """Show the text held back because a secret might have begun in it."""
        stream = self._streams.get(block)
        if stream is None:
            return
        if isinstance(content, ToolCall):
            self._show(block, (content.id, content.name), stream.flush())
        else:
            self._think(block, stream.flush())

    def _think(self, block: int, text: str) -> None:
        """Show a piece of thinking, and journal it if the settings say so."""
        self._show(block, None, text)
        if self._records_thinking:
            self._emit(facts.AssistantThinkingDelta, block, text)

    def _show(self, block: int, call: tuple[str, str] | None, text: str) -> None:
        if not text or self._deps.note is None:
            return
        note: Note
        if call is None:
            note = ThinkingPiece(
                turn_index=self._turn,
                after=self._fact_count,
                block_index=block,
                text=text,
                attempt=self._attempt,
            )
        else:
            note = ToolInputPiece(
                turn_index=self._turn,
                after=self._fact_count,
                block_index=block,
                tool_call_id=call[0],
                tool_name=call[1],
                text=text,
                attempt=self._attempt,
            )
        self._deps.note(self._recorder.run_id, note)

    def _call_id(self, block: int, provided: str) -> str:
        """The provider's id of a call, changed if the run or its family has used it before."""
        if block not in self._call_ids:
            taken, call_id, number = self._recorder.call_ids, provided, 1
            while call_id in taken:
                number += 1
                call_id = f"{provided}-{number}"
            taken.add(call_id)
            self._call_ids[block] = call_id
        return self._call_ids[block]

    def _saw_token(self) -> None:
        if self._first_at is None:
            self._first_at = time.monotonic()

    def _stream(self, block: int) -> StreamRedactor:
        stream = self._streams.get(block)
        if stream is None:
            stream = self._streams[block] = StreamRedactor(self._deps.redactor.authored)
            self._texts[block] = []
        return stream

    def _emit(
        self,
        delta: type[facts.AssistantTextDelta | facts.AssistantThinkingDelta],
        block: int,
        text: str,
    ) -> None:
        for start in range(0, len(text), LARGEST_TEXT):
            piece = text[start : start + LARGEST_TEXT]
            self._texts[block].append(piece)
            self._receipt = self._recorder.record(
                delta(turn_index=self._turn, block_index=block, delta=piece)
            )
            self._unawaited += 1
            self._fact_count += 1

    def _finish_block(self, event: BlockDone) -> None:
        content = event.content
        if isinstance(content, ToolCall):
            call_id = self._call_id(event.block, content.id)
            content = _bounded(msgspec.structs.replace(content, id=call_id))
        self._content.append(content)
        match content:
            case Text():
                self._finish_text(event.block, content)
            case ToolCall():
                self._end_notes(event.block, content)
                self._propose(event.block, content)
            case Thinking():
                self._end_notes(event.block, content)
                self._keep_thinking(event.block, content)

    def _finish_text(self, block: int, content: Text) -> None:
        stream = self._stream(block)
        if block not in self._open_texts:  # it came whole, without deltas
            self._emit(facts.AssistantTextDelta, block, stream.feed(content.text))
        self._open_texts.discard(block)
        self._emit(facts.AssistantTextDelta, block, stream.flush())
        whole = "".join(self._texts[block])
        sealed = None
        if whole != content.text and self._deps.redactor.authored.contains(content.text):
            sealed = self._recorder.seal(content.text.encode(), summary="answer", remember=True)
        artifact_id = self._recorder.keep_long(
            whole, "tool_result_blob", summary="long answer", remember=sealed is None
        )
        self._recorder.record(
            facts.AssistantTextComplete(
                turn_index=self._turn,
                block_index=block,
                text=whole[:LARGEST_TEXT],
                artifact_id=artifact_id or UNSET,
                sealed_artifact_id=sealed or UNSET,
            )
        )
        self._fact_count += 1
        self._blocks.append(MessageBlock("text", block))

    def _propose(self, block: int, call: ToolCall) -> None:
        redactor = self._deps.redactor.authored
        shown, paths = redactor.value(call.input)
        shown = {"raw": redactor.text(call.raw)} if call.raw is not None else shown
        exact = msgspec.json.encode(call)
        sealed = None
        if paths or len(exact) > LARGEST_VALUE or call.raw is not None:
            sealed = self._recorder.seal(
                exact, summary=f"arguments of {call.name}", tool_call_id=call.id, remember=True
            )
        self._recorder.record(
            facts.AssistantToolCallProposed(
                turn_index=self._turn,
                tool_call_id=call.id,
                tool_name=call.name,
                input=shown,
                block_index=block,
                redacted_paths=[f"input.{path}" for path in paths] or UNSET,
                sealed_artifact_id=sealed or UNSET,
                unreadable=True if call.raw is not None else UNSET,
            )
        )
        self._fact_count += 1
        self._blocks.append(MessageBlock("tool_call", block, tool_call_id=call.id))

    def _keep_thinking(self, block: int, thinking: Thinking) -> None:
        whole = "".join(self._texts.get(block, ()))
        if self._records_thinking and whole:
            self._recorder.record(
                facts.AssistantThinkingComplete(
                    turn_index=self._turn, block_index=block, text=whole
                )
            )
            self._fact_count += 1
        sealed = self._recorder.seal(
            msgspec.json.encode(thinking), summary="thinking", remember=True
        )
        self._blocks.append(MessageBlock("thinking", block, sealed_artifact_id=sealed))

    def _complete(self, done: Done) -> ModelAnswer:
        model = self._model
        found = model.price
        cost = call_cost(found, done.usage)
        now = time.monotonic()
        first = None if self._first_at is None else round((self._first_at - self._started_at) * 1e3)
        duration_ms = round((now - self._started_at) * 1000)
        self._recorder.record(
            facts.AssistantMessageComplete(
                turn_index=self._turn,
                model=model.name,
                provider=model.provider,
                blocks=self._blocks,
                usage=done.usage,
                stop_reason=done.stop_reason,
                cost_micros_usd=cost,
                price_as_of=None if found is None else found.as_of,
                duration_ms=duration_ms,
                time_to_first_token_ms=first,
                message_id=done.message_id or UNSET,
                answered_by=done.model if done.model not in ("", model.name) else UNSET,
                upstream=done.upstream or UNSET,
            )
        )
        message = Message("assistant", tuple(self._content))
        return ModelAnswer(message, done, model.provider, model.name, cost, duration_ms)


def _bounded(call: ToolCall) -> ToolCall:
    """The call with arguments of bounded depth: arguments nested too deeply become raw text."""
    if not is_too_deep(call.input):
        return call
    try:
        raw = msgspec.json.encode(call.input).decode()
    except RecursionError:
        raw = '{"...": "nested too deeply"}'
    return ToolCall(call.id, call.name, {}, raw=raw)


def retry_fact(provider: str, event: Retrying) -> facts.ErrorUpstream:
    """The fact of a failed attempt that is retried after a pause."""
    return facts.ErrorUpstream(
        provider=provider,
        status=event.status,
        message=event.message,
        retriable=True,
        attempt=event.attempt,
        max_attempts=event.max_attempts,
        category=event.category,
        retry_delay_ms=round(event.delay_s * 1000),
    )
