"""The loop: ask the model, run the tools it calls, until it calls no more.

Limits are checked before the call they limit. Every early stop is a `Halt`. Creating a run,
writing its ending and showing it to clients are elsewhere.
"""

import asyncio
import math
import time
from collections.abc import Callable

import msgspec
from msgspec import UNSET

from batten.agent.call import ModelAnswer, ModelCall
from batten.agent.context import Context
from batten.agent.conversation import Conversation
from batten.agent.deps import RunDeps
from batten.agent.dispatch import Dispatch
from batten.agent.doom import DoomDetector
from batten.agent.halt import Halt, Parked
from batten.agent.hooks.points import HookPoints
from batten.agent.limits import Limits, completed_turn
from batten.agent.live_settings import LiveSettings
from batten.agent.progress import Progress
from batten.agent.settings import RunSettings
from batten.agent.structured import Structured
from batten.contract import facts
from batten.contract.envelope import milliseconds_since
from batten.contract.errors import ProviderError
from batten.contract.identity import current_ids
from batten.contract.ids import new_checkpoint_id
from batten.contract.tracing import current_traceparent, traceparent_of
from batten.journal.recorder import Recorder
from batten.models.contract import WINDOW_FULL, Model, ModelRequest
from batten.models.retry import RetryPolicy
from batten.tools.registry import Toolbox

_GIVEN_UP = frozenset({"refusal", "filtered", "aborted"})
"""Stop reasons after which the message's calls are not run."""
_MOST_BLOCKS = 3
"""How often hooks may keep the agent from answering."""
_CUT_SHORT = "the call was cut short"


