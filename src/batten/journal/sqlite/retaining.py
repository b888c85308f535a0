"""What a store holds beyond limits of age, count and size: runs and artifacts, oldest first."""

from collections.abc import AsyncGenerator

from batten.journal.removal import Bounds, OldArtifact
from batten.journal.sqlite.reader import Reader
from batten.journal.sqlite.reclaiming import size_of

_PAGE = 200
_RUNS = (
    "FROM runs WHERE kind != 'session' AND ended_at IS NOT NULL"
    # A run that was pruned whole has one fact left, the marker.
    " AND next_sequence - base_sequence > 1"
)
_ARTIFACTS = "FROM artifacts WHERE kind != 'sealed' AND released = 0"
_OF_ENDED = (
    " AND pinned = 0 AND EXISTS (SELECT 1 FROM runs WHERE runs.run_id = artifacts.run_id"
    " AND ended_at IS NOT NULL)"
)


async def old_runs(reader: Reader, bounds: Bounds) -> AsyncGenerator[str, None]:
    excess = 0
    if bounds.most is not None:
        excess = _number(reader, f"SELECT count(*) {_RUNS}") - bounds.most
    last = ("", "")
    while rows := reader.all(
        f"SELECT ended_at, run_id {_RUNS} AND (ended_at, run_id) > (?, ?)"
        " ORDER BY ended_at, run_id LIMIT ?",
        (*last, _PAGE),
    ):
        for ended_at, run_id in rows:
            is_old = bounds.since is not None and ended_at < bounds.since
            if not is_old and excess <= 0 and not _is_too_large(reader, bounds):
                return
            yield run_id
            excess -= _has_gone(reader, run_id)
        last = rows[-1]


def _is_too_large(reader: Reader, bounds: Bounds) -> bool:
    return bounds.most_bytes is not None and size_of(reader).database > bounds.most_bytes


def _has_gone(reader: Reader, run_id: str) -> bool:
    return not _number(reader, f"SELECT count(*) {_RUNS} AND run_id = ?", run_id)


def old_artifacts(reader: Reader, bounds: Bounds) -> list[OldArtifact]:
    [(count, size)] = reader.all(f"SELECT count(*), coalesce(sum(size_bytes), 0) {_ARTIFACTS}")
    excess = 0 if bounds.most is None else count - bounds.most
    too_many = 0 if bounds.most_bytes is None else size - bounds.most_bytes
    found: list[OldArtifact] = []
    last = ""
    while rows := reader.all(
        f"SELECT artifact_id, created_at, run_id, size_bytes, deleted_at {_ARTIFACTS}{_OF_ENDED}"
        " AND artifact_id > ? ORDER BY artifact_id LIMIT ?",
        (last, _PAGE),
    ):
        for artifact_id, created_at, run_id, size_bytes, deleted_at in rows:
            is_old = bounds.since is not None and created_at < bounds.since
            if not is_old and excess <= 0 and too_many <= 0:
                return found
            found.append(OldArtifact(artifact_id, run_id, size_bytes, deleted_at is not None))
            excess -= 1
            too_many -= size_bytes
        last = rows[-1][0]
    return found


def released_digests(reader: Reader, run_id: str) -> list[str]:
    """The digests of bodies that a run's artifacts no longer need."""
    found = reader.all(
        "SELECT DISTINCT sha256 FROM artifacts WHERE run_id = ? AND released = 1 AND sha256 != ''",
        (run_id,),
    )
    return [digest for (digest,) in found]


def _number(reader: Reader, sql: str, *bindings: str) -> int:
    [(number,)] = reader.all(sql, bindings)
    return int(number)
