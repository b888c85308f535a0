"""A session's past, read from the journal: the facts its conversation is folded from."""

from collections.abc import Iterator

from msgspec import UNSET

from batten.contract.envelope import decode_fact
from batten.contract.facts import Fact, SessionOpened
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Journal, RunRow

_EVERY_RUN = 1_000_000


def facts_of(journal: Journal, run_id: str, *, until: int | None = None) -> Iterator[Fact]:
    """The facts of one run in order, up to and including `until`."""
    after = -1
    while page := journal.read(run_id, after=after):
        for stored in page:
            if until is not None and stored.sequence > until:
                return
            yield decode_fact(stored.body)
        after = page[-1].sequence


def prompts_of(journal: Journal, session_id: str) -> list[RunRow]:
    """The session's own runs, oldest first; child runs have a conversation of their own."""
    rows = journal.runs(session_id=session_id, limit=_EVERY_RUN)
    return [row for row in reversed(rows) if row.parent_run_id is None]


def history(journal: Journal, session_id: str) -> Iterator[Fact]:
    """Everything the conversation is made of, beginning with the session this one branched from."""
    opened = next(facts_of(journal, session_stream(SessionId(session_id))), None)
    if isinstance(opened, SessionOpened) and opened.forked_from is not UNSET:
        yield from _before_fork(journal, opened)
    for row in prompts_of(journal, session_id):
        yield from facts_of(journal, row.run_id)


def _before_fork(journal: Journal, opened: SessionOpened) -> Iterator[Fact]:
    for fact_run in prompts_of(journal, str(opened.forked_from)):
        if fact_run.run_id == opened.forked_at_run_id:
            until = opened.forked_at_sequence
            yield from facts_of(
                journal, fact_run.run_id, until=None if until is UNSET else int(until)
            )
            return
        yield from facts_of(journal, fact_run.run_id)
