"""The floors for an HTTP service: fixed answers on the same server, without anything of ours.

`/` answers at once, `/bytes/N` with so many bytes, `/body` when it has read the body, and `/insert`
when it has also stored it: one row and one fsync, as durable as a commit of the journal.
"""

import asyncio
import os
import socket
import sys
import tempfile
from functools import cache
from typing import Any

import apsw

from batten.serve.http.limits import Limits
from batten.serve.http.listener import Listener
from batten.serve.http.request import Request

_HEADERS = ((b"content-type", b"application/json"),)


def _store() -> Any:
    """A store in the directory that the bench names, or in one of its own."""
    folder = os.environ.get("BENCH_FOLDER") or tempfile.mkdtemp(prefix="bench-bare-")
    db: Any = apsw.Connection(os.path.join(folder, "bare.db"))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    return db


_db = _store()


async def respond(request: Request) -> None:
    answer = b"{}"
    if request.path.startswith("/bytes/"):
        answer = _answer_of(int(request.path.removeprefix("/bytes/")))
    elif request.path != "/":
        body, _ = await request.piece()
        if request.path == "/insert":
            _db.execute("INSERT INTO rows (body) VALUES (?)", (body,))
    await request.answer(200, _HEADERS, answer)


@cache
def _answer_of(size: int) -> bytes:
    return bytes(size)


async def main() -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    async with asyncio.TaskGroup() as group:
        listener = Listener(listening, lambda _: respond, Limits(), 1000, group)
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await listener.closed()


if __name__ == "__main__":
    asyncio.run(main())
