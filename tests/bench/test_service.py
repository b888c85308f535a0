"""The table of the service: each request beside its floors."""

from bench.__main__ import service_table
from bench.rates import Floors


def test_a_request_is_shown_with_its_ratios_and_anything_else_without() -> None:
    table = service_table(
        [
            {"what": "start", "value": 0.34, "unit": "s"},
            {"what": "create", "value": 4000.0, "unit": "/s", "ratio": 0.4, "to_like": 2.0},
        ]
    )
    assert table[2:] == ["| start | 0.34 | s |  |  |", "| create | 4,000 | /s | 0.40 | 2.00 |"]
    assert {line.count("|") for line in table} == {6}


def test_floors_that_were_not_measured_are_not_shown() -> None:
    assert list(Floors(0).rows()) == []
