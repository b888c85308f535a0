"""The fold that reads calls: its laws on runs of any shape, and each of its rules by itself."""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from batten.contract import facts as f
from batten.contract.calls import (
    AnswerRetracted,
    CallChanged,
    CallEnd,
    CallEnded,
    CallFold,
    CallProposed,
    CallStarted,
    Change,
    RunEnded,
    TurnAnswered,
)
from batten.contract.facts.assistant import Usage
from tests.contract.call_facts import RandomRun

seeds = st.integers(0, 1 << 32)
DONE = f.RunFinished(final_status="completed", turns=1, cost_micros_usd=0, duration_ms=5)


def run(seed: int) -> list[f.Fact]:
    return list(RandomRun(Random(seed)).facts())


def fold(facts: Iterable[f.Fact], folded: CallFold | None = None) -> list[Change | None]:
    folded = folded or CallFold(16, turns=True)
    return [folded.take(fact, place) for place, fact in enumerate(facts)]


def proposed(call: str = "c", **more: Any) -> f.Fact:
    return f.AssistantToolCallProposed(
        turn_index=1, tool_call_id=call, tool_name="bash", input={"command": "ls"}, **more
    )


def decided(verdict: Any = "allow", by: str = "mode:default") -> f.Fact:
    return f.PolicyToolDecided(
        tool_call_id="c", tool_name="bash", verdict=verdict, reason="r", decided_by=by
    )


def invoked(call: str = "c", **more: Any) -> f.Fact:
    return f.ToolInvoked(tool_call_id=call, tool_name="bash", kind="shell", turn_index=1, **more)


def ended(type_: type[f.ToolEnded] = f.ToolCompleted, call: str = "c", **more: Any) -> f.Fact:
    return type_(tool_call_id=call, tool_name="bash", kind="shell", duration_ms=3, **more)


def asked(**more: Any) -> f.Fact:
    return f.ApprovalRequested(
        approval_id="a", tool_call_id="c", kind="bash", summary="s", policy_reason="p", **more
    )


def closed_by(change: Change | None) -> list[str]:
    """The calls that a change ends."""
    match change:
        case CallEnded(call):
            return [call.id]
        case AnswerRetracted(calls=calls) | RunEnded(calls=calls):
            return [call.id for call in calls]
        case CallProposed(replaced=replaced) if replaced is not None:
            return [replaced.id]
        case _:
            return []


@given(seeds, st.data())
def test_folding_a_prefix_then_the_rest_equals_folding_all(seed: int, data: st.DataObject) -> None:
    facts = run(seed)
    cut = data.draw(st.integers(0, len(facts)))
    folded, whole = CallFold(16, turns=True), CallFold(16, turns=True)
    in_parts = [folded.take(fact, place) for place, fact in enumerate(facts[:cut])]
    in_parts += [folded.take(fact, cut + place) for place, fact in enumerate(facts[cut:])]
    assert in_parts == fold(facts, whole)
    assert dict(folded.open) == dict(whole.open)


@given(seeds)
def test_each_proposed_call_has_one_ending_for_each_time_it_was_open_once_the_run_is_over(
    seed: int,
) -> None:
    folded = CallFold(1000)
    opened, closed = Counter[str](), Counter[str]()
    for place, fact in enumerate(run(seed)):
        before = set(folded.open)
        change = folded.take(fact, place)
        closed.update(closed_by(change))
        opened.update(set(folded.open) - before)
    assert opened == closed
    assert not folded.open


@given(seeds)
def test_arguments_that_ran_are_those_that_the_last_fact_about_them_names(seed: int) -> None:
    folded = CallFold()
    given_: dict[str, object] = {}
    for fact in run(seed):
        change = folded.take(fact)
        if isinstance(fact, f.AssistantToolCallProposed):
            given_[fact.tool_call_id] = fact.input
        if isinstance(fact, f.ToolInvoked) and fact.attempt is UNSET:
            assert isinstance(change, CallStarted)
            wanted = given_[fact.tool_call_id] if fact.input is UNSET else fact.input
            assert change.call.input == wanted


@given(seeds, st.data())
def test_no_order_of_facts_is_an_error(seed: int, data: st.DataObject) -> None:
    facts = run(seed)
    shuffled = data.draw(st.permutations(facts))
    thinned = [fact for fact in shuffled if data.draw(st.booleans())]
    fold(thinned)
    folded = CallFold(16)
    fold([*thinned, DONE], folded)
    assert not folded.open


@given(seeds, st.data())
def test_facts_of_other_kinds_change_nothing(seed: int, data: st.DataObject) -> None:
    facts = run(seed)
    foreign = f.Unknown(type="tool.polished", data={"tool_call_id": "call_1"})
    place = data.draw(st.integers(0, len(facts)))
    folded = CallFold()
    changes = [folded.take(fact) for fact in (*facts[:place], foreign, *facts[place:])]
    assert changes.pop(place) is None
    assert changes == [*map(CallFold().take, facts)]


