"""Undoing a run's changes: also after a revert that was killed, and never in our own home."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from batten.contract.errors import Refused
from batten.contract.facts import Fact, RunQueued, ToolEditReverted
from batten.contract.ids import new_run_id
from batten.journal.contract import NewRun, RunRow
from batten.journal.recorder import Content, Recorder
from batten.journal.sqlite import SqliteJournal
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.session.history import facts_of
from batten.session.reverting import revert_run
from batten.workspace import patches

_KILLED = """
import asyncio, os, signal, sys
from batten.journal.sqlite import SqliteJournal
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.session.reverting import revert_run

home, run_id, last = sys.argv[1:]
journal = SqliteJournal.open(home)

def kill_before(event, arguments):
    if event in ("os.rename", "os.remove") and last in arguments[:2]:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill_before)
asyncio.run(revert_run(
    journal, SealKey.load(home), Redactor(), journal.run_now(run_id),
    home=home, paths=[], by="operator", reason="first",
))
"""

Change = tuple[bytes | None, bytes | None]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal.open(tmp_path / "home")
    yield journal
    journal.close()


def _ignore(_fact: Fact, _content: Content) -> None:
    return


async def _changed(
    journal: SqliteJournal, workspace: Path, changes: Mapping[str, list[Change]]
) -> RunRow:
    """A run whose process is gone, and which changed these files one way after the other."""
    new = NewRun(run_id=new_run_id(), kind="agent_loop", worker_id="worker-gone", lease_s=-1)
    queued = RunQueued("agent_loop", "m", "p", str(workspace), "in_place", None)
    lease, _ = await journal.create(new, [queued])
    assert lease is not None
    key = SealKey.load(journal.home)
    recorder = Recorder(
        journal,
        lease,
        task_id=None,
        redactor=Redactor(),
        seal_key=lambda: key,
        observe=_ignore,
    )
    for path, steps in changes.items():
        for before, after in steps:
            body = patches.propose(path, before, after)
            diff = patches.readable(body)
            sealed = recorder.seal(patches.encode(body), summary="exact patch")
            recorder.artifact(
                "patch",
                diff.text.encode(),
                mime_type="text/x-diff",
                summary=path,
                status="applied",
                metadata={**patches.metadata(body, diff.stats), "sealed_artifact_id": sealed},
            )
        last = steps[-1][1]
        if last is not None:
            (workspace / path).write_bytes(last)
    await recorder.record()
    row = await journal.run(new.run_id)
    assert row is not None
    return row


async def _revert(journal: SqliteJournal, row: RunRow) -> list[str]:
    key = SealKey.load(journal.home)
    return await revert_run(
        journal, key, Redactor(), row, home=journal.home, paths=[], by="operator", reason="again"
    )


def _kill_between(journal: SqliteJournal, row: RunRow, last: str) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, journal.home, row.run_id, last], timeout=30, check=False
    )
    assert killed.returncode == -signal.SIGKILL


CHANGES: Mapping[str, list[Change]] = {
    "a.txt": [(b"a0\n", b"a1\n"), (b"a1\n", b"a2\n")],
    "b.txt": [(b"b0\n", b"b1\n")],
    "new.txt": [(None, b"new\n")],
}


@pytest.mark.parametrize("last", ["a.txt", "b.txt", "new.txt"])
async def test_a_revert_killed_before_any_file_is_finished_by_the_next(
    journal: SqliteJournal, tmp_path: Path, last: str
) -> None:
    row = await _changed(journal, tmp_path, CHANGES)
    _kill_between(journal, row, last)
    made = len(await journal.artifacts(row.run_id))
    assert set(await _revert(journal, row)) == set(CHANGES)
    assert (tmp_path / "a.txt").read_bytes() == b"a0\n"
    assert (tmp_path / "b.txt").read_bytes() == b"b0\n"
    assert not (tmp_path / "new.txt").exists()
    assert len(await journal.artifacts(row.run_id)) == made  # the inverses kept before are used
    told = [
        fact async for fact in facts_of(journal, row.run_id) if isinstance(fact, ToolEditReverted)
    ]
    assert len(told) == 4
    patches_now = await journal.artifacts(row.run_id, kind="patch")
    assert {patch.status for patch in patches_now} == {"applied"}
    assert await journal.verify() == []


async def test_what_somebody_changed_after_the_kill_is_still_refused_by_name(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    row = await _changed(journal, tmp_path, CHANGES)
    _kill_between(journal, row, "a.txt")
    assert not (tmp_path / "new.txt").exists()
    (tmp_path / "a.txt").write_bytes(b"mine\n")
    with pytest.raises(patches.BaseChanged) as refused:
        await _revert(journal, row)
    assert refused.value.paths == ("a.txt",)
    assert (tmp_path / "a.txt").read_bytes() == b"mine\n"


async def test_a_revert_never_writes_into_our_home(journal: SqliteJournal, tmp_path: Path) -> None:
    row = await _changed(journal, tmp_path, {"home/notes.txt": [(b"before\n", b"after\n")]})
    with pytest.raises(Refused):
        await _revert(journal, row)
    assert (tmp_path / "home" / "notes.txt").read_bytes() == b"after\n"
