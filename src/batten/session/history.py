"""A session's past: its conversation read back from the journal, even a pruned one."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from msgspec import Struct

from batten.agent.conversation import Conversation, needed_content
from batten.contract.envelope import Envelope, decode
from batten.contract.errors import Conflict
from batten.contract.facts import Fact, RunQueued, RunResumedFromEvent, SessionOpened
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Journal, RunRow, Stored
from batten.journal.recorder import Content, load_artifact, open_sealed, whole_fact
from batten.redact.seal import SealKey

_PAGE = 256


async def envelopes_of(journal: Journal, run_id: str) -> AsyncGenerator[Envelope, None]:
    """The stored envelopes of one run, in order."""
    after, is_full = -1, True
    while is_full:
        page = await journal.read(run_id, after=after, limit=_PAGE)
        for stored in page:
            yield decode(stored.body)
            after = stored.sequence
        is_full = len(page) == _PAGE
        if is_full:
            await asyncio.sleep(0)  # a long run does not keep others waiting


async def facts_of(
    journal: Journal, run_id: str, *, until: int | None = None
) -> AsyncGenerator[Fact, None]:
    """The facts of one run in order, whole, up to and including `until`."""
    async for envelope in envelopes_of(journal, run_id):
        if until is not None and envelope.sequence > until:
            return
        yield await whole_fact(envelope.data, journal)


async def prompts_of(journal: Journal, session_id: str) -> list[RunRow]:
    """The session's own runs, oldest first; child runs have a conversation of their own."""
    return [row for row in await runs_of(journal, session_id) if row.parent_run_id is None]


async def runs_of(journal: Journal, session_id: str) -> list[RunRow]:
    """All runs of a session, oldest first, with the child runs."""
    rows: list[RunRow] = []
    after: str | None = None
    is_full = True
    while is_full:
        page = await journal.runs(session_id=session_id, after=after, limit=_PAGE)
        rows += page
        is_full = len(page) == _PAGE
        after = page[-1].run_id if page else None
    return rows[::-1]


async def chain_cost(journal: Journal, run: RunRow) -> int:
    """The cost of a run and of those that it continues, in millionths of a US dollar."""
    rows = {row.run_id: row for row in await prompts_of(journal, run.session_id or "")}
    cost, row = 0, rows.get(run.run_id)
    while row is not None:
        cost += row.cost_micros_usd
        row = rows.get(row.prior_run_id or "")
    return cost


async def unfinished_run(journal: Journal, session_id: str) -> RunRow | None:
    """The session's last run, if it has no ending."""
    rows = await prompts_of(journal, session_id)
    return rows[-1] if rows and rows[-1].outcome is None else None


async def opening_of(journal: Journal, session_id: str) -> SessionOpened | None:
    """The first fact of a session's stream; None if it was pruned."""
    for stored in await journal.read(session_stream(SessionId(session_id)), limit=1):
        fact = decode(stored.body).data
        return fact if isinstance(fact, SessionOpened) else None
    return None


async def queued_of(journal: Journal, run_id: str) -> RunQueued | None:
    """The fact that queued a run first; None if it was pruned."""
    for stored in await journal.read(run_id, limit=2):  # it is the first, or follows an origin
        fact = decode(stored.body).data
        if isinstance(fact, RunQueued):
            return fact
    return None


class Until(Struct, frozen=True):
    """The last fact to read; for a branch, the place it branched at."""

    run_id: str
    sequence: int | None = None
    """None for the whole run."""


async def read_back(
    conversation: Conversation,
    journal: Journal,
    key: Callable[[], SealKey],
    session_id: str,
    until: Until | None = None,
) -> None:
    """Fold a session's facts, beginning with those of the session it branched from."""
    opened = await opening_of(journal, session_id)
    if opened is not None and isinstance(opened.forked_from, str):
        fork = Until(str(opened.forked_at_run_id), int(opened.forked_at_sequence or 0))
        await read_back(conversation, journal, key, opened.forked_from, fork)
    for row, last in await _lineage(journal, session_id, until):
        kept = await journal.base(row.run_id) if row.base_sequence else None
        if kept is not None and kept.state is not None:
            conversation.restore(key().unseal(kept.state, row.run_id.encode()))
        async for fact in facts_of(journal, row.run_id, until=last):
            conversation.observe(fact, await _content(journal, key, fact))


async def _lineage(
    journal: Journal, session_id: str, until: Until | None
) -> list[tuple[RunRow, int | None]]:
    """The runs of a conversation, oldest first, each with its last sequence that belongs to it.

    A run continues the one before it, from a place in it if its first fact names one. A run
    without one before it begins anew.
    """
    rows = {row.run_id: row for row in await prompts_of(journal, session_id)}
    row = rows.get(next(reversed(rows), "") if until is None else until.run_id)
    last = None if until is None else until.sequence
    found: list[tuple[RunRow, int | None]] = []
    while row is not None:
        found.append((row, last))
        last, prior = None, rows.get(row.prior_run_id or "")
        if prior is not None and not row.base_sequence:
            for stored in await journal.read(row.run_id, limit=1):
                fact = decode(stored.body).data
                if isinstance(fact, RunResumedFromEvent) and fact.from_run_id == prior.run_id:
                    last = fact.from_sequence
        row = prior
    return found[::-1]


async def _content(journal: Journal, key: Callable[[], SealKey], fact: Fact) -> Content:
    """The bytes that a fact needs. Raises `Refused` if they are sealed and the key is gone."""
    needed, content = needed_content(fact), Content()
    for artifact_id in needed.plain:
        content[artifact_id] = await load_artifact(journal, artifact_id)
    for artifact_id in needed.sealed:
        content[artifact_id] = await open_sealed(journal, key(), artifact_id)
    return content


async def past_runs(
    journal: Journal, session_id: SessionId, until: Until | None = None
) -> AsyncGenerator[tuple[str, int | None], None]:
    """The runs of a session's history in order, beginning with the session it branched from.

    With each run comes the last sequence that belongs to the history; None for the whole run.
    """
    opened = await opening_of(journal, session_id)
    if opened is not None and isinstance(opened.forked_from, str):
        fork = Until(str(opened.forked_at_run_id), int(opened.forked_at_sequence or 0))
        async for earlier in past_runs(journal, SessionId(opened.forked_from), fork):
            yield earlier
    for row, last in await _lineage(journal, session_id, until):
        yield row.run_id, last


async def prune(
    journal: Journal,
    key: Callable[[], SealKey],
    row: RunRow,
    before: int,
    *,
    reason: str = "operator",
) -> Stored | None:
    """Remove the beginning of an ended run; the base keeps the conversation so far, sealed."""
    if row.outcome is None:
        raise Conflict(f"{row.run_id} has not ended; only ended runs are pruned")
    state: bytes | None = None
    if row.session_id is not None and row.parent_run_id is None:
        conversation = Conversation()
        await read_back(conversation, journal, key, row.session_id, Until(row.run_id, before - 1))
        state = key().seal(conversation.snapshot(), row.run_id.encode())
    return await journal.prune(row.run_id, before=before, reason=reason, base_state=state)
