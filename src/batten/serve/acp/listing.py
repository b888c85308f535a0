"""Lists the sessions a client may load, most recently used first, in pages.

Deleted sessions are left out; their journals stay until they are pruned.
"""

from batten.contract.facts import SessionClosed
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Journal, SessionRow
from batten.journal.workers import this_worker
from batten.protocols.acp.meter import title_of
from batten.protocols.acp.methods import ListSessionsResult, SessionInfo
from batten.protocols.acp.rpc import INVALID_PARAMS, RpcError
from batten.serve.acp.opening import SURFACE
from batten.session.history import facts_of, prompts_of

_PAGE = 50
_DELETED = "deleted"
"""The close reason that marks a session as deleted."""


async def list_sessions(
    journal: Journal, cwd: str | None, cursor: str | None
) -> ListSessionsResult:
    """Sessions of this surface. The cursor counts the rows of the store read so far."""
    begin = _place(cursor)
    workspace = None if cwd is None else _real(cwd)
    rows = (await journal.sessions(workspace_path=workspace, limit=begin + _PAGE + 1))[begin:]
    ours = [row for row in rows[:_PAGE] if row.surface == SURFACE]
    shown = [
        await _info(journal, row) for row in ours if not await _is_deleted(journal, row.session_id)
    ]
    more = str(begin + _PAGE) if len(rows) > _PAGE else None
    return ListSessionsResult(sessions=shown, next_cursor=more)


async def delete_session(journal: Journal, session_id: str) -> None:
    """Hide a session from the list until it is resumed. A missing session counts as deleted.

    Raises `Conflict` while another process holds it.
    """
    if await journal.session(session_id) is None:
        return
    stream = session_stream(SessionId(session_id))
    lease = await journal.claim(stream, this_worker())
    try:
        await journal.append(stream, [SessionClosed(reason=_DELETED)], fence=lease.fence)
    finally:
        await journal.release(lease)


async def _is_deleted(journal: Journal, session_id: str) -> bool:
    stream = facts_of(journal, session_stream(SessionId(session_id)))
    closed = [fact.reason async for fact in stream if isinstance(fact, SessionClosed)]
    return closed[-1:] == [_DELETED]


def _place(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise RpcError(INVALID_PARAMS, "the cursor is not one that was given here")
    return int(cursor)


def _real(cwd: str) -> str:
    import os

    if not os.path.isabs(cwd) or "\0" in cwd:
        raise RpcError(INVALID_PARAMS, f"cwd {cwd!r} is not an absolute path")
    return os.path.realpath(cwd)


async def _info(journal: Journal, row: SessionRow) -> SessionInfo:
    runs = await prompts_of(journal, row.session_id)
    title = title_of(runs[0].prompt) if runs else None
    return SessionInfo(
        session_id=row.session_id,
        cwd=row.workspace_path,
        title=title,
        updated_at=row.updated_at,
    )
