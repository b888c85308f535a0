"""Completes the turn of a run that ends while no worker executes it."""

from batten.agent.limits import turn_left_open
from batten.contract import facts
from batten.journal.contract import Journal, RunRow
from batten.session.history import envelopes_of


async def last_turn(
    journal: Journal, run: RunRow, budget_micros_usd: int | None = None
) -> list[facts.Fact]:
    """The facts that complete the run's open turn; none if its last turn has ended.

    They say what the turn and the task have cost. `budget_micros_usd` is that of the task, if the
    run has told of none yet.
    """
    message: facts.AssistantMessageComplete | None = None
    began_at, budget = "", budget_micros_usd
    async for envelope in envelopes_of(journal, run.run_id):
        match envelope.data:
            case facts.TurnStarted():
                began_at = envelope.occurred_at
            case facts.AssistantMessageComplete() as message:
                pass
            case facts.TurnCompleted() | facts.TurnFailed():
                message = None
            case facts.CostTick(task_budget_micros_usd=int(told)):
                budget = told
            case _:
                pass
    if message is None or run.task_id is None:
        return []
    return await turn_left_open(journal, run.task_id, message, began_at, budget)
