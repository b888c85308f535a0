"""Money: what a call costs, what a task may spend, and who is held to it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from batten.agent.conversation import Conversation
from batten.agent.creation import Origin
from batten.agent.execution import Execution
from batten.contract import facts as f
from batten.contract.facts.assistant import Usage
from batten.session.history import envelopes_of
from tests.models.server import Fault, ModelServer, Reply, answer, cut
from tests.models.wire import anthropic_start, anthropic_text_block, anthropic_turn, sse

from .stage import Played, Stage, finish

PRICES = b"""{"as_of": "2026-02-03", "providers": {"anthropic": [
  [["=priced"], 200000, ["1000", "2000", "100", "1250"]]
]}}"""
TURN = 20_000
"""What the server's usual turn costs in micro-dollars: 10 tokens in and 5 out."""

PRICED = ("--model", "anthropic/priced", "--allow", "bash")


def step(number: int) -> Reply:
    return answer(anthropic_turn(calls=[(f"c{number}", "bash", {"command": f"echo {number}"})]))


DONE = answer(anthropic_turn("done"))


@pytest.fixture(autouse=True)
def prices(stage: Stage) -> None:
    path = stage.directory / "prices.json"
    path.write_bytes(PRICES)
    stage.environ["BATTEN_PRICES"] = str(path)


@asynccontextmanager
async def serving(stage: Stage, replies: Sequence[Reply]) -> AsyncGenerator[ModelServer, None]:
    async with ModelServer(replies) as server:
        stage.environ.update(server.environ())
        yield server


async def spend(stage: Stage, budget_usd: str, *replies: Reply) -> tuple[Played, int]:
    """A run with a budget; how it went, and how many calls it made."""
    async with serving(stage, replies) as server:
        played = await stage.run(*PRICED, "--max-budget-usd", budget_usd)
    return played, len(server.requests)


async def test_each_call_is_a_row_of_the_ledger_with_the_date_of_its_price(stage: Stage) -> None:
    async with serving(stage, [step(1), DONE]):
        played = await stage.run(*PRICED)
    journal = stage.journal()
    rows = await journal.ledger(played.ended.run_id)
    journal.close()
    assert [(row.turn_index, row.cost_micros_usd) for row in rows] == [(1, TURN), (2, TURN)]
    assert {row.price_as_of for row in rows} == {"2026-02-03"}
    assert played.one(f.RunFinished).cost_micros_usd == 2 * TURN
    ticks = [tick.cumulative_cost_micros_usd for tick in played.all(f.CostTick)]
    assert ticks == [TURN, 2 * TURN]


async def test_tokens_read_from_a_cache_cost_their_own_rate(stage: Stage) -> None:
    cached = answer(anthropic_turn("done", input_tokens=10, cache_read_input_tokens=1000))
    async with serving(stage, [cached]):
        played = await stage.run(*PRICED)
    assert played.one(f.RunFinished).cost_micros_usd == TURN + 1000 * 100
    assert played.one(f.TurnCompleted).cached_input_tokens == 1000


async def test_a_call_whose_tokens_are_not_reported_has_an_unknown_cost(stage: Stage) -> None:
    silent = answer(anthropic_turn("done").replace(b'"usage"', b'"other"'))
    async with serving(stage, [silent]):
        played = await stage.run(*PRICED)
    message, ending = played.one(f.AssistantMessageComplete), played.one(f.RunFinished)
    assert (message.usage, message.cost_micros_usd) == (Usage(), None)
    assert (ending.cost_micros_usd, ending.cost_unknown) == (0, True)


async def test_a_price_nobody_knows_is_said_and_never_silently_zero(stage: Stage) -> None:
    async with serving(stage, [step(1), DONE]):
        played = await stage.run("--model", "anthropic/unheard-of", "--allow", "bash")
    assert played.one(f.RunFinished).cost_unknown is True
    assert [tick.cost_unknown for tick in played.all(f.CostTick)] == [True, True]
    messages = played.all(f.AssistantMessageComplete)
    assert [message.cost_micros_usd for message in messages] == [None, None]
    journal = stage.journal()
    row = await journal.run(played.ended.run_id)
    assert row is not None
    assert row.cost_unknown
    journal.close()


