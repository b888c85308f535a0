"""Sessions with ended runs, for tests of upkeep; and journals of older formats."""

from pathlib import Path
from typing import Any, cast

import apsw
from msgspec import UNSET

from batten.contract.facts import Fact, SessionOpened, UserMessage
from batten.contract.ids import new_session_id, new_task_id, session_stream
from batten.journal.contract import Body, Journal
from tests.journal.given import FINISHED, artifact, called, new_run, started, text

FORMAT_1 = Path(__file__).with_name("format_1.sql")


async def ended_session(
    journal: Journal,
    *,
    facts: int = 5,
    body: bytes | None = None,
    forked_from: str | None = None,
    ends: bool = True,
    cost: int | None = 100,
) -> str:
    """A session with one run: a prompt, an answer that costs, perhaps an artifact; in no use."""
    session_id, task_id = new_session_id(), new_task_id()
    stream = new_run(
        run_id=session_stream(session_id), kind="session", session_id=session_id, task_id=task_id
    )
    opened = SessionOpened("/work", task_id, "print", forked_from=forked_from or UNSET)
    held, _ = await journal.create(stream, [opened])
    assert held is not None
    lease = await started(journal, session_id=session_id, task_id=task_id)
    given: list[Fact] = [UserMessage(1, f"do {session_id}"), called(cost)]
    given += [text("x" * 500)] * facts
    bodies: list[Body] = []
    if body is not None:
        bodies.append(journal.inline(body))
        given.append(artifact(f"art_{session_id[5:]}", bodies[0].sha256))
    await journal.append(lease.run_id, given, fence=lease.fence, bodies=bodies)
    if ends:
        await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
    await journal.release(lease)
    await journal.release(held)
    return session_id


def age(home: Path, session_id: str, at: str = "2020-01-01T00:00:00.000Z") -> None:
    """Let a session and its runs look as if they were last used then."""
    db = cast(Any, apsw.Connection(str(home / "journal.db")))
    db.execute("UPDATE sessions SET updated_at = ? WHERE session_id = ?", (at, session_id))
    db.execute(
        "UPDATE runs SET created_at = ?1, ended_at = ?1"
        " WHERE session_id = ?2 AND ended_at IS NOT NULL",
        (at, session_id),
    )
    db.close()


def to_format_1(home: Path) -> None:
    """Rewrite a journal as the first version of this program would have: its tables, its pragmas.

    The definitions are frozen in `format_1.sql`; the content is copied row by row.
    """
    new, old = home / "journal.db", home / "old.db"
    db = cast(Any, apsw.Connection(str(old)))
    db.pragma("application_id", 0x42544E31)
    db.pragma("journal_mode", "wal")
    db.execute(FORMAT_1.read_text())
    db.execute("ATTACH ? AS new", (str(new),))
    for (table,) in db.execute(
        "SELECT name FROM main.sqlite_schema WHERE type = 'table'"
    ).fetchall():
        names = [row[1] for row in db.execute(f"PRAGMA main.table_info({table})").fetchall()]
        columns = ", ".join(names)
        db.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    db.execute("DETACH new")
    db.pragma("user_version", 1)
    db.close()
    for suffix in ("-wal", "-shm"):
        new.with_name(new.name + suffix).unlink(missing_ok=True)
    old.rename(new)
