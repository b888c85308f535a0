"""Who asked to cancel a run, and why."""

from batten.contract.envelope import decode_fact
from batten.contract.facts import RunCancelRequested
from batten.journal.contract import Journal


async def cancel_request(journal: Journal, run_id: str) -> RunCancelRequested:
    """The first request to cancel a run. A stand-in if it was pruned, or made of an ancestor."""
    after = -1
    while page := await journal.read(run_id, after=after):
        for stored in page:
            if stored.type == RunCancelRequested.TYPE:
                fact = decode_fact(stored.body)
                if isinstance(fact, RunCancelRequested):
                    return fact
        after = page[-1].sequence
    return RunCancelRequested(by="guest", reason="a cancel was requested from elsewhere")