def test_ended_calls_are_forgotten_beyond_those_that_are_kept() -> None:
    folded = CallFold(3)
    for number in range(1000):
        call = f"c{number}"
        fold([proposed(call), invoked(call), ended(call=call, output="x" * 1000)], folded)
    assert [number for number in range(1000) if folded.get(f"c{number}")] == [997, 998, 999]


def test_an_answered_question_is_forgotten_and_its_call_knows_the_answer() -> None:
    folded = CallFold()
    fold([proposed(), decided("ask"), asked(input={"command": "ls -l"})], folded)
    yes = f.ApprovalResolved(approval_id="a", decision="approved", by="me", comment="")
    change = folded.take(yes)
    assert isinstance(change, CallChanged)
    assert (change.call.answer, change.call.input) == ("approved", {"command": "ls -l"})
    assert folded.take(yes) is None


def test_a_call_runs_with_the_proposed_arguments_if_its_beginning_names_no_others() -> None:
    started = fold([proposed(), asked(input={"command": "rm"}), invoked()])[-1]
    assert isinstance(started, CallStarted)
    assert started.call.input == {"command": "ls"}


def test_a_call_that_is_tried_again_is_open_again_without_its_first_verdict() -> None:
    failed = [proposed(), decided(by="rule:a"), asked(), invoked(), ended(f.ToolFailed)]
    changes = fold([*failed, decided(by="resolver:me"), invoked(attempt=2), ended(output="done")])
    again, started, over = changes[-3:]
    assert isinstance(again, CallChanged)
    assert (again.call.decided_by, again.call.approval_id, again.call.end) == (
        "resolver:me",
        "",
        None,
    )
    assert isinstance(started, CallStarted)
    assert (started.call.attempt, started.call.sequence) == (2, 0)
    assert isinstance(over, CallEnded)
    assert over.end == CallEnd("completed", text="done", duration_ms=3)


def test_a_retry_of_a_call_that_is_not_kept_is_a_call_without_a_proposal() -> None:
    changes = fold([proposed(), invoked(), ended(f.ToolFailed), invoked(attempt=2)], CallFold())
    started = changes[-1]
    assert isinstance(started, CallStarted)
    assert (started.call.input, started.call.sequence, started.call.attempt) == (None, -1, 2)


def test_a_retraction_voids_the_calls_and_the_text_of_its_answer_and_no_others() -> None:
    def answered(text: str) -> list[f.Fact]:
        return [f.AssistantTextComplete(turn_index=1, block_index=0, text=text)]

    message = f.AssistantMessageComplete(
        turn_index=1,
        model="m",
        provider="p",
        blocks=[],
        usage=Usage(),
        stop_reason="tool_use",
        cost_micros_usd=None,
        price_as_of=None,
        duration_ms=1,
        time_to_first_token_ms=None,
    )
    folded = CallFold(turns=True)
    fold([proposed("old"), message, *answered("half"), proposed("void")], folded)
    retracted = folded.take(
        f.AssistantRetracted(turn_index=1, reason="broke off", tool_call_ids=["void"])
    )
    assert isinstance(retracted, AnswerRetracted)
    assert [call.id for call in retracted.calls] == ["void"]
    assert retracted.calls[0].end == CallEnd("retracted", "broke off")
    change = fold([*answered("whole"), proposed("new"), message], folded)[-1]
    assert isinstance(change, TurnAnswered)
    assert (change.text, [call.id for call in change.calls]) == ("whole", ["new"])
    assert list(folded.open) == ["old", "new"]


def test_an_id_that_is_proposed_again_names_a_new_call() -> None:
    change = fold([proposed(), decided(), proposed()])[-1]
    assert isinstance(change, CallProposed)
    assert change.call.verdict == ""
    assert change.replaced is not None
    assert change.replaced.end == CallEnd("cut_off", "the run ended first")


def test_what_is_open_when_the_run_ends_is_cut_off_and_its_end_is_the_runs() -> None:
    change = fold([proposed("a"), invoked("a"), ended(call="a"), proposed("b"), DONE])[-1]
    assert isinstance(change, RunEnded)
    assert [call.id for call in change.calls] == ["b"]
    assert (change.end.outcome, change.duration_ms) == ("completed", 5)


def test_a_denial_has_its_author_and_the_words_for_the_model() -> None:
    blocked = f.PolicyToolBlocked(
        tool_call_id="c", tool_name="bash", reason="no", policy_id="resolver:me", output="Denied"
    )
    change = fold([proposed(), blocked])[-1]
    assert isinstance(change, CallEnded)
    assert change.end == CallEnd("denied", "no", "Denied", by="resolver:me")
    assert change.end.is_by_answer
    assert change.end.is_error


def test_a_lost_worker_is_a_failure_with_an_unknown_outcome() -> None:
    change = fold([proposed(), invoked(), ended(f.ToolFailed, error_kind="outcome_unknown")])[-1]
    assert isinstance(change, CallEnded)
    assert (change.end.status, change.end.code) == ("failed", "outcome_unknown")
