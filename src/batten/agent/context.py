"""Keeps the conversation inside the model's window: prunes old results, then compacts."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

import msgspec

from batten.agent.call import retry_fact
from batten.agent.conversation import (
    MESSAGE_TOO_LONG,
    SUMMARY_MARK,
    Conversation,
    is_prunable,
)
from batten.agent.halt import Halt
from batten.agent.hooks.points import HookPoints
from batten.agent.limits import Limits
from batten.agent.settings import RunSettings
from batten.agent.unfinished import Meter, unusable
from batten.contract.conversation import Message, Text, ToolResult
from batten.contract.errors import ProviderError
from batten.contract.facts import ContextCompacted, ContextPruned
from batten.journal.recorder import Recorder
from batten.models.contract import BlockDone, Done, Model, ModelRequest
from batten.models.pricing import call_cost
from batten.models.retry import Retrying, RetryPolicy
from batten.models.router import with_fallbacks

_FEWEST_TO_COMPACT = 4
"""Unless only a summary of fewer makes the next request fit."""
_SUMMARIZED = frozenset({"end_turn", "stop_sequence"})
"""Stop reasons of a complete summary."""
_SUMMARIZE = (
    "Summarize the conversation above for yourself, so that you can go on with the work from the "
    "summary alone. Keep: what was asked, what was decided and why, which files were changed and "
    "how, what was tried and failed, what is left to do. Leave out what no longer matters."
)


class Context:
    """Prunes and compacts one conversation."""

    def __init__(
        self,
        settings: RunSettings,
        recorder: Recorder,
        conversation: Conversation,
        limits: Limits,
        hooks: HookPoints,
        open_model: Callable[[str], Model],
    ) -> None:
        self._settings = settings
        self._recorder = recorder
        self._conversation = conversation
        self._limits = limits
        self._hooks = hooks
        self._open_model = open_model

    async def fit(self, model: Model, system: str, turn: int) -> None:
        """Make the next request fit. `turn` is the last one. Raises `Halt` when it cannot."""
        self._conversation.settle()
        window = model.context_tokens
        self._check_prompt(system, window)
        self._prune(window)
        if self._size(system) >= window * self._settings.compact_ratio:
            await self._hooks.before_compacting(turn, self._conversation.tokens)
            async with self._summarizer(model, system) as summarizer:
                compacted = await self._compact(summarizer, system, window, turn)
            await self._hooks.after_compacting(turn, compacted, self._conversation.tokens)
        if self._size(system) >= window:
            raise Halt(
                "context_overflow",
                f"about {self._size(system)} tokens do not fit the model's {window}",
            )

    def _check_prompt(self, system: str, window: int) -> None:
        """Raise `Halt` if the prompt alone cannot fit: no summary of older messages would help."""
        size = self._conversation.prompt_tokens
        if size + len(system) // 4 >= window:
            raise Halt(
                "context_overflow",
                f"the message has about {size} tokens and does not fit the model's {window}; "
                "it is not in the conversation",
                code=MESSAGE_TOO_LONG,
            )

    def _size(self, system: str) -> int:
        return self._conversation.tokens + len(system) // 4

    def _share(self, tokens: int, window: int, parts: int) -> float:
        """A threshold, or less where the window is small: a fraction of the size that compacts."""
        return min(tokens, window * self._settings.compact_ratio / parts)

    def _protected_from(self, window: int) -> int:
        """Index of the first message of the protected tail, which always holds the last message."""
        protected = self._share(self._settings.protect_tokens, window, 2)
        sizes = self._conversation.token_sizes()
        total = sum(sizes[-1:])
        for index in range(len(sizes) - 2, -1, -1):
            total += sizes[index]
            if total > protected:
                return index + 1
        return 0

    def _prune(self, window: int) -> None:
        before = self._conversation.tokens
        if before < self._share(self._settings.prune_from_tokens, window, 4):
            return
        old = self._conversation.messages[: self._protected_from(window)]
        call_ids = [
            block.call_id
            for message in old
            for block in message.blocks
            if isinstance(block, ToolResult) and is_prunable(block)
        ]
        if not call_ids:
            return
        freed = self._conversation.would_free(set(call_ids))
        self._recorder.record(
            ContextPruned(tool_call_ids=call_ids, tokens_before=before, tokens_after=before - freed)
        )

    @asynccontextmanager
    async def _summarizer(self, model: Model, system: str) -> AsyncGenerator[Model, None]:
        """The model named for summaries if the conversation fits it, else the answering model."""
        name = self._settings.compact_model
        if name is None:
            yield model
            return
        named = self._open_model(name)
        try:
            yield named if self._size(system) < named.context_tokens else model
        finally:
            await named.aclose()

    async def _compact(self, model: Model, system: str, window: int, turn: int) -> bool:
        """Replace the old messages with a summary; False if there are too few of them."""
        messages = self._conversation.messages
        cut = self._cut(messages, window, model.context_tokens - len(system) // 4)
        candidates = messages[:cut]
        kept = sum(self._conversation.token_sizes()[cut:])
        if len(candidates) < _FEWEST_TO_COMPACT and not (
            self._size(system) >= window > kept + len(system) // 4
        ):
            return False
        before = self._conversation.tokens
        request = ModelRequest(
            model=model.name,
            system=system,
            messages=(*candidates, Message("user", (Text(_SUMMARIZE),))),
            max_output_tokens=self._settings.max_output_tokens,
        )
        await self._limits.before_call(model, self._size(system))
        summary, done = await self._summarize(model, request, turn)
        found = model.price
        await self._recorder.record(
            ContextCompacted(
                summary=summary,
                messages_removed=len(candidates),
                tokens_before=before,
                tokens_after=kept + (len(SUMMARY_MARK) + len(summary)) // 4,
                kept_messages=len(messages) - cut,
                model=model.name,
                provider=model.provider,
                usage=done.usage,
                cost_micros_usd=call_cost(found, done.usage),
                price_as_of=None if found is None else found.as_of,
            )
        )
        return True

    async def _summarize(self, model: Model, request: ModelRequest, turn: int) -> tuple[str, Done]:
        """The summary. A call that gives none is recorded with its cost."""
        meter = Meter(self._recorder, turn)
        request = msgspec.structs.replace(request, report=meter.take)
        policy = RetryPolicy(max_retries=self._settings.max_retries)
        texts: list[str] = []
        begun, pause_ends = False, 0.0
        try:
            async with aclosing(with_fallbacks((model,), request, policy=policy)) as events:
                async for event in events:
                    begun = not isinstance(event, Retrying)
                    match event:
                        case BlockDone(content=Text() as content):
                            texts.append(content.text)
                        case Retrying():
                            texts.clear()
                            if event.begun:
                                pause_ends = math.inf
                                meter.record(model, "broken")
                                await self._limits.before_call(model, self._size(request.system))
                            self._recorder.record(retry_fact(model.provider, event))
                            pause_ends = time.monotonic() + event.delay_s
                        case Done():
                            return self._checked("".join(texts), event, model, turn), event
                        case _:
                            pass
        except ProviderError:
            if begun:
                meter.record(model, "broken")
            raise
        except asyncio.CancelledError:
            if time.monotonic() >= pause_ends:
                meter.record(model, "cancelled")
            raise
        raise Halt("context_overflow", "the conversation could not be compacted: no summary came")

    def _checked(self, summary: str, done: Done, model: Model, turn: int) -> str:
        try:
            return _whole(summary, done)
        except Halt:
            self._recorder.record(unusable(turn, model, done.usage))
            raise

    def _cut(self, messages: tuple[Message, ...], window: int, room: int) -> int:
        """Where the kept tail begins: never between a call and its result, and with less than
        `room` before it, since a model has to read that to summarize it."""
        cut = self._protected_from(window)
        sizes = self._conversation.token_sizes()
        before = sum(sizes[:cut])
        while cut > 0 and (before >= room or _answers_calls(messages[cut])):
            cut -= 1
            before -= sizes[cut]
        return cut


def _whole(summary: str, done: Done) -> str:
    """The summary, if it is complete. Raises `Halt` before any message is dropped."""
    if done.stop_reason not in _SUMMARIZED:
        problem = f"the summary ended with {done.stop_reason}"
        problem += f" ({done.note})" if done.note else ""
    elif not summary.strip():
        problem = "the summary is empty"
    else:
        return summary
    raise Halt("context_overflow", f"the conversation could not be compacted: {problem}")


def _answers_calls(message: Message) -> bool:
    return any(isinstance(block, ToolResult) for block in message.blocks)
