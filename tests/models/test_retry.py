import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from email.utils import formatdate

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
QUICK = RetryPolicy(max_retries=2, first_delay_s=0.001)
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
    assert raised.value.message.endswith("full (after 2 retries)")
    assert len(server.requests) == 3


async def test_ten_retries_are_the_default_and_none_may_be_asked_for() -> None:
    assert RetryPolicy().max_retries == 10
    for retries in (10, 0):
        model = Plays("m", *[[down()]] * (retries + 1))
        policy = RetryPolicy(max_retries=retries, first_delay_s=0, longest_delay_s=0)
        with pytest.raises(ProviderError):
            await gather(with_retries(model, ask(), policy=policy))
        assert len(model.asked) == retries + 1


async def test_a_server_of_another_protocol_is_asked_three_times_at_most() -> None:
    model = Plays("m", *[[down("model_protocol")]] * 3)
    policy = RetryPolicy(first_delay_s=0)
    with pytest.raises(ProviderError):
        await gather(with_retries(model, ask(), policy=policy))
    assert len(model.asked) == 3


async def test_a_wrong_key_or_request_is_not_tried_again() -> None:
    for status in (400, 401, 403, 404):
        async with ModelServer([refusal(status, {"error": {"message": "no"}})]) as server:
            model = open_model(NAME, server.environ(), timeouts=FAST)
            with pytest.raises(ProviderError):
                await gather(with_retries(model, ask(), policy=QUICK))
            await model.aclose()
        assert len(server.requests) == 1


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.CLOSE])
async def test_a_call_that_has_said_something_is_tried_again_and_its_words_are_void(
    fault: Fault,
) -> None:
    begun = sse(anthropic_start(), *anthropic_text_block(0, "Hello")[:-1])
    async with ModelServer([cut(begun, fault), WELL]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        events = await gather(with_retries(model, ask(), policy=QUICK))
        await model.aclose()
    assert events[:2] == [TextDelta(0, "Hell"), TextDelta(0, "o")]
    assert isinstance(events[2], Retrying)
    assert (events[2].begun, events[2].category) == (True, "network")
    assert events[3] == TextDelta(0, "Hi")
    assert done(events).stop_reason == "end_turn"
    assert len(server.requests) == 2


async def test_a_date_in_retry_after_is_a_delay_and_a_past_one_is_none() -> None:
    for seconds, least, most in ((30, 25.0, 30.0), (-3600, 0.0, 0.0)):
        date = formatdate(time.time() + seconds, usegmt=True)
        slow = refusal(429, {"error": {"message": "slow"}}, retry_after=date)
        async with ModelServer([slow]) as server:
            model = open_model(NAME, server.environ(), timeouts=FAST)
            first = await anext(with_retries(model, ask()))
            await model.aclose()
        assert isinstance(first, Retrying)
        assert least <= first.delay_s <= most


@pytest.mark.parametrize("kind", ["insufficient_quota", "invalid_request_error", "odd"])
async def test_429_is_a_rate_limit_whatever_the_body_says(kind: str) -> None:
    slow = refusal(429, {"error": {"type": kind, "message": "slow"}}, retry_after="0")
    async with ModelServer([slow, WELL]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        events = await gather(with_retries(model, ask(), policy=QUICK))
        await model.aclose()
    assert isinstance(events[0], Retrying)
    assert (events[0].category, events[0].status) == ("rate_limit", 429)
    assert len(server.requests) == 2


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
    assert [delay_before(n, error, policy, lambda: 1.0) for n in (7, 8, 5000)] == [30.0, 30.0, 30.0]
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
        retried = " (after 2 retries)" if code == "model_overloaded" else ""
        reason = f"test: down{retried}"
        events = await gather(with_fallbacks([first, second], ask(), policy=QUICK))
        assert [event for event in events if not isinstance(event, Retrying)] == [
            Rewrote("test/big", "test/small", reason, code),
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


async def test_no_fallback_for_a_wrong_request() -> None:
    second = Plays("small", [END])
    wrong = down("model_auth")
    for first in (Plays("big", [wrong]), Plays("big", [TextDelta(0, "x"), wrong])):
        with pytest.raises(ProviderError):
            await gather(with_fallbacks([first, second], ask(), policy=QUICK))
    assert second.asked == []


async def test_a_fallback_voids_the_words_of_the_model_before_it() -> None:
    begun: list[ModelEvent | ProviderError] = [TextDelta(0, "x"), down()]
    first = Plays("big", begun, begun, begun)
    second = Plays("small", [TextDelta(0, "y"), END])
    events = await gather(with_fallbacks([first, second], ask(), policy=QUICK))
    assert events[-3:] == [
        Rewrote("test/big", "test/small", "test: down (after 2 retries)", "model_overloaded", True),
        TextDelta(0, "y"),
        END,
    ]


async def test_a_model_with_a_fallback_is_retried_twice_and_the_last_one_as_often_as_asked() -> (
    None
):
    first, second = Plays("big", *[[down()]] * 3), Plays("small", *[[down()]] * 11)
    policy = RetryPolicy(first_delay_s=0)
    with pytest.raises(ProviderError, match="after 10 retries"):
        await gather(with_fallbacks([first, second], ask(), policy=policy))
    assert (len(first.asked), len(second.asked)) == (3, 11)


async def test_the_last_models_error_is_the_answer() -> None:
    first = Plays("big", *[[down()]] * 3)
    second = Plays("small", [down("model_auth")])
    with pytest.raises(ProviderError) as raised:
        await gather(with_fallbacks([first, second], ask(), policy=QUICK))
    assert raised.value.code == "model_auth"
