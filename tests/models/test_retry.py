import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from batten.contract.errors import ProviderError
from batten.contract.facts.assistant import Usage
from batten.models.contract import Done, ModelEvent, ModelRequest, TextDelta
from batten.models.faults import fault
from batten.models.registry import open_model
from batten.models.retry import Retrying, RetryPolicy, delay_before, with_retries
from batten.models.router import Rewrote, with_fallbacks
from tests.models.calls import FAST, ask, done, gather
from tests.models.server import Fault, ModelServer, answer, cut, refusal
from tests.models.wire import anthropic_start, anthropic_text_block, anthropic_turn, sse

NAME = "anthropic/claude-sonnet-4-5"
QUICK = RetryPolicy(first_delay_s=0.001)
OVERLOADED = refusal(529, {"error": {"type": "overloaded_error", "message": "full"}})
WELL = answer(anthropic_turn("Hi"))


class Plays:
    """A model that plays prepared turns: events, then an error or the end."""

    provider = "test"
    native_schema = False
    context_tokens = 1000
    price = None

    def __init__(self, name: str, *turns: Sequence[ModelEvent | ProviderError]) -> None:
        self.name = name
        self.asked: list[str] = []
        self._turns = list(turns)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.asked.append(request.model)
        for event in self._turns.pop(0):
            if isinstance(event, ProviderError):
                raise event
            yield event

    async def aclose(self) -> None:
        pass


END = Done("end_turn", Usage())


def down(code: str = "model_overloaded") -> ProviderError:
    return fault("test", code, "down")


async def test_a_call_that_fails_before_it_says_anything_is_tried_again() -> None:
    async with ModelServer([OVERLOADED, [Fault.RESET], WELL]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        events = await gather(with_retries(model, ask(), policy=QUICK, jitter=lambda: 1.0))
        await model.aclose()
    assert events[:2] == [
        Retrying(
            attempt=1,
            max_attempts=3,
            delay_s=0.001,
            code="model_overloaded",
            category="overloaded",
            status=529,
            message="anthropic: answered 529 (overloaded_error): full",
        ),
        Retrying(
            attempt=2,
            max_attempts=3,
            delay_s=0.002,
            code="model_unreachable",
            category="network",
            status=None,
            message=events[1].message,
        ),
    ]
    assert done(events).stop_reason == "end_turn"
    assert len(server.requests) == 3


async def test_attempts_are_bounded() -> None:
    async with ModelServer([OVERLOADED]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        with pytest.raises(ProviderError) as raised:
            await gather(with_retries(model, ask(), policy=QUICK))
        await model.aclose()
    assert raised.value.code == "model_overloaded"
    assert len(server.requests) == 3


async def test_a_wrong_key_or_request_is_not_tried_again() -> None:
    for status in (400, 401, 403, 404):
        async with ModelServer([refusal(status, {"error": {"message": "no"}})]) as server:
            model = open_model(NAME, server.environ(), timeouts=FAST)
            with pytest.raises(ProviderError):
                await gather(with_retries(model, ask(), policy=QUICK))
            await model.aclose()
        assert len(server.requests) == 1


async def test_a_call_that_has_said_something_is_not_tried_again() -> None:
    begun = sse(anthropic_start(), *anthropic_text_block(0, "Hello")[:-1])
    async with ModelServer([cut(begun, Fault.RESET), WELL]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        stream = with_retries(model, ask(), policy=QUICK)
        assert [await anext(stream), await anext(stream)] == [
            TextDelta(0, "Hell"),
            TextDelta(0, "o"),
        ]
        with pytest.raises(ProviderError):
            await anext(stream)
        await model.aclose()
    assert len(server.requests) == 1


async def test_the_provider_says_how_long_to_wait_within_limits() -> None:
    slow = refusal(429, {"error": {"message": "slow"}}, retry_after="3600")
    policy = RetryPolicy(longest_retry_after_s=0.002)
    async with ModelServer([slow, WELL]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        events = await gather(with_retries(model, ask(), policy=policy))
        await model.aclose()
    first = events[0]
    assert isinstance(first, Retrying)
    assert (first.delay_s, first.category, first.status) == (0.002, "rate_limit", 429)


def test_pauses_double_with_jitter_up_to_a_limit() -> None:
    policy = RetryPolicy()
    error = down()
    assert [delay_before(n, error, policy, lambda: 1.0) for n in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert delay_before(1, error, policy, lambda: 0.0) == 0.25
    assert delay_before(50, error, policy, lambda: 1.0) == 30.0
    told = fault("test", "model_rate_limited", "slow", retry_after_s=7)
    assert delay_before(1, told, policy, lambda: 0.0) == 7


async def test_a_pause_is_told_before_it_begins_and_ends_when_cancelled() -> None:
    model = Plays("m", [down()], [END])
    cancelled = asyncio.Event()
    forever = RetryPolicy(first_delay_s=1000, longest_delay_s=1000)
    stream = with_retries(model, ask(), policy=forever, cancelled=cancelled)
    assert isinstance(await anext(stream), Retrying)
    cancelled.set()
    with pytest.raises(ProviderError):
        await anext(stream)
    assert len(model.asked) == 1


async def test_cancelling_the_task_ends_a_pause() -> None:
    model = Plays("m", [down()], [END])
    told = asyncio.Event()

    async def call() -> None:
        async for event in with_retries(model, ask(), policy=RetryPolicy(first_delay_s=1000)):
            if isinstance(event, Retrying):
                told.set()

    task = asyncio.create_task(call())
    await told.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(model.asked) == 1


async def test_the_next_model_answers_when_one_is_unavailable() -> None:
    for code in ("model_overloaded", "model_not_found", "model_quota"):
        first = Plays("big", *[[down(code)]] * 3)
        second = Plays("small", [TextDelta(0, "Hi"), END])
        events = await gather(with_fallbacks([first, second], ask(), policy=QUICK))
        assert [event for event in events if not isinstance(event, Retrying)] == [
            Rewrote("test/big", "test/small", "test: down", code),
            TextDelta(0, "Hi"),
            END,
        ]
        assert set(first.asked) == {"big"}
        assert second.asked == ["small"]


async def test_retries_come_before_fallbacks() -> None:
    first = Plays("big", *[[down()]] * 3)
    second = Plays("small", [END])
    events = await gather(with_fallbacks([first, second], ask(), policy=QUICK))
    assert [type(event) for event in events] == [Retrying, Retrying, Rewrote, Done]


async def test_no_fallback_for_a_wrong_request_nor_after_the_first_word() -> None:
    second = Plays("small", [END])
    for first in (Plays("big", [down("model_auth")]), Plays("big", [TextDelta(0, "x"), down()])):
        with pytest.raises(ProviderError):
            await gather(with_fallbacks([first, second], ask(), policy=QUICK))
    assert second.asked == []


async def test_the_last_models_error_is_the_answer() -> None:
    first = Plays("big", *[[down()]] * 3)
    second = Plays("small", [down("model_auth")])
    with pytest.raises(ProviderError) as raised:
        await gather(with_fallbacks([first, second], ask(), policy=QUICK))
    assert raised.value.code == "model_auth"
