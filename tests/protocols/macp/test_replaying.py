"""The pace of a timed replay, and the descriptor of one."""

import pytest

from batten.protocols.macp.replaying import delay_ms, replay_descriptor
from batten.protocols.macp.requests import ReplayRequest
from batten.protocols.macp.streams import start_after
from tests.protocols.macp.making import at


@pytest.mark.parametrize(
    ("seconds", "speed", "expected"),
    [(1, 1.0, 1000), (1, 4.0, 250), (1, 0.1, 2000), (60, 1.0, 2000), (60, 100.0, 600), (-5, 1, 0)],
)
def test_a_replay_waits_the_distance_by_its_speed_up_to_the_cap(
    seconds: int, speed: float, expected: int
) -> None:
    assert delay_ms(at(100), at(100 + seconds), speed, 2000) == expected


def test_the_address_of_a_replay_carries_all_it_was_asked_for() -> None:
    made = replay_descriptor("r", ReplayRequest(mode="step", speed=2, from_seq=3, to_seq=9))
    assert made.stream_url == "/runs/r/replay/stream?mode=step&speed=2&fromSeq=3&toSeq=9"
    exact = replay_descriptor("r", ReplayRequest(speed=1234567.25 / 2))
    assert exact.stream_url == "/runs/r/replay/stream?mode=timed&speed=617283.625"


@pytest.mark.parametrize(
    ("query", "header", "expected"),
    [
        (None, None, None),
        (0, None, 0),
        (None, "7", 7),
        (0, "7", 7),
        (9, "7", 9),
        (None, "seven", None),
        (3, "-1", 3),
        (None, "٣", None),
        (None, "9" * 40, None),
    ],
)
def test_a_reader_goes_on_after_the_later_of_its_cursors(
    query: int | None, header: str | None, expected: int | None
) -> None:
    assert start_after(query, header) == expected