async def test_a_task_that_has_spent_more_than_its_budget_makes_no_further_call(
    stage: Stage,
) -> None:
    played, calls = await spend(stage, "0.03", step(1), step(2), DONE)
    assert played.ended.outcome == "budget"
    assert calls == 2
    exceeded = played.one(f.CostBudgetExceeded)
    assert exceeded.cumulative_cost_micros_usd == 2 * TURN
    assert exceeded.task_budget_micros_usd == 30_000
    assert played.ended.message == "$0.040000 is spent of a budget of $0.030000"


async def test_having_spent_exactly_the_budget_is_not_having_exceeded_it(stage: Stage) -> None:
    played, calls = await spend(stage, "0.02", step(1), DONE)
    assert played.ended.outcome == "completed"
    assert calls == 2


async def test_an_answer_that_passed_the_budget_is_an_answer_still(stage: Stage) -> None:
    played, _ = await spend(stage, "0.01", DONE)
    assert played.ended.outcome == "completed"
    assert played.ended.answer == "done"


async def test_most_of_the_budget_gone_is_a_warning_once(stage: Stage) -> None:
    played, _ = await spend(stage, "0.07", step(1), step(2), step(3), DONE)
    warning = played.one(f.CostBudgetWarning)
    assert (warning.threshold_pct, warning.cumulative_cost_micros_usd) == (80, 3 * TURN)
    left = [tick.task_budget_remaining_micros_usd for tick in played.all(f.CostTick)]
    assert left == [50_000, 30_000, 10_000, -10_000]


async def test_a_session_is_warned_once_over_all_its_runs(stage: Stage) -> None:
    flags = (*PRICED, "--max-budget-usd", "0.07")
    async with serving(stage, [DONE]), stage.session(*flags) as session:
        runs = [await finish(session, await session.prompt("go")) for _ in range(4)]
    assert [len(run.all(f.CostBudgetWarning)) for run in runs] == [0, 0, 1, 0]
    assert [run.ended.outcome for run in runs] == ["completed"] * 4


@pytest.mark.parametrize(("budget", "parents"), [("0.07", 0), ("0.025", 1)])
async def test_of_a_parent_and_its_child_only_who_passed_the_threshold_warns(
    stage: Stage, budget: str, parents: int
) -> None:
    ask = answer(anthropic_turn(calls=[("a1", "agent", {"prompt": "help"})]))
    async with serving(stage, [ask, step(1), DONE, DONE]):
        played = await stage.run(*PRICED, "--max-budget-usd", budget)
    child = str(played.one(f.ToolStarted).child_run_id)
    journal = stage.journal()
    told = [one.data async for one in envelopes_of(journal, child)]
    journal.close()
    warned = [fact for fact in told if isinstance(fact, f.CostBudgetWarning)]
    assert (len(played.all(f.CostBudgetWarning)), len(warned)) == (parents, 1 - parents)


async def test_earlier_runs_of_a_session_count_against_its_budget(stage: Stage) -> None:
    async with serving(stage, [DONE]) as server:
        async with stage.session(*PRICED, "--max-budget-usd", "0.03") as session:
            runs = [await finish(session, await session.prompt("go")) for _ in range(3)]
        assert len(server.requests) == 2
    assert [run.ended.outcome for run in runs] == ["completed", "completed", "budget"]
    assert runs[1].one(f.CostTick).cumulative_cost_micros_usd == 2 * TURN


