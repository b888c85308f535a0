"""The order of a run, checked on the golden journals: what readers may rely on."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET

from batten.contract import facts as f
from batten.contract.facts import Fact
from batten.contract.outcomes import ENDINGS

from .journals import GOLDEN, envelopes

RUNS = [name for name in GOLDEN if name != "session"]
Pick = Callable[[Fact], bool]


def facts(name: str) -> list[Fact]:
    return [envelope.data for envelope in envelopes(name)]


def places(run: list[Fact], pick: Pick) -> list[int]:
    return [place for place, fact in enumerate(run) if pick(fact)]


def of_call(run: list[Fact], call: str, *types: type[Fact]) -> list[Any]:
    return [
        fact
        for fact in run
        if isinstance(fact, types) and getattr(fact, "tool_call_id", None) == call
    ]


def calls(run: list[Fact], type_: type[Fact]) -> list[str]:
    return [getattr(fact, "tool_call_id", "") for fact in run if isinstance(fact, type_)]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_begins_with_its_queue_its_start_and_the_message(name: str) -> None:
    run = facts(name)
    if isinstance(run[0], f.RunResumedFromEvent):
        run = run[1:]
    assert [type(fact) for fact in run[:2]] == [f.RunQueued, f.RunStarted]
    first_turn = places(run, lambda fact: isinstance(fact, f.TurnStarted))[0]
    messages = places(run, lambda fact: isinstance(fact, f.UserMessage | f.UserAttachment))
    assert messages
    assert all(place < first_turn for place in messages)


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_says_so_at_sequence_zero_only(name: str) -> None:
    marks = places(facts(name), lambda fact: isinstance(fact, f.RunResumedFromEvent))
    assert marks == ([0] if name == "resumed" else [])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_one_ending_and_only_guests_write_after_it(name: str) -> None:
    run = facts(name)
    (ending,) = places(run, lambda fact: fact.type in f.TERMINAL)
    # `tool.file.*` is another writer's; its revert comes from an operator too.
    entitled = f.GUEST | {f.ToolFileReverted.TYPE}
    assert {fact.type for fact in run[ending + 1 :]} <= entitled


@pytest.mark.parametrize("name", RUNS)
def test_the_ending_is_a_row_of_the_table(name: str) -> None:
    (ending,) = [fact for fact in facts(name) if fact.type in f.TERMINAL]
    match ending:
        case f.RunFinished():
            row = ENDINGS["completed"]
        case f.RunFailed(outcome=str(outcome), code=code, retriable=retriable):
            row = ENDINGS[outcome]
            assert (row.code, row.retriable) == (code, retriable)
        case f.RunCancelled(outcome=str(outcome)):
            row = ENDINGS[outcome]
        case _:
            pytest.fail(f"{ending} names no outcome")
    assert row.terminal == ending.type


@pytest.mark.parametrize("name", RUNS)
def test_turns_count_from_one_and_each_is_completed_or_tried_again(name: str) -> None:
    open_turn, next_turn = None, 1
    for fact in facts(name):
        match fact:
            case f.TurnStarted(turn_index=index):
                assert (open_turn, index) == (None, next_turn)
                open_turn = index
            case f.TurnFailed(turn_index=index, will_retry=True):
                assert index == open_turn
                open_turn = None
            case f.TurnCompleted(turn_index=index):
                assert index == open_turn
                open_turn, next_turn = None, next_turn + 1
            case _:
                if open_turn is not None:
                    assert getattr(fact, "turn_index", open_turn) == open_turn
    assert open_turn is None


@pytest.mark.parametrize("name", RUNS)
def test_the_cost_follows_each_completed_turn(name: str) -> None:
    run = facts(name)
    turns = places(run, lambda fact: isinstance(fact, f.TurnCompleted))
    ticks = places(run, lambda fact: isinstance(fact, f.CostTick))
    assert ticks == [place + 1 for place in turns]


@pytest.mark.parametrize("name", RUNS)
def test_a_completed_turn_has_the_totals_of_its_message(name: str) -> None:
    run = facts(name)
    messages = [fact for fact in run if isinstance(fact, f.AssistantMessageComplete)]
    turns = [fact for fact in run if isinstance(fact, f.TurnCompleted)]
    for message, turn in zip(messages, turns, strict=True):
        assert (message.turn_index, message.stop_reason) == (turn.turn_index, turn.stop_reason)
        assert message.usage.input_tokens == turn.input_tokens
        assert message.usage.output_tokens == turn.output_tokens
        assert message.usage.cache_read_tokens == turn.cached_input_tokens
        assert (message.cost_micros_usd or 0) == turn.cost_micros_usd


@pytest.mark.parametrize("name", RUNS)
def test_a_message_names_the_calls_proposed_before_it(name: str) -> None:
    proposed: list[str] = []
    for fact in facts(name):
        match fact:
            case f.AssistantToolCallProposed(tool_call_id=call):
                proposed.append(call)
            case f.AssistantMessageComplete(blocks=blocks):
                assert [b.tool_call_id for b in blocks if b.kind == "tool_call"] == proposed
                assert [block.block_index for block in blocks] == list(range(len(blocks)))
                proposed = []
            case f.ToolInvoked() | f.PolicyToolDecided() | f.PolicyToolBlocked():
                assert proposed == []
            case _:
                pass


@pytest.mark.parametrize("name", RUNS)
def test_every_proposed_call_is_decided_and_then_blocked_or_ended_once(name: str) -> None:
    run = facts(name)
    ended = (f.ToolCompleted, f.ToolFailed, f.ToolCancelled, f.ToolTimedOut)
    for call in calls(run, f.AssistantToolCallProposed):
        blocked = of_call(run, call, f.PolicyToolBlocked)
        invoked = of_call(run, call, f.ToolInvoked)
        endings = of_call(run, call, *ended)
        assert of_call(run, call, f.PolicyToolDecided)
        assert len(blocked) + len(endings) == 1
        assert [fact.attempt for fact in invoked] == [fact.attempt for fact in endings]
        assert [(i.tool_name, i.kind) for i in invoked] == [(e.tool_name, e.kind) for e in endings]


@pytest.mark.parametrize("name", RUNS)
def test_a_tool_begins_only_after_an_allowing_verdict_and_no_request_to_cancel(name: str) -> None:
    verdicts: dict[str, str] = {}
    cancelled = False
    for fact in facts(name):
        match fact:
            case f.PolicyToolDecided(tool_call_id=call, verdict=verdict):
                verdicts[call] = verdict
            case f.RunCancelRequested():
                cancelled = True
            case f.ToolInvoked(tool_call_id=call):
                assert verdicts[call] == "allow"
                assert not cancelled
            case _:
                pass


@pytest.mark.parametrize("name", RUNS)
def test_what_a_tool_reports_lies_between_its_invocation_and_its_end(name: str) -> None:
    active: set[str] = set()
    for fact in facts(name):
        call: str | None = getattr(fact, "tool_call_id", None)
        if call is None or not fact.type.startswith("tool."):
            continue
        if isinstance(fact, f.ToolInvoked):
            active.add(call)
        assert call in active
        if fact.type in f.TOOL_TERMINAL:
            active.remove(call)
    assert active == set()


@pytest.mark.parametrize("name", RUNS)
def test_a_complete_text_is_its_deltas_joined(name: str) -> None:
    deltas: dict[tuple[str, int, int], str] = {}
    for fact in facts(name):
        match fact:
            case f.AssistantTextDelta() | f.AssistantThinkingDelta():
                block = (fact.type.split("_")[0], fact.turn_index, fact.block_index)
                deltas[block] = deltas.get(block, "") + fact.delta
            case f.AssistantTextComplete() | f.AssistantThinkingComplete():
                block = (fact.type.split("_")[0], fact.turn_index, fact.block_index)
                assert deltas.pop(block) == fact.text
            case _:
                pass
    assert deltas == {}


@pytest.mark.parametrize("name", RUNS)
def test_offsets_of_output_count_the_bytes_before_it(name: str) -> None:
    run = facts(name)
    for call in calls(run, f.ToolShellCommand):
        written = {"stdout": 0, "stderr": 0}
        for chunk in of_call(run, call, f.ToolShellOutputChunk):
            assert chunk.byte_offset == written[chunk.stream]
            written[chunk.stream] += len(chunk.data.encode())
        for exited in of_call(run, call, f.ToolShellExited):
            assert {"stdout": exited.stdout_bytes, "stderr": exited.stderr_bytes} == written


@pytest.mark.parametrize("name", RUNS)
def test_every_question_is_closed_once(name: str) -> None:
    run = facts(name)
    opened = [fact.approval_id for fact in run if isinstance(fact, f.ApprovalRequested)]
    opened += [fact.request_id for fact in run if isinstance(fact, f.RequestOpened)]
    closed = [fact.approval_id for fact in run if isinstance(fact, f.ApprovalResolved)]
    closed += [fact.approval_id for fact in run if isinstance(fact, f.ApprovalTimedOut)]
    closed += [fact.request_id for fact in run if isinstance(fact, f.RequestClosed)]
    assert sorted(opened) == sorted(closed)


@pytest.mark.parametrize("name", RUNS)
def test_an_artifact_is_created_before_a_fact_names_it(name: str) -> None:
    created: set[str] = set()
    for fact in facts(name):
        if isinstance(fact, f.ArtifactCreated):
            created.add(fact.artifact_id)
        assert named_artifacts(fact) <= created


def named_artifacts(fact: Fact) -> set[str]:
    named: set[str] = set()
    for field in fact.__struct_fields__:
        value = getattr(fact, field)
        if value is UNSET:
            continue
        if field.endswith("artifact_id"):
            named.add(value)
        elif field.endswith("artifact_ids"):
            named.update(value)
    return named


@pytest.mark.parametrize("name", RUNS)
def test_an_event_named_by_a_fact_came_before_it(name: str) -> None:
    seen: set[str] = set()
    for envelope in envelopes(name):
        match envelope.data:
            case f.ArtifactCreated(created_by_event_id=str(cause)):
                assert cause in seen
            case f.ArtifactReferenced(by_event_id=cause):
                assert cause in seen
            case _:
                pass
        seen.add(envelope.event_id)


def test_a_takeover_starts_the_run_again_and_leaves_no_tool_open() -> None:
    run = facts("resumed")
    (gap,) = places(run, lambda fact: isinstance(fact, f.GapRunDisconnected))
    mark, started, failed = run[gap : gap + 3]
    assert isinstance(mark, f.GapRunDisconnected)
    assert mark.since_sequence == gap - 1
    assert isinstance(started, f.RunStarted)
    assert started.worker_id != mark.prior_worker_id
    assert isinstance(failed, f.ToolFailed)
    assert failed.error_kind == "outcome_unknown"
