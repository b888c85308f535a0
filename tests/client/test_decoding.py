"""The pure half: bytes to messages, messages to events."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.client import Ended, PeerError, Problem, TextDelta, Unknown
from batten.client.decoding import LONGEST_LINE, Decoder
from batten.client.events import Event
from batten.client.unfolding import RunUnfolding
from batten.protocols.maestro import outgoing as heard
from batten.protocols.maestro.incoming import ServerRequestResponse
from batten.protocols.maestro.outgoing import encode
from batten.protocols.maestro.vocabulary import ErrorType

Read = list[heard.Message | Unknown | type[PeerError]]
USAGE = heard.UsageTotals(
    input_tokens=1,
    output_tokens=2,
    cache_read_tokens=3,
    cache_write_tokens=4,
    total_tokens=10,
    total_cost_usd=0.5,
    model_id="m",
    provider="p",
)
END = heard.ResponseEnd(
    response_id="resp_1",
    usage=USAGE,
    tools_summary=heard.ToolsSummary(tools_used=(), calls_succeeded=0, calls_failed=0),
    duration_ms=1500,
)
messages = st.one_of(
    st.builds(heard.Status, message=st.text()),
    st.builds(
        heard.ResponseChunk, response_id=st.text(), content=st.text(), is_thinking=st.just(True)
    ),
    st.builds(heard.ToolOutput, call_id=st.text(), content=st.text()),
    st.just(END),
)


def drain(wire: bytes, step: int) -> Read:
    """Everything that is read when the wire arrives `step` bytes at a time."""
    decoder = Decoder()
    found: Read = []
    for start in range(0, len(wire), step):
        try:
            for message, _ in decoder.feed(wire[start : start + step]):
                found.append(message)
        except PeerError:
            return [*found, PeerError]
    return found


@given(st.lists(messages), st.integers(1, 64))
def test_messages_survive_the_wire_however_it_is_cut(sent: list[Any], step: int) -> None:
    assert drain(b"".join(map(encode, sent)), step) == sent


@given(st.lists(messages, min_size=1, max_size=4), st.data())
def test_a_damaged_byte_is_a_peer_error_or_other_data_but_never_a_crash(
    sent: list[Any], data: st.DataObject
) -> None:
    wire = bytearray(b"".join(map(encode, sent)))
    place = data.draw(st.integers(0, len(wire) - 1))
    wire[place] = data.draw(st.integers(0, 255))
    before = bytes(wire[:place]).count(b"\n")
    found = drain(bytes(wire), len(wire))
    assert found[:before] == sent[:before], "what comes before is as it was"
    if found[-1:] != [PeerError]:
        after = len(sent) - before - 1
        assert found[len(found) - after :] == sent[before + 1 :], "and so is what follows"
    assert drain(bytes(wire), 1) == drain(bytes(wire), 7) == found


def test_a_type_that_nobody_knows_passes() -> None:
    (found,) = drain(b'{"type":"sang","song":"la"}\n', 100)
    assert found == Unknown(type="sang", body={"type": "sang", "song": "la"})
    assert unfold(Unknown(type="sang", body={})) == [Unknown(type="sang", body={})]


@pytest.mark.parametrize(
    "line",
    [
        b"Welcome!",
        b"[]",
        b"{}",
        b'{"type":7}',
        b'{"type":"status"}',
        b'{"type":"status","message":"\xff"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_a_peer_error(line: bytes) -> None:
    assert drain(line + b"\n", 1 << 20) == [PeerError]


def test_what_was_said_before_something_broken_is_heard() -> None:
    status = heard.Status(message="fine")
    assert drain(encode(status) + b"oops\n" + encode(status), 1 << 20) == [status, PeerError]


def test_a_line_without_end_is_given_up() -> None:
    decoder = Decoder()
    assert list(decoder.feed(b"x" * LONGEST_LINE)) == []
    with pytest.raises(PeerError, match="more than"):
        list(decoder.feed(b"x"))


def test_unknown_fields_of_a_known_message_are_left_alone() -> None:
    (found,) = drain(b'{"type":"status","message":"m","later":1}\n', 100)
    assert found == heard.Status(message="m")


async def nobody(said: ServerRequestResponse) -> None:
    raise AssertionError(said)


def unfold(*said: heard.Message | Unknown, interrupted: bool = False) -> list[Event]:
    unfolding = RunUnfolding(nobody)
    unfolding.interrupted = interrupted
    found = [unfolding.take(one) for one in said]
    return [event for event in found if event is not None]


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("transient", "model_error"), ("tool", "tool_error"), ("cancelled", "cancelled")],
)
def test_a_worker_without_a_word_for_outcomes_is_understood_by_its_last_error(
    kind: ErrorType, outcome: str
) -> None:
    error = heard.Error(message="why", fatal=False, error_type=kind)
    *_, problem, ended = unfold(heard.ResponseStart(response_id="resp_1"), error, END)
    assert problem == Problem(message="why", kind=kind)
    assert isinstance(ended, Ended)
    assert (ended.result.outcome, ended.result.message) == (outcome, "why")
    assert (ended.result.run_id, ended.result.duration_s) == ("run_1", 1.5)
    assert (ended.result.cost_usd, ended.result.usage.total_tokens) == (0.5, 10)


def test_an_error_that_the_run_got_over_is_not_its_ending() -> None:
    chunk = heard.ResponseChunk(response_id="resp_1", content="fine", is_thinking=False)
    error = heard.Error(message="why", fatal=False, error_type="tool")
    *_, delta, ended = unfold(error, chunk, END)
    assert delta == TextDelta(text="fine")
    assert isinstance(ended, Ended)
    assert (ended.result.outcome, ended.result.text) == ("completed", "fine")
    (last,) = unfold(END, interrupted=True)
    assert isinstance(last, Ended)
    assert last.result.outcome == "cancelled"


def test_what_the_worker_says_of_the_ending_counts() -> None:
    ending = heard.RunEnding(run_id="run_1", outcome="budget", message="spent", cost_usd=None)
    (ended,) = unfold(msgspec.structs.replace(END, ending=ending), interrupted=True)
    assert isinstance(ended, Ended)
    assert (ended.result.outcome, ended.result.cost_usd) == ("budget", None)
