"""The measures of the protocols: each is greeted, and shows as many deltas as there are."""

from bench.__main__ import protocol_table

from bench import headless


def test_every_protocol_is_greeted_and_streams_all_its_deltas() -> None:
    rows = headless.rows(rounds=1, deltas=200)
    assert [row["protocol"] for row in rows] == ["heddle", "maestro", "acp"]
    table = protocol_table(rows)
    assert [line.count("|") for line in table] == [7] * 5
