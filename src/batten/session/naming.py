"""Names that people type: ids, UUIDs, unique prefixes of either, and `last`.

The name of a run also finds its session, and that of a session its runs. Protocols use exact ids.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar, Unpack

from batten.contract.cutting import shortened
from batten.contract.errors import CallerError, NotFound
from batten.contract.ids import spans
from batten.journal.contract import (
    ArtifactRow,
    IdKind,
    Journal,
    RequestRow,
    RunRow,
    SessionRow,
)
from batten.journal.filters import RunFilters
from batten.session.history import prompts_of

LAST = "last"
SPELLINGS = "an id, a UUID, a unique prefix of at least 4 characters, or `last`"
_PREFIXES: dict[IdKind, str] = {
    "run": "run",
    "session": "chat",
    "request": "appr",
    "artifact": "art",
}
_LISTED = 5
"""How many candidates an error lists."""

T = TypeVar("T")


class Ambiguous(CallerError):
    """A name fits several things; the message lists them."""

    code = "usage"


async def named_run(journal: Journal, name: str) -> RunRow:
    """The run of this name; of a session, its newest run.

    Raises `NotFound`, or `Ambiguous` with the candidates.
    """
    found: dict[str, RunRow] = {}
    for row in await _runs_and_sessions(journal, name):
        run = row if isinstance(row, RunRow) else await _newest_run(journal, row)
        found[run.run_id] = run
    if not found:
        raise NotFound(f"no run is named {name}; `batten runs` lists them")
    return _only(name, list(found.values()), map(_describe, found.values()))


async def named_runs(journal: Journal, name: str) -> list[RunRow]:
    """The run of this name; of a session, all its runs, oldest first, child runs among them.

    Raises like `named_run`.
    """
    rows = await _runs_and_sessions(journal, name)
    if len(rows) != 1 or isinstance(rows[0], RunRow):
        return [await named_run(journal, name)]
    session_id = rows[0].session_id
    runs: list[RunRow] = []
    while page := await journal.runs(
        session_id=session_id, after=runs[-1].run_id if runs else None
    ):
        runs += page
    if not runs:
        raise NotFound(f"session {session_id} has no run yet")
    return runs[::-1]


async def named_session(journal: Journal, name: str) -> SessionRow:
    """The session of this name; of a run, the session it belongs to. Raises like `named_run`."""
    found: dict[str, SessionRow] = {}
    for row in await _runs_and_sessions(journal, name):
        session_id = row.session_id
        session = await journal.session(session_id) if session_id else None
        if session is not None:
            found[session.session_id] = session
    if not found:
        raise NotFound(f"no session or run is named {name}; `batten runs` lists them")
    return _only(name, list(found.values()), map(_describe, found.values()))


async def named_request(journal: Journal, name: str) -> RequestRow:
    """The request of this name, or the only pending one of a run or session.

    `last` is the only pending request of all runs: an answer never goes to a newer question than
    the one that was read. Raises like `named_run`.
    """
    exact = await journal.request(name)
    if exact is not None:
        return exact
    rows: list[RequestRow] = []
    if name == LAST:
        rows = await journal.pending_requests(limit=_LISTED + 1)
        if not rows:
            raise NotFound("no request is pending")
    else:
        for found in await _ids(journal, "request", name):
            row = await journal.request(found)
            rows += [row] if row is not None else []
        if not rows:
            rows = await _pending_of(journal, name)
    if not rows:
        raise NotFound(
            f"no request is named {name}, and no run of that name has one pending; "
            "`batten requests` lists them"
        )
    return _only(name, rows, (f"{row.request_id}  {shortened(row.summary, 50)!r}" for row in rows))


async def named_artifact(journal: Journal, name: str) -> ArtifactRow | None:
    """The artifact of this name; None if there is none. Raises `Ambiguous`."""
    exact = await journal.artifact(name)
    if exact is not None or name == LAST:
        return exact
    found = await _ids(journal, "artifact", name)
    return await journal.artifact(_only(name, found, found)) if found else None


async def _pending_of(journal: Journal, name: str) -> list[RequestRow]:
    """The pending requests of the runs of this name; none for an unknown name."""
    try:
        runs = await named_runs(journal, name)
    except NotFound:
        return []
    asked = [request for run in runs for request in await journal.requests(run.run_id)]
    return [request for request in asked if request.status == "pending"]


async def _runs_and_sessions(journal: Journal, name: str) -> list[RunRow | SessionRow]:
    """All that the name may mean; an exact id means one thing."""
    if name == LAST:
        return [await _last_run(journal)]
    exact = await journal.run(name) or await journal.session(name)
    if exact is not None:
        return [exact]
    runs = [await journal.run(one) for one in await _ids(journal, "run", name)]
    sessions = [await journal.session(one) for one in await _ids(journal, "session", name)]
    return [row for row in (*runs, *sessions) if row is not None]


async def _ids(journal: Journal, kind: IdKind, name: str) -> list[str]:
    found: set[str] = set()
    for first, last in spans(name, _PREFIXES[kind]):
        found |= {*await journal.ids(kind, first, last, limit=_LISTED + 1)}
    return sorted(found)


async def last_conversation(journal: Journal, workspace_path: str) -> RunRow:
    """The newest run in this directory that a prompt can follow; raises `NotFound`."""
    found = await _newest(journal, workspace_path=workspace_path, kind="agent_loop")
    if found is None:
        raise NotFound(f"there is no session in {workspace_path} to continue")
    return found


async def _last_run(journal: Journal) -> RunRow:
    found = await _newest(journal)
    if found is None:
        raise NotFound("there is no run yet, so none is the last")
    return found


async def _newest(journal: Journal, **filters: Unpack[RunFilters]) -> RunRow | None:
    """The newest of these runs that is no child run."""
    after: str | None = None
    while page := await journal.runs(after=after, **filters):
        for row in page:
            if row.parent_run_id is None:
                return row
        after = page[-1].run_id
    return None


async def _newest_run(journal: Journal, session: SessionRow) -> RunRow:
    runs = await prompts_of(journal, session.session_id)
    if not runs:
        raise NotFound(f"session {session.session_id} has no run yet")
    return runs[-1]


def _describe(row: RunRow | SessionRow) -> str:
    if isinstance(row, SessionRow):
        return f"{row.session_id}  {row.created_at[:19]}  {row.workspace_path}"
    return f"{row.run_id}  {row.created_at[:19]}  {shortened(row.prompt, 40)!r}"


def _only(name: str, rows: Sequence[T], described: Iterable[str]) -> T:
    if len(rows) == 1:
        return rows[0]
    lines = [f"  {one}" for one in described]
    more = ["  and more"] if len(lines) > _LISTED else []
    candidates = "\n".join([*lines[:_LISTED], *more])
    raise Ambiguous(f"{name} is short for more than one; give more of its letters:\n{candidates}")