async def test_a_child_spends_its_parents_budget(stage: Stage) -> None:
    ask = answer(anthropic_turn(calls=[("a1", "agent", {"prompt": "help"})]))
    # The parent's call, then two of the child, which may make no third.
    async with serving(stage, [ask, step(1), step(2)]) as server:
        played = await stage.run(*PRICED, "--max-budget-usd", "0.05")
    assert len(server.requests) == 3
    failed = played.one(f.ToolFailed)
    assert failed.error_kind == "budget"
    assert played.ended.outcome == "budget"
    (tick,) = played.all(f.CostTick)
    assert tick.cumulative_cost_micros_usd == 3 * TURN
    assert played.one(f.RunFailed).cost_micros_usd == TURN


async def test_siblings_cannot_overspend_together(stage: Stage) -> None:
    """Two runs of one task ask for the last of its budget at once: one gets it, the other waits for
    the end of that call, and is refused because of what it cost.
    """
    async with serving(stage, [DONE]) as server:
        async with stage.session(*PRICED, "--max-budget-usd", "0.01") as session:
            deps, settings = session.deps, session.settings
            origin = Origin(session_id=session.session_id, task_id=session.task_id)
            siblings = [
                await Execution.begin(deps, settings, origin, Conversation(), "go")
                for _ in range(2)
            ]
            async with asyncio.TaskGroup() as group:
                ending = [group.create_task(finish(session, one)) for one in siblings]
        assert len(server.requests) == 1
    assert sorted(task.result().ended.outcome for task in ending) == ["budget", "completed"]
    refused = next(one for one in ending if one.result().ended.outcome == "budget").result()
    assert refused.ended.message == "$0.020000 is spent of a budget of $0.010000"


@pytest.mark.parametrize("budget", ["0.000001", "0.016", "0.019999"])
async def test_no_estimate_refuses_a_call_while_anything_is_left(stage: Stage, budget: str) -> None:
    """A full answer would cost 16 dollars; the one call that crosses the budget is made."""
    played, calls = await spend(stage, budget, step(1), DONE)
    assert (played.ended.outcome, calls) == ("budget", 1)
    assert played.ended.progress.cost_micros_usd == TURN


def broken_off(fault: Fault) -> Reply:
    """An answer that reports its input and then ends in its text."""
    begun = sse(anthropic_start(), *anthropic_text_block(0, "Half an ans")[:-1], named=True)
    return cut(begun, fault)


async def test_a_broken_call_is_charged_with_what_its_provider_reported(stage: Stage) -> None:
    async with serving(stage, [broken_off(Fault.CLOSE)]):
        played = await stage.run(*PRICED, "--max-retries", "0")
    assert played.ended.outcome == "model_error"
    unfinished = played.one(f.CostCallUnfinished)
    assert (unfinished.reason, unfinished.usage) == (
        "broken", Usage(input_tokens=10, output_tokens=1),
    )  # fmt: skip
    failed = played.one(f.RunFailed)
    assert (failed.cost_micros_usd, failed.cost_unknown) == (12_000, True)
    journal = stage.journal()
    (row,) = await journal.ledger(played.ended.run_id)
    run = await journal.run(played.ended.run_id)
    journal.close()
    assert (row.input_tokens, row.output_tokens, row.cost_micros_usd) == (10, 1, 12_000)
    assert run is not None
    assert (run.cost_micros_usd, run.cost_unknown) == (12_000, True)


async def test_a_cancelled_call_is_charged_or_its_cost_is_unknown(stage: Stage) -> None:
    stalled = serving(stage, [broken_off(Fault.STALL)])
    async with stalled as server, stage.session(*PRICED) as session:
        execution = await session.prompt("go")
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(finish(session, execution))
            await server.asked.wait()
            await execution.cancel("client", "enough")
    cancelled = ending.result().one(f.RunCancelled)
    assert cancelled.cost_unknown is True
    assert ending.result().one(f.CostCallUnfinished).reason == "cancelled"


async def test_a_refused_call_costs_nothing(stage: Stage) -> None:
    async with serving(stage, [[Fault.CLOSE]]):
        played = await stage.run(*PRICED)
    assert played.all(f.CostCallUnfinished) == []
    assert played.one(f.RunFailed).cost_micros_usd == 0