class Loop:
    """One run's loop over its conversation."""

    def __init__(
        self,
        deps: RunDeps,
        settings: RunSettings,
        recorder: Recorder,
        conversation: Conversation,
        toolbox: Toolbox,
        system: str,
        progress: Progress,
        live_settings: LiveSettings,
        hooks: HookPoints,
    ) -> None:
        self._deps = deps
        self._settings = settings
        self._recorder = recorder
        self._conversation = conversation
        self._toolbox = toolbox
        self._system = system
        self.progress = progress
        self._hooks = hooks
        self.dispatch = Dispatch(
            deps, recorder, settings, toolbox, live_settings, hooks, progress.todos
        )
        self._limits = Limits(settings, recorder, progress, stops_at_budget=deps.stops_at_budget)
        self._doom = DoomDetector(settings.doom_threshold)
        self._structured = Structured(settings.output_schema)
        self._blind: set[str] = set()
        """Models that take no images and were sent one, as reported."""
        self._ids = current_ids.get()
        self._blocks = 0
        self._hands_over = False
        self._turn_began: float | None = None
        """When the current turn began; None if that was in another process."""
        self._note = ""
        """The provider's explanation of its last stop."""

    def hand_over(self) -> None:
        """Another worker goes on: what is cut short now is done again there, or told as cut."""
        self._hands_over = True
        self.dispatch.cut_by = "the worker that ran it was stopped"

    async def run(self, models: Callable[[], tuple[Model, ...]]) -> str:
        """The final answer. Raises `Halt`, `ProviderError` or `JournalError` otherwise.

        `models` returns the current models: a client may change them between turns. A run claimed
        from a dead worker continues from its last message and makes no model call twice.
        """
        context = Context(
            self._settings,
            self._recorder,
            self._conversation,
            self._limits,
            self._hooks,
            self._deps.open_model,
        )
        if self.progress.answered:
            return self._conversation.said()
        await self._limits.begin()
        if self.progress.message is None:
            await self._turn(context, models())
        while True:
            message = self.progress.message
            assert message is not None
            await self._use_tools(message)
            if not _wants_more(message):
                answer = await self._answer(message)
                if answer is not None:
                    return answer
            await self._turn(context, models())

    async def _turn(self, context: Context, models: tuple[Model, ...]) -> None:
        """Ask the model once; `progress.message` is its message then."""
        self._limits.before_turn(self.progress.turns + 1)
        await context.fit(models[0], self._system, self.progress.turns)
        await self._ask(models)

    async def _use_tools(self, message: facts.AssistantMessageComplete) -> None:
        """Run the message's calls that have not been run, and complete its turn."""
        if self._conversation.open_message is None:
            return
        calls = [] if message.stop_reason in _GIVEN_UP else self._conversation.pending_calls()
        try:
            await self.dispatch.run_all(message.turn_index, calls)
        except Parked:
            raise  # the turn is completed when the run continues
        except BaseException:
            if not self._hands_over:
                await self._complete_turn()
            raise
        await self._complete_turn()
        if calls and self._doom.saw(calls):
            raise Halt("loop", f"Doom loop detected: {self._doom.threshold} iterations")

    async def _ask(self, models: tuple[Model, ...]) -> None:
        turn = self.progress.turns + 1
        estimate = self._conversation.tokens + len(self._system) // 4
        await self._limits.before_call(models[0], estimate)
        self._turn_began = time.monotonic()
        if self._deps.is_traced:
            span = traceparent_of(self._recorder.run_id, self._deps.identity, "turn", turn)
            current_traceparent.set(span)
        current_ids.set({**self._ids, "turn_id": str(turn)})
        self._recorder.record(
            facts.TurnStarted(
                turn_index=turn,
                model=models[0].name,
                provider=models[0].provider,
                input_tokens_estimate=estimate,
            )
        )
        request = ModelRequest(
            model=models[0].name,
            system=self._system,
            messages=self._conversation.messages,
            tools=self._toolbox.specs(),
            max_output_tokens=self._settings.max_output_tokens,
            temperature=self._settings.temperature,
            thinking_tokens=self._settings.thinking_tokens,
        )
        call = ModelCall(
            self._deps,
            self._recorder,
            turn,
            models[0],
            policy=RetryPolicy(max_retries=self._settings.max_retries),
            afford=lambda model: self._limits.before_call(model, estimate),
            record_thinking=self._settings.record_thinking,
        )
        try:
            asked = await call.make(models, request, self._suit)
        except ProviderError as error:
            self._fail_turn(turn, error.code, str(error), error)
            self._observe(None, "other", self._recorder.redactor.text(str(error)))
            raise
        except Halt as halt:
            self._fail_turn(turn, "not_retried", halt.message)
            raise
        except asyncio.CancelledError:
            if self._hands_over:
                call.leave(_CUT_SHORT)
            self._fail_turn(turn, "cut_short", _CUT_SHORT)
            raise
        self._note = asked.done.note
        self._observe(asked, asked.done.stop_reason)

    def _suit(self, request: ModelRequest, model: Model) -> ModelRequest:
        """Adapt the request to a model, and record once what the model lacks for it."""
        missing = self._structured.missing(model)
        if missing is not None:
            self._recorder.record(missing)
        request = self._structured.suit(request, model)
        return self._without_images(request, model) if self._conversation.has_images else request

    def _without_images(self, request: ModelRequest, model: Model) -> ModelRequest:
        """The request with its pictures, or with words for them if the model takes none."""
        from batten.agent.vision import in_words, lacks_images, only_pictures

        if not lacks_images(request, model):
            return only_pictures(request)
        if model.name not in self._blind:
            self._blind.add(model.name)
            missing = facts.ErrorModelCapabilityMissing(
                model=model.name,
                missing_capability="image_input",
                fallback_strategy="image_left_out",
            )
            self._recorder.record(missing)
            if self._deps.alert is not None:
                self._deps.alert(missing)
        return in_words(request)

    def _fail_turn(
        self, turn: int, code: str, message: str, error: ProviderError | None = None
    ) -> None:
        failed = facts.TurnFailed(
            turn_index=turn,
            code=code,
            message=message,
            will_retry=self._hands_over,
            duration_ms=self._turn_ms(),
        )
        if error is not None:
            after = error.retry_after_s
            failed = msgspec.structs.replace(
                failed,
                provider=error.provider or UNSET,
                status=UNSET if error.status is None else error.status,
                answer=UNSET if error.answer is None else error.answer,
                retry_after_ms=UNSET if after is None else math.ceil(after * 1000),
            )
        self._recorder.record(failed)

    def _observe(
        self, asked: ModelAnswer | None, stop_reason: str, error: str | None = None
    ) -> None:
        if self._deps.observer is not None:
            message = None if asked is None else asked.message
            self._deps.observer.observe(message, stop_reason, error)

    async def _complete_turn(self) -> None:
        """Record the turn's totals, also when its tools were interrupted."""
        message = self._conversation.open_message
        assert message is not None
        completed = completed_turn(message, self._turn_ms())
        await self._limits.after_turn(completed, self.dispatch.children_ended)
        self._recorder.record(
            facts.RunCheckpointSaved(
                checkpoint_id=new_checkpoint_id(),
                turn_index=message.turn_index,
                patch_artifact_ids=list(self.progress.patch_artifact_ids) or UNSET,
            )
        )

    def _turn_ms(self) -> int:
        """How long the turn took, its tools and the waits for answers included."""
        if self._turn_began is not None:
            return round((time.monotonic() - self._turn_began) * 1000)
        return milliseconds_since(self.progress.turn_started_at)

    async def _answer(self, message: facts.AssistantMessageComplete) -> str | None:
        """The answer of a turn without further tools; None if the model must try again."""
        note = self._note
        match message.stop_reason:
            case "refusal":
                raise Halt("refused", note or "the model refused to answer")
            case "filtered":
                raise Halt("filtered", note or "the provider's content filter stopped the answer")
            case "aborted":
                aborted = "the provider aborted the answer" + (f": {note}" if note else "")
                raise Halt("model_error", aborted, code="model_aborted")
            case "max_tokens" if note == WINDOW_FULL:
                full = "the answer was cut off: the model's context window is full"
                raise Halt("context_overflow", full)
            case "max_tokens":
                limit = self._settings.max_output_tokens
                cut = f"the answer was cut off at {limit} output tokens"
                raise Halt("model_error", cut, code="model_cut_off")
            case _:
                pass
        answer = self._conversation.said()
        if message.stop_reason == "other" and not answer.strip():
            nothing = f"the model stopped without an answer: {note or 'no reason given'}"
            raise Halt("model_error", nothing, code="model_aborted")
        problem = self._structured.check(answer)
        if problem is not None:
            if self._structured.tries_left() == 0:
                raise Halt("schema_invalid", problem)
            self._recorder.record(
                facts.UserMessage(
                    turn_index=self.progress.turns, text=self._structured.again(problem)
                )
            )
            return None
        if await self._is_kept_going(answer):
            return None
        self._fail_on()
        value = self.progress.structured_output = self._structured.value
        redactor, sealed = self._recorder.redactor.authored, None
        if value is not UNSET and redactor.value(value)[1]:
            sealed = self._recorder.seal(msgspec.json.encode(value), summary="structured output")
        final = facts.AssistantFinalAnswer(
            turn_index=self.progress.turns,
            # Redacted before it is cut: half a secret would not be found.
            summary=redactor.text(answer)[:2000],
            structured_output=value,
            sealed_artifact_id=sealed or UNSET,
        )
        self._recorder.record(final)
        if not answer.strip() and self._deps.alert is not None:
            self._deps.alert(final)
        return answer

    async def _is_kept_going(self, answer: str) -> bool:
        """Whether a hook blocks the answer; its reason goes to the model."""
        turn = self.progress.turns
        heard = await self._hooks.stopping(turn, answer, again=self._blocks > 0)
        if heard.decision != "deny" or self._blocks >= _MOST_BLOCKS:
            return False
        self._blocks += 1
        why = heard.reason or "A hook wants you to go on."
        self._recorder.record(facts.UserMessage(turn_index=turn, text=why))
        return True

    def _fail_on(self) -> None:
        """Raise `Halt` if the run had a failure that `fail_on` names."""
        wanted, progress = self._settings.fail_on, self.progress
        if "denied" in wanted and progress.denied:
            raise Halt("denied", f"not allowed: {', '.join(dict.fromkeys(progress.denied))}")
        if "tool_error" in wanted and progress.tool_errors:
            names = ", ".join(dict.fromkeys(progress.tool_errors))
            raise Halt("tool_error", f"a tool failed: {names}")


def _wants_more(message: facts.AssistantMessageComplete) -> bool:
    """Whether the model waits for results. A scripted end stops even after tool calls."""
    calls = any(block.kind == "tool_call" for block in message.blocks)
    return calls and message.stop_reason not in ("end_turn", *_GIVEN_UP)
