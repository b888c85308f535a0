"""The floors for an HTTP service: fixed answers on the same server, without anything of ours.

`/` answers at once, `/body` when it has read the body, and `/insert` when it has also stored it:
one row and one fsync, as durable as a commit of the journal.
"""

import os
import tempfile
from typing import Any

import apsw

_HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")],
}
_BODY = {"type": "http.response.body", "body": b"{}"}


def _store() -> Any:
    """A store in the directory that the bench names, or in one of its own."""
    folder = os.environ.get("BENCH_FOLDER") or tempfile.mkdtemp(prefix="bench-bare-")
    db: Any = apsw.Connection(os.path.join(folder, "bare.db"))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    return db


_db = _store()


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] != "/":
        message = await receive()
        if scope["path"] == "/insert":
            _db.execute("INSERT INTO rows (body) VALUES (?)", (message["body"],))
    await send(_HEAD)
    await send(_BODY)
