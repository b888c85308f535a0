"""How many equal turns are a loop, and which turns are equal."""

from batten.agent.doom import DoomDetector
from batten.contract.conversation import ToolCall


def calls(*commands: str) -> list[ToolCall]:
    return [ToolCall(id=f"c{n}", name="bash", input={"c": one}) for n, one in enumerate(commands)]


def loops(*turns: list[ToolCall]) -> list[bool]:
    detector = DoomDetector(3)
    return [detector.saw(turn) for turn in turns]


def test_three_equal_turns_in_a_row_are_a_loop_whatever_came_before() -> None:
    again, other = calls("a"), calls("b")
    assert loops(again, again, other, again, again, again) == [False] * 5 + [True]


def test_the_same_calls_in_another_order_are_not_a_loop() -> None:
    assert not any(loops(calls("a", "b"), calls("b", "a"), calls("a", "b")))


def test_calls_that_cannot_be_read_are_compared_as_they_were_written() -> None:
    broken = [ToolCall(id="c", name="bash", input={}, raw='{"command": ec')]
    other = [ToolCall(id="c", name="bash", input={}, raw='{"command": ')]
    assert loops(broken, broken, broken) == [False, False, True]
    assert not any(loops(broken, other, broken))
