"""The golden journals: every type occurs, each reads as its fact and writes as the same bytes."""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest

from batten.contract.envelope import decode, encode, payload
from batten.contract.facts import FACTS
from batten.contract.ids import is_ulid, session_stream, to_uuid

from .journals import GOLDEN, LINES, envelopes


def test_every_type_occurs_in_a_golden_journal() -> None:
    assert {decode(line).type for line in LINES} == set(FACTS)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_golden_event_becomes_the_fact_of_its_type(name: str) -> None:
    assert [type(envelope.data) for envelope in envelopes(name)] == [
        FACTS[envelope.type] for envelope in envelopes(name)
    ]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_events_are_written_as_they_were_read(name: str) -> None:
    written = [
        encode(msgspec.structs.replace(envelope, data=payload(envelope.data)))
        for envelope in envelopes(name)
    ]
    assert written == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_journal_is_one_run_without_holes(name: str) -> None:
    journal = envelopes(name)
    assert [envelope.sequence for envelope in journal] == list(range(len(journal)))
    assert len({(event.run_id, event.task_id, event.session_id) for event in journal}) == 1


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_event_ids_and_times_grow(name: str) -> None:
    journal = envelopes(name)
    for before, after in pairwise(journal):
        assert before.event_id < after.event_id
        assert before.occurred_at <= after.occurred_at
    for envelope in journal:
        assert is_ulid(envelope.event_id)
        assert to_uuid(envelope.event_id)[14] == "7"


def test_event_ids_differ_between_all_golden_events() -> None:
    assert Counter(decode(line).event_id for line in LINES).most_common(1)[0][1] == 1


def test_the_stream_of_a_golden_session_has_the_session_s_number() -> None:
    opened = envelopes("session")[0]
    assert isinstance(opened.session_id, str)
    assert opened.run_id == session_stream(opened.session_id)  # type: ignore[arg-type]  # a wire id
