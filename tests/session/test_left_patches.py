"""Patches a killed process proposed: their files tell what became of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batten.contract.facts import ArtifactUpdated, Fact, RunQueued
from batten.contract.ids import new_run_id
from batten.journal.contract import Lease, NewRun, RunRow
from batten.journal.recorder import Content, Recorder
from batten.journal.sqlite import SqliteJournal
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.session.reverting import patches_left_open, revert_run
from batten.workspace import patches

BEFORE, AFTER = b"one\n", b"one\ntwo\n"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal.open(tmp_path / "home")
    yield journal
    journal.close()


def _ignore(_fact: Fact, _content: Content) -> None:
    return


async def _proposed(
    journal: SqliteJournal, workspace: Path, before: bytes | None = BEFORE
) -> tuple[RunRow, SealKey, str]:
    """A run whose process is gone, and its one patch, of which nothing more was told."""
    new = NewRun(run_id=new_run_id(), kind="agent_loop", worker_id="worker-gone", lease_s=-1)
    queued = RunQueued(
        kind="agent_loop",
        model="m",
        provider="p",
        workspace_path=str(workspace),
        workspace_mode="in_place",
        prior_run_id=None,
    )
    lease, _ = await journal.create(new, [queued])
    assert lease is not None
    key = SealKey.load(journal.home)
    recorder = _recorder(journal, lease, key)
    body = patches.propose("file.txt", before, AFTER)
    diff = patches.readable(body)
    sealed = recorder.seal(patches.encode(body), summary="exact patch")
    artifact_id = recorder.artifact(
        "patch",
        diff.text.encode(),
        mime_type="text/x-diff",
        summary="file.txt",
        status="proposed",
        metadata={**patches.metadata(body, diff.stats), "sealed_artifact_id": sealed},
    )
    await recorder.record()
    row = await journal.run(new.run_id)
    assert row is not None
    return row, key, artifact_id


def _recorder(journal: SqliteJournal, lease: Lease, key: SealKey) -> Recorder:
    return Recorder(
        journal,
        lease,
        task_id=None,
        redactor=Redactor(),
        seal_key=lambda: key,
        observe=_ignore,
    )


@pytest.mark.parametrize(
    ("found", "status"), [(AFTER, "applied"), (BEFORE, "rejected"), (b"three\n", None)]
)
async def test_the_file_tells_whether_a_patch_was_made(
    journal: SqliteJournal, tmp_path: Path, found: bytes, status: str | None
) -> None:
    (tmp_path / "file.txt").write_bytes(found)
    row, key, artifact_id = await _proposed(journal, tmp_path)
    told = [] if status is None else [ArtifactUpdated(artifact_id, "status", "proposed", status)]
    assert await patches_left_open(journal, lambda: key, row) == told


async def test_a_new_file_that_is_not_there_was_never_written(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    row, key, artifact_id = await _proposed(journal, tmp_path, before=None)
    assert await patches_left_open(journal, lambda: key, row) == [
        ArtifactUpdated(artifact_id, "status", "proposed", "rejected")
    ]


async def test_without_the_key_nobody_can_tell(journal: SqliteJournal, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_bytes(AFTER)
    row, _, _ = await _proposed(journal, tmp_path)
    assert await patches_left_open(journal, lambda: SealKey(bytes(32)), row) == []


async def test_a_change_nobody_lived_to_tell_of_is_reverted_too(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    (tmp_path / "file.txt").write_bytes(AFTER)
    row, key, _ = await _proposed(journal, tmp_path)
    reverted = await revert_run(
        journal, key, Redactor(), row, home=journal.home, paths=[], by="operator", reason="test"
    )
    assert reverted == ["file.txt"]
    assert (tmp_path / "file.txt").read_bytes() == BEFORE
