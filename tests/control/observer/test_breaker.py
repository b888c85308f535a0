"""The circuit breaker, on a clock that the tests move."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from batten.control.observer.breaker import Breaker, BreakerOpen
from batten.control.observer.contract import (
    NOT_FOUND,
    PERMISSION_DENIED,
    RuntimeClient,
    RuntimeFault,
    unavailable,
)
from batten.control.observer.link import RuntimeLink
from batten.control.observer.managing import RuntimeElsewhere
from batten.serve.grpc.client import Dialling, GrpcRuntime
from batten.serve.grpc.credentials import FixedCredentials

PATIENCE_S = 20


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(5, 30.0, clock)
    for _ in range(5):
        breaker.admit()
        breaker.failed()
    return breaker


def reasons(breaker: Breaker) -> list[tuple[str, str]]:
    return [(one.state, one.reason) for one in breaker.history]


def test_it_opens_after_consecutive_failures_only() -> None:
    breaker = Breaker(3, 30.0, Clock())
    for outcome in (breaker.failed, breaker.failed, breaker.succeeded, breaker.failed):
        breaker.admit()
        outcome()
    assert breaker.state == "CLOSED"
    assert (breaker.successes, breaker.failures) == (1, 3)


def test_d7_while_open_calls_fail_at_once_with_their_own_code() -> None:
    breaker = opened(Clock())
    with pytest.raises(BreakerOpen, match="5 times in a row") as refused:
        breaker.admit()
    assert refused.value.code == "CIRCUIT_BREAKER_OPEN"


def test_a_successful_probe_closes_it() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 30.5
    breaker.admit()
    breaker.succeeded()
    assert reasons(breaker) == [
        ("CLOSED", "initial"),
        ("OPEN", "5 consecutive failures"),
        ("HALF_OPEN", "reset timeout after 30500ms"),
        ("CLOSED", "half-open probe succeeded"),
    ]


def test_a_failed_probe_opens_it_at_once_and_the_count_goes_on() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 30
    assert breaker.state == "HALF_OPEN"
    breaker.admit()
    breaker.failed()
    assert reasons(breaker)[-1] == ("OPEN", "6 consecutive failures")
    with pytest.raises(BreakerOpen):
        breaker.admit()


def test_half_open_one_probe_is_let_through_at_a_time() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 30
    breaker.admit()
    with pytest.raises(BreakerOpen, match="probe"):
        breaker.admit()
    breaker.passed()  # it proved nothing
    assert breaker.state == "HALF_OPEN"
    breaker.admit()


def test_a_manual_reset_is_told_only_if_it_changes_something() -> None:
    breaker = opened(Clock())
    breaker.reset()
    breaker.reset()
    assert reasons(breaker)[-2:] == [("OPEN", "5 consecutive failures"), ("CLOSED", "manual reset")]


def test_two_hundred_changes_are_kept() -> None:
    clock = Clock()
    breaker = opened(clock)
    for _ in range(200):
        clock.now += 30
        assert breaker.state == "HALF_OPEN"
        breaker.admit()
        breaker.failed()
    assert len(breaker.history) == 200
    assert breaker.history[-1].reason == "205 consecutive failures"


@pytest.mark.parametrize("status", [NOT_FOUND, PERMISSION_DENIED])
async def test_answers_about_the_request_count_neither_way(status: int) -> None:
    link = RuntimeLink(lambda: "127.0.0.1:1", _client, Breaker(2, 30.0), "rust")
    for fault in (unavailable("down"), RuntimeFault(status, "no"), RuntimeFault(status, "no")):
        with pytest.raises(RuntimeFault):
            await link.call("GetSession", _failing(fault))
    assert reasons(link.breaker) == [("CLOSED", "initial")]
    with pytest.raises(RuntimeFault):
        await link.call("GetSession", _failing(unavailable("down")))
    assert reasons(link.breaker)[-1] == ("OPEN", "2 consecutive failures")
    await link.close()


async def test_calls_are_timed_by_name_and_success() -> None:
    link = RuntimeLink(lambda: "127.0.0.1:1", _client, Breaker(2, 30.0), "rust")
    told: list[tuple[str, bool]] = []
    link.timed = lambda name, ok, seconds: told.append((name, ok))
    await link.call("ListModes", lambda client: asyncio.sleep(0))
    with pytest.raises(RuntimeFault):
        await link.call("ListRoots", _failing(unavailable("down")))
    assert told == [("ListModes", True), ("ListRoots", False)]
    await link.close()


def _client(address: str) -> GrpcRuntime:
    return GrpcRuntime(address, FixedCredentials(), Dialling(timeout_s=1))


def _failing(fault: RuntimeFault) -> Callable[[RuntimeClient], Awaitable[None]]:
    async def ask(client: RuntimeClient) -> None:
        raise fault

    return ask


async def test_a_runtime_that_hangs_is_noticed_by_probes_long_before_a_call_gives_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:  # it takes connections and says nothing
        address = f"127.0.0.1:{hung.getsockname()[1]}"
        dialled = partial(
            GrpcRuntime, credentials=FixedCredentials(), dialling=Dialling(timeout_s=600)
        )
        link = RuntimeLink(lambda: address, dialled, Breaker(2, 30.0), "rust", probe_s=0.1)
        async with asyncio.timeout(PATIENCE_S):
            told = await link.health()
            with pytest.raises(RuntimeFault, match=r"within 0\.1 s"):
                await RuntimeElsewhere(link).profile()
        assert (told.ok, told.runtime_kind) == (False, "rust")
        assert told.detail == f"no answer from {address} within 0.1 s"
        assert link.breaker.state == "OPEN"
        await link.close()
