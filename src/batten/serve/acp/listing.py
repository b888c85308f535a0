"""The sessions a client may load, most recently used first, a page at a time."""

from batten.journal.contract import Journal, SessionRow
from batten.protocols.acp.meter import title_of
from batten.protocols.acp.methods import ListSessionsResult, SessionInfo
from batten.protocols.acp.rpc import INVALID_PARAMS, RpcError
from batten.serve.acp.opening import SURFACE
from batten.session.history import prompts_of

_PAGE = 50


def list_sessions(journal: Journal, cwd: str | None, cursor: str | None) -> ListSessionsResult:
    """Sessions that were opened here; the cursor is how many of the store's were looked at."""
    begin = _place(cursor)
    workspace = None if cwd is None else _real(cwd)
    rows = journal.sessions(workspace_path=workspace, limit=begin + _PAGE + 1)[begin:]
    shown = [_info(journal, row) for row in rows[:_PAGE] if row.surface == SURFACE]
    more = str(begin + _PAGE) if len(rows) > _PAGE else None
    return ListSessionsResult(sessions=shown, next_cursor=more)


def _place(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise RpcError(INVALID_PARAMS, "the cursor is not one that was given here")
    return int(cursor)


def _real(cwd: str) -> str:
    import os

    if not os.path.isabs(cwd):
        raise RpcError(INVALID_PARAMS, f"cwd {cwd!r} is not an absolute path")
    return os.path.realpath(cwd)


def _info(journal: Journal, row: SessionRow) -> SessionInfo:
    runs = prompts_of(journal, row.session_id)
    title = title_of(runs[0].prompt) if runs else None
    return SessionInfo(
        session_id=row.session_id,
        cwd=row.workspace_path,
        title=title,
        updated_at=row.updated_at,
    )
