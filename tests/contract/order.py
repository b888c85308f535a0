"""The order of a run as rules that can be checked on any journal: what readers may rely on.

A run that ended early may break off in its last turn: in the middle of a text, with calls
that were proposed and never begun. What was begun is always brought to an end.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jsonschema_rs
import msgspec
from msgspec import UNSET
from scripts.event_schemas import payload_schema

from batten.contract import facts as f
from batten.contract.envelope import Envelope, payload
from batten.contract.facts import Fact
from batten.contract.outcomes import ENDINGS
from batten.protocols.macp.errors import STATUSES

Run = Sequence[Envelope]
PAYLOADS = {type_: jsonschema_rs.validator_for(payload_schema(type_)) for type_ in f.FACTS}
ENDED = (f.ToolCompleted, f.ToolFailed, f.ToolCancelled, f.ToolTimedOut)


def facts_of(run: Run) -> list[Fact]:
    return [envelope.data for envelope in run]


def places(facts: Sequence[Fact], pick: Callable[[Fact], bool]) -> list[int]:
    return [place for place, fact in enumerate(facts) if pick(fact)]


def of_call(facts: Sequence[Fact], call: str, *types: type[Fact]) -> list[Any]:
    return [
        fact
        for fact in facts
        if isinstance(fact, types) and getattr(fact, "tool_call_id", None) == call
    ]


def calls(facts: Sequence[Fact], type_: type[Fact]) -> list[str]:
    return [getattr(fact, "tool_call_id", "") for fact in facts if isinstance(fact, type_)]


def is_finished(facts: Sequence[Fact]) -> bool:
    return any(isinstance(fact, f.RunFinished) for fact in facts)


def sequences_have_no_gap(run: Run) -> None:
    assert [envelope.sequence for envelope in run] == list(range(len(run)))
    assert len({envelope.event_id for envelope in run}) == len(run)


def a_run_begins_with_its_queue_its_start_and_the_message(run: Run) -> None:
    facts = facts_of(run)
    if isinstance(facts[0], f.RunResumedFromEvent):
        facts = facts[1:]
    assert isinstance(facts[0], f.RunQueued)
    if not isinstance(facts[1], f.RunStarted):  # queued by one process and claimed by another
        assert next(fact for fact in facts[1:] if fact.type.startswith(("run.", "turn."))).type == (
            "run.started"
        )
    turns = places(facts, lambda fact: isinstance(fact, f.TurnStarted)) or [len(facts)]
    messages = places(facts, lambda fact: isinstance(fact, f.UserMessage))
    assert messages[0] < turns[0]


def a_resumed_run_says_so_at_sequence_zero_only(run: Run) -> None:
    marks = places(facts_of(run), lambda fact: isinstance(fact, f.RunResumedFromEvent))
    assert marks in ([], [0])


def a_run_has_one_ending_and_only_guests_write_after_it(run: Run) -> None:
    facts = facts_of(run)
    (ending,) = places(facts, lambda fact: fact.type in f.TERMINAL)
    # `tool.file.*` is another writer's; its revert comes from an operator too.
    entitled = f.GUEST | {f.ToolFileReverted.TYPE}
    assert {fact.type for fact in facts[ending + 1 :]} <= entitled


def the_ending_is_a_row_of_the_table(run: Run) -> None:
    (ending,) = [fact for fact in facts_of(run) if fact.type in f.TERMINAL]
    match ending:
        case f.RunFinished():
            row = ENDINGS["completed"]
        case f.RunFailed(outcome=str(outcome), code=code, retriable=retriable):
            row = ENDINGS[outcome]
            if code in STATUSES:  # a session ended, with a code of its protocol
                pass
            elif outcome in ("model_error", "context_overflow") and code != row.code:
                # The fault's own code, which must not be that of another row.
                assert code not in {ending.code for ending in ENDINGS.values()}
            else:
                assert (row.code, row.retriable) == (code, retriable)
        case f.RunCancelled(outcome=str(outcome)):
            row = ENDINGS[outcome]
        case _:
            raise AssertionError(f"{ending} names no outcome")
    assert row.terminal == ending.type


def turns_count_from_one_and_each_is_completed_or_failed(run: Run) -> None:
    facts = facts_of(run)
    open_turn, next_turn = None, 1
    for fact in facts:
        match fact:
            case f.TurnStarted(turn_index=index):
                assert (open_turn, index) == (None, next_turn)
                open_turn = index
            case f.TurnFailed(turn_index=index):
                assert index == open_turn
                open_turn = None
            case f.TurnCompleted(turn_index=index):
                assert index == open_turn
                open_turn, next_turn = None, next_turn + 1
            case _:
                if open_turn is not None:
                    assert getattr(fact, "turn_index", open_turn) == open_turn
    lost = any(isinstance(fact, f.GapRunDisconnected) for fact in facts)
    assert open_turn is None or (lost and not is_finished(facts))


def the_cost_follows_each_completed_turn(run: Run) -> None:
    facts = facts_of(run)
    turns = places(facts, lambda fact: isinstance(fact, f.TurnCompleted))
    ticks = places(facts, lambda fact: isinstance(fact, f.CostTick))
    assert ticks == [place + 1 for place in turns]


def a_completed_turn_has_the_totals_of_its_message(run: Run) -> None:
    message: f.AssistantMessageComplete | None = None
    for fact in facts_of(run):
        if isinstance(fact, f.AssistantMessageComplete):
            message = fact
        if isinstance(fact, f.TurnCompleted):
            assert message is not None
            assert (message.turn_index, message.stop_reason) == (fact.turn_index, fact.stop_reason)
            assert message.usage.input_tokens == fact.input_tokens
            assert message.usage.output_tokens == fact.output_tokens
            assert message.usage.cache_read_tokens == fact.cached_input_tokens
            assert (message.cost_micros_usd or 0) == fact.cost_micros_usd
            assert message.duration_ms <= fact.duration_ms


def a_message_names_the_calls_proposed_before_it(run: Run) -> None:
    proposed: list[str] = []
    for fact in facts_of(run):
        match fact:
            case f.AssistantToolCallProposed(tool_call_id=call):
                proposed.append(call)
            case f.AssistantMessageComplete(blocks=blocks):
                assert [b.tool_call_id for b in blocks if b.kind == "tool_call"] == proposed
                assert [block.block_index for block in blocks] == list(range(len(blocks)))
                proposed = []
            case f.AssistantRetracted(tool_call_ids=void):
                assert void == proposed
                proposed = []
            case f.TurnFailed():
                proposed = []
            case f.ToolInvoked() | f.PolicyToolDecided() | f.PolicyToolBlocked():
                assert proposed == []
            case _:
                pass


def retries(facts: list[f.Fact], call: str) -> int:
    """How often somebody wanted a call that failed to be tried again."""
    opened = of_call(facts, call, f.RequestOpened)
    asked = {fact.request_id for fact in opened if fact.request_class == "tool_retry"}
    closed = [fact for fact in facts if isinstance(fact, f.RequestClosed)]
    return sum(fact.request_id in asked and fact.resolution == "answered" for fact in closed)


def every_proposed_call_is_decided_and_then_blocked_or_ended_once(run: Run) -> None:
    facts = facts_of(run)
    retracted = [fact for fact in facts if isinstance(fact, f.AssistantRetracted)]
    void = {call for fact in retracted for call in fact.tool_call_ids}
    assert void.isdisjoint([*calls(facts, f.PolicyToolDecided), *calls(facts, f.ToolInvoked)])
    for call in calls(facts, f.AssistantToolCallProposed):
        if call in void:
            continue
        blocked = of_call(facts, call, f.PolicyToolBlocked)
        invoked = of_call(facts, call, f.ToolInvoked)
        endings = of_call(facts, call, *ENDED)
        if blocked or invoked or is_finished(facts):
            assert of_call(facts, call, f.PolicyToolDecided)
            proposed = of_call(facts, call, f.AssistantToolCallProposed)
            assert len(blocked) + len(endings) == len(proposed) + retries(facts, call)
        assert [fact.attempt for fact in invoked] == [fact.attempt for fact in endings]
        assert [(i.tool_name, i.kind) for i in invoked] == [(e.tool_name, e.kind) for e in endings]


def a_tool_begins_only_after_an_allowing_verdict_and_no_request_to_cancel(run: Run) -> None:
    verdicts: dict[str, str] = {}
    cancelled = False
    for fact in facts_of(run):
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


def what_a_tool_reports_lies_between_its_invocation_and_its_end(run: Run) -> None:
    active: set[str] = set()
    for fact in facts_of(run):
        call: str | None = getattr(fact, "tool_call_id", None)
        if call is None or not fact.type.startswith("tool."):
            continue
        if isinstance(fact, f.ToolInvoked):
            active.add(call)
        assert call in active
        if fact.type in f.TOOL_TERMINAL:
            active.remove(call)
    assert active == set()


NEVER_STARTED = ("unknown_tool", "invalid_arguments", "too_deep", "outcome_unknown")
"""Kinds of failure of a call that may have had nothing to start."""


def every_call_starts_and_its_events_name_the_tool(run: Run) -> None:
    facts = facts_of(run)
    for place, fact in enumerate(facts):
        if isinstance(fact, f.ToolInvoked) and fact.kind != "agent":
            following = facts[place + 1]
            if not isinstance(following, f.ToolStarted):
                assert isinstance(following, f.ToolFailed)
                assert following.error_kind in NEVER_STARTED
    for call in calls(facts, f.ToolInvoked):
        reports = [fact for fact in facts if getattr(fact, "tool_call_id", None) == call]
        names = {getattr(fact, "tool_name", "") for fact in reports if "tool." in fact.type}
        invoked = {fact.tool_name for fact in of_call(facts, call, f.ToolInvoked)}
        aliases = {fact.tool_name for fact in of_call(facts, call, f.AssistantToolCallProposed)}
        assert names <= invoked | aliases


def every_command_exits_unless_its_worker_is_lost(run: Run) -> None:
    running: set[str] = set()
    for fact in facts_of(run):
        match fact:
            case f.ToolShellCommand(tool_call_id=call):
                running.add(call)
            case f.ToolShellExited(tool_call_id=call):
                running.remove(call)
            case f.ToolFailed(tool_call_id=call, error_kind="outcome_unknown"):
                running.discard(call)
            case _:
                pass
    assert running == set()


def a_complete_text_is_its_deltas_joined(run: Run) -> None:
    facts = facts_of(run)
    deltas: dict[tuple[str, int, int], str] = {}
    for fact in facts:
        match fact:
            case f.AssistantTextDelta() | f.AssistantThinkingDelta():
                block = (fact.type.split("_")[0], fact.turn_index, fact.block_index)
                deltas[block] = deltas.get(block, "") + fact.delta
            case f.AssistantTextComplete() | f.AssistantThinkingComplete():
                block = (fact.type.split("_")[0], fact.turn_index, fact.block_index)
                whole = deltas.pop(block, "")
                is_cut = isinstance(fact, f.AssistantTextComplete) and fact.artifact_id is not UNSET
                assert whole.startswith(fact.text) if is_cut else whole == fact.text
            case f.AssistantRetracted():
                deltas.clear()
            case f.TurnFailed():
                # An interrupted text is complete as far as it came, or taken back. Only a worker
                # that is lost for good leaves it open.
                is_lost = fact.code == "worker_lost" and not fact.will_retry
                assert is_lost or not any("text" in block[0] for block in deltas)
                deltas.clear()
            case _:
                pass
    assert deltas == {} or not is_finished(facts)


def offsets_of_output_count_the_bytes_before_it(run: Run) -> None:
    """Of each attempt: one that is tried again begins anew."""
    written: dict[tuple[str, str], int] = {}
    for fact in facts_of(run):
        match fact:
            case f.ToolShellCommand(tool_call_id=call):
                written |= {(call, "stdout"): 0, (call, "stderr"): 0}
            case f.ToolShellOutputChunk(tool_call_id=call, stream=stream):
                assert fact.byte_offset == written[call, stream]
                written[call, stream] += len(fact.data.encode())
            case f.ToolShellExited(tool_call_id=call):
                shown = written[call, "stdout"], written[call, "stderr"]
                assert shown <= (fact.stdout_bytes, fact.stderr_bytes)
                assert fact.truncated or shown == (fact.stdout_bytes, fact.stderr_bytes)
            case _:
                pass


def every_question_is_closed_once(run: Run) -> None:
    facts = facts_of(run)
    opened = [fact.approval_id for fact in facts if isinstance(fact, f.ApprovalRequested)]
    opened += [fact.request_id for fact in facts if isinstance(fact, f.RequestOpened)]
    closed = [fact.approval_id for fact in facts if isinstance(fact, f.ApprovalResolved)]
    closed += [fact.approval_id for fact in facts if isinstance(fact, f.ApprovalTimedOut)]
    closed += [fact.request_id for fact in facts if isinstance(fact, f.RequestClosed)]
    assert sorted(opened) == sorted(closed)


def an_artifact_is_created_before_a_fact_names_it(run: Run) -> None:
    created: set[str] = set()
    for fact in facts_of(run):
        if isinstance(fact, f.ArtifactCreated):
            created.add(fact.artifact_id)
        assert _named_artifacts(fact) <= created


def _named_artifacts(fact: Fact) -> set[str]:
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


def an_event_named_by_a_fact_came_before_it(run: Run) -> None:
    seen: set[str] = set()
    for envelope in run:
        match envelope.data:
            case f.ArtifactCreated(created_by_event_id=str(cause)):
                assert cause in seen
            case f.ArtifactReferenced(by_event_id=cause):
                assert cause in seen
            case _:
                pass
        seen.add(envelope.event_id)


def a_takeover_starts_the_run_again_or_ends_it(run: Run) -> None:
    facts = facts_of(run)
    for gap in places(facts, lambda fact: isinstance(fact, f.GapRunDisconnected)):
        mark = facts[gap]
        assert isinstance(mark, f.GapRunDisconnected)
        assert mark.since_sequence == gap - 1
        following = facts[gap + 1]
        if isinstance(following, f.RunStarted):
            assert following.worker_id != mark.prior_worker_id
        else:
            assert {"run.cancelled"} == {one.type for one in facts[gap:] if one.type in f.TERMINAL}


def every_event_satisfies_its_schema(run: Run) -> None:
    for envelope in run:
        data = msgspec.to_builtins(payload(envelope.data))
        if envelope.type in PAYLOADS:
            PAYLOADS[envelope.type].validate(data)


RULES: tuple[Callable[[Run], None], ...] = (
    sequences_have_no_gap,
    a_run_begins_with_its_queue_its_start_and_the_message,
    a_resumed_run_says_so_at_sequence_zero_only,
    a_run_has_one_ending_and_only_guests_write_after_it,
    the_ending_is_a_row_of_the_table,
    turns_count_from_one_and_each_is_completed_or_failed,
    the_cost_follows_each_completed_turn,
    a_completed_turn_has_the_totals_of_its_message,
    a_message_names_the_calls_proposed_before_it,
    every_proposed_call_is_decided_and_then_blocked_or_ended_once,
    a_tool_begins_only_after_an_allowing_verdict_and_no_request_to_cancel,
    what_a_tool_reports_lies_between_its_invocation_and_its_end,
    every_command_exits_unless_its_worker_is_lost,
    a_complete_text_is_its_deltas_joined,
    offsets_of_output_count_the_bytes_before_it,
    every_question_is_closed_once,
    an_artifact_is_created_before_a_fact_names_it,
    an_event_named_by_a_fact_came_before_it,
    a_takeover_starts_the_run_again_or_ends_it,
)
OURS = (every_call_starts_and_its_events_name_the_tool, every_event_satisfies_its_schema)
"""Rules of what is written here; journals from elsewhere need not keep them."""


def check_order(run: Run) -> None:
    """Every rule holds; the first that does not fails the test that called."""
    for rule in (*RULES, *OURS):
        rule(run)
