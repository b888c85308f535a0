"""A session's past: its conversation read back from the journal, also where that was pruned."""

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from batten.agent.conversation import Conversation
from batten.contract.envelope import Envelope, decode
from batten.contract.errors import Conflict
from batten.contract.facts import Fact, SessionOpened
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Journal, RunRow, Stored
from batten.journal.recorder import load_artifact, open_sealed, whole_fact
from batten.redact.seal import SealKey

_EVERY_RUN = 1_000_000


class Archive:
    """Content of past runs, for a conversation read back from the journal."""

    def __init__(self, journal: Journal, key: Callable[[], SealKey]) -> None:
        self._journal = journal
        self._key = key

    def unseal(self, artifact_id: str) -> bytes:
        return open_sealed(self._journal, self._key(), artifact_id)

    def load(self, artifact_id: str) -> bytes:
        return load_artifact(self._journal, artifact_id)


def envelopes_of(journal: Journal, run_id: str) -> Iterator[Envelope]:
    """The stored envelopes of one run, in order."""
    after = -1
    while page := journal.read(run_id, after=after):
        yield from (decode(stored.body) for stored in page)
        after = page[-1].sequence


def facts_of(journal: Journal, run_id: str, *, until: int | None = None) -> Iterator[Fact]:
    """The facts of one run in order, whole, up to and including `until`."""
    for envelope in envelopes_of(journal, run_id):
        if until is not None and envelope.sequence > until:
            return
        yield whole_fact(envelope.data, partial(load_artifact, journal))


def prompts_of(journal: Journal, session_id: str) -> list[RunRow]:
    """The session's own runs, oldest first; child runs have a conversation of their own."""
    rows = journal.runs(session_id=session_id, limit=_EVERY_RUN)
    return [row for row in reversed(rows) if row.parent_run_id is None]


class Until(Struct, frozen=True):
    """The last fact that counts: of a branch, the place it branched at."""

    run_id: str
    sequence: int


def read_back(
    conversation: Conversation,
    journal: Journal,
    key: Callable[[], SealKey],
    session_id: str,
    until: Until | None = None,
) -> None:
    """Fold a session's facts, beginning with those of the session it branched from."""
    opened = next(facts_of(journal, session_stream(SessionId(session_id))), None)
    if isinstance(opened, SessionOpened) and isinstance(opened.forked_from, str):
        fork = Until(str(opened.forked_at_run_id), int(opened.forked_at_sequence or 0))
        read_back(conversation, journal, key, opened.forked_from, fork)
    for row in prompts_of(journal, session_id):
        is_last = until is not None and row.run_id == until.run_id
        kept = journal.base(row.run_id) if row.base_sequence else None
        if kept is not None and kept.state is not None:
            conversation.restore(key().unseal(kept.state, row.run_id.encode()))
        last = until.sequence if is_last and until is not None else None
        conversation.observe_all(facts_of(journal, row.run_id, until=last))
        if is_last:
            return


def past_runs(
    journal: Journal, session_id: SessionId, until: Until | None = None
) -> Iterator[tuple[str, int | None]]:
    """The runs of a session's history in order, beginning with those of the session it branched
    from; with each the last sequence that belongs to it, if not all of it does.
    """
    opened = next(facts_of(journal, session_stream(session_id)), None)
    if isinstance(opened, SessionOpened) and isinstance(opened.forked_from, str):
        fork = Until(str(opened.forked_at_run_id), int(opened.forked_at_sequence or 0))
        yield from past_runs(journal, SessionId(opened.forked_from), fork)
    for row in prompts_of(journal, session_id):
        is_last = until is not None and row.run_id == until.run_id
        yield row.run_id, until.sequence if is_last and until is not None else None
        if is_last:
            return


async def prune(
    journal: Journal,
    key: Callable[[], SealKey],
    conversation: Conversation,
    row: RunRow,
    before: int,
) -> Stored | None:
    """Remove the beginning of an ended run; what the model had seen by then is kept, sealed."""
    if row.outcome is None:
        raise Conflict(f"{row.run_id} has not ended; only ended runs are pruned")
    state: bytes | None = None
    if row.session_id is not None and row.parent_run_id is None:
        read_back(conversation, journal, key, row.session_id, Until(row.run_id, before - 1))
        state = key().seal(conversation.snapshot(), row.run_id.encode())
    return await journal.prune(row.run_id, before=before, reason="operator", base_state=state)
