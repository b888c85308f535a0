"""A session's past, read from the journal: the facts its conversation is folded from."""

from collections.abc import Iterator

from msgspec import UNSET

from batten.contract.envelope import decode_fact
from batten.contract.facts import Fact, SessionOpened
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Journal, RunRow

_EVERY_RUN = 1_000_000


def envelopes_of(journal: Journal, run_id: str) -> Iterator[Envelope]:
    """The stored envelopes of one run, in order."""
    after = -1
    while page := journal.read(run_id, after=after):
        yield from (decode(stored.body) for stored in page)
        after = page[-1].sequence


def facts_of(journal: Journal, run_id: str, *, until: int | None = None) -> Iterator[Fact]:
    """The facts of one run in order, up to and including `until`."""
    for envelope in envelopes_of(journal, run_id):
        if until is not None and envelope.sequence > until:
            return
        yield envelope.data


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
