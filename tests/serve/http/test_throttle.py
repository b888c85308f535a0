"""The rate of each client of the control plane, and what it costs in memory."""

import pytest

from batten.serve.http.errors import HttpError
from batten.serve.http.limits import Throttle


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def left(headers: tuple[tuple[bytes, bytes], ...]) -> tuple[bytes, bytes, bytes]:
    told = dict(headers)
    return (
        told[b"x-ratelimit-limit"],
        told[b"x-ratelimit-remaining"],
        told[b"x-ratelimit-reset"],
    )


def test_headers_count_down_and_the_window_begins_with_the_first_request() -> None:
    clock = Clock()
    throttle = Throttle(2, 60, clock=clock)
    assert left(throttle.take("a")) == (b"2", b"1", b"60")
    clock.now += 30.5
    assert left(throttle.take("a")) == (b"2", b"0", b"30")
    with pytest.raises(HttpError) as refused:
        throttle.take("a")
    assert refused.value.headers == (("retry-after", "30"),)
    assert refused.value.status == 429
    assert left(throttle.take("b")) == (b"2", b"1", b"60")
    clock.now += 29.5
    assert left(throttle.take("a")) == (b"2", b"1", b"60")


def test_a_limit_of_0_counts_nobody() -> None:
    throttle = Throttle(0, 60)
    assert throttle.take("a") == ()
    assert len(throttle) == 0


def test_any_number_of_clients_takes_bounded_memory() -> None:
    clock = Clock()
    throttle = Throttle(1, 60, most=100, clock=clock)
    for number in range(1000):
        throttle.take(str(number))
    assert len(throttle) == 100
    with pytest.raises(HttpError):
        throttle.take("999")
    clock.now += 60
    throttle.take("new")
    assert len(throttle) == 1
