"""The place of notes among facts, however late the facts are shown."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract import facts as f
from batten.contract.facts import Fact
from batten.contract.facts.assistant import MessageBlock, Usage
from batten.contract.notes import Note, ThinkingPiece, ToolInputPiece
from batten.protocols.notes import MOST_HELD, NoteOrder
from batten.protocols.stream_json import FrameOptions, StreamJson

Said = Fact | Note


def thought(turn: int, after: int, text: str = "hm", block: int = 0) -> Note:
    return ThinkingPiece(turn_index=turn, after=after, block_index=block, text=text)


def started(turn: int) -> Fact:
    return f.TurnStarted(turn, "m", "p", 1)


def complete(turn: int) -> Fact:
    blocks = [MessageBlock("text", 0)]
    return f.AssistantMessageComplete(
        turn, "m", "p", blocks, Usage(), "end_turn", None, None, 1, None
    )


def done(turn: int) -> Fact:
    return f.TurnCompleted(turn, 0, 0, 0, 0, 1, 0, "end_turn")


class Telling:
    """What happens in a run, in its order: the model's pieces as notes, the rest as facts."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.said: list[Said] = []

    def run(self) -> None:
        self.said.append(f.RunQueued("agent_loop", "m", "p", "/here", "in_place", None))
        for turn in range(1, self._draw(st.integers(0, 3)) + 1):
            self._turn(turn)
        self.said.append(f.RunFinished("completed", 1, 0, 1))

    def _turn(self, turn: int) -> None:
        self.said.append(started(turn))
        kinds = self._draw(st.lists(st.sampled_from("ntcr"), max_size=8))
        seen = 0
        for number, kind in enumerate(kinds):
            match kind:
                case "n":
                    self.said.append(thought(turn, seen, f"{turn}.{number}", number))
                    continue
                case "t":
                    self.said.append(f.AssistantTextDelta(turn, number, "word"))
                case "c":
                    self.said.append(f.AssistantToolCallProposed(turn, f"c{number}", "tool", {}))
                case _:
                    self.said.append(f.ErrorUpstream("p", 529, "busy", True, 1, 3))
                    continue
            seen += 1
        if self._draw(st.booleans()):
            self.said += [complete(turn), done(turn)]
        else:
            self.said.append(f.TurnFailed(turn, "broken", "it broke", False))


@st.composite
def tellings(draw: st.DrawFn) -> list[list[Said]]:
    """Several runs of one session."""
    runs: list[list[Said]] = []
    for _ in range(draw(st.integers(1, 3))):
        telling = Telling(draw)
        telling.run()
        runs.append(telling.said)
    return runs


def shown(order: NoteOrder, said: list[Said], up_to: Callable[[int], int]) -> list[Said]:
    """What a renderer shows: notes come at once, facts whenever it gets to them, and in order."""
    seen: list[Said] = []
    late: list[Fact] = []

    def show(fact: Fact) -> None:
        seen.extend(order.before(fact))
        seen.append(fact)
        seen.extend(order.after(fact))

    for one in said:
        if isinstance(one, Note):
            seen.extend(order.hold(one))
        else:
            late.append(one)
        for _ in range(up_to(len(late))):
            show(late.pop(0))
    for fact in late:
        show(fact)
    return seen


def told_of(said: list[Said]) -> list[Said]:
    """Only what the place of a note is told by."""
    counted = (f.AssistantTextDelta, f.AssistantToolCallProposed, f.AssistantMessageComplete)
    return [one for one in said if isinstance(one, (Note, f.TurnStarted, f.TurnFailed, *counted))]


@given(st.data(), tellings())
def test_notes_stand_where_they_were_said_however_late_the_facts_are_shown(
    data: st.DataObject, runs: list[list[Said]]
) -> None:
    order = NoteOrder()
    for said in runs:
        seen = shown(order, said, lambda most: data.draw(st.integers(0, most)))
        assert told_of(seen) == told_of(said)
        assert [one for one in seen if isinstance(one, Fact)] == [
            one for one in said if isinstance(one, Fact)
        ]


def test_notes_of_the_next_turn_do_not_come_with_the_end_of_the_last_one() -> None:
    order = NoteOrder()
    assert order.after(started(1)) == []
    assert order.hold(thought(2, 0)) == []
    for fact in (complete(1), done(1)):
        assert order.before(fact) == order.after(fact) == []
    assert order.after(started(2)) == [thought(2, 0)]


def test_notes_of_the_next_run_do_not_come_before_its_turn() -> None:
    order = NoteOrder()
    for fact in (started(1), f.AssistantTextDelta(1, 0, "x"), complete(1), done(1)):
        order.after(fact)
    assert order.before(f.RunFinished("completed", 1, 0, 1)) == []
    assert order.hold(thought(1, 0)) == []
    assert order.after(started(1)) == [thought(1, 0)]


@pytest.mark.parametrize("ending", [f.RunCancelled("operator", "enough"), complete(1)])
def test_what_waits_for_facts_that_never_come_is_shown_at_the_end(ending: Fact) -> None:
    order = NoteOrder()
    order.after(started(1))
    assert order.hold(thought(1, 5)) == []
    assert order.before(ending) == [thought(1, 5)]


def test_what_waits_is_bounded_and_what_is_left_out_is_the_rest_of_a_block() -> None:
    order = NoteOrder()
    piece = "x" * (MOST_HELD // 4)
    for _ in range(7):
        assert order.hold(thought(1, 0, piece)) == []
    assert order.hold(thought(1, 0, "and more")) == [], "a gap would not be seen"
    assert order.after(started(1)) == [thought(1, 0, piece)] * 4
    assert order.hold(thought(1, 0, "the end of it")) == []
    assert order.hold(thought(1, 0, "another block", 1)) == [thought(1, 0, "another block", 1)]


def test_without_room_a_block_is_cut_short() -> None:
    codec = StreamJson("chat_1", FrameOptions(partial_messages=True))
    codec.feed(started(1))
    assert len(codec.note(thought(1, 0, "a"))) == 1
    assert codec.note(thought(1, 0, "b"), room=False) == []
    assert codec.note(thought(1, 0, "c")) == []
    assert len(codec.note(thought(1, 0, "d", 1))) == 1


def test_pieces_are_frames_of_the_block_they_belong_to() -> None:
    codec = StreamJson("chat_1", FrameOptions(partial_messages=True))
    codec.feed(started(1))
    call = ToolInputPiece(
        turn_index=1, after=0, block_index=1, tool_call_id="c1", tool_name="bash", text='{"a'
    )
    frames = codec.note(thought(1, 0, "hm")) + codec.note(call)
    frames += codec.feed(f.AssistantTextDelta(1, 2, "Hello"))
    assert frames == [
        {"type": "content_block_delta", "index": index, "delta": delta}
        for index, delta in enumerate(
            [
                {"type": "thinking_delta", "thinking": "hm"},
                {"type": "input_json_delta", "partial_json": '{"a'},
                {"type": "text_delta", "text": "Hello"},
            ]
        )
    ]


def test_what_an_earlier_run_came_to_is_forgotten_when_the_next_one_is_asked_for() -> None:
    codec = StreamJson("chat_1")
    codec.feed(f.RunFinished("completed", 1, 0, 1))
    assert codec.result()["subtype"] == "success"
    codec.user("and now?")
    assert codec.outcome is None
    assert codec.result()["subtype"] == "error"
