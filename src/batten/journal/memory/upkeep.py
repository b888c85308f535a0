"""Removal of sessions from a store in memory, and sums over it. The caller holds the mutex.

The space of what is removed is freed when the store closes.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec.structs import replace

from batten.contract.errors import Conflict, NotFound
from batten.journal.contract import LedgerRow, RunRow
from batten.journal.created import row_of
from batten.journal.deletable import why_kept
from batten.journal.memory.store import MemoryStore
from batten.journal.removal import (
    Bounds,
    Extent,
    Grouping,
    OldArtifact,
    OnRemoved,
    Removable,
    Removal,
    RemovalLimits,
    StoreSize,
    UsageSum,
)


def removables(store: MemoryStore) -> list[Removable]:
    """All sessions, most recently used first."""
    rows = _rows(store)
    found = [
        Removable(
            session.session_id,
            True,
            max(
                [session.updated_at, *(row.ended_at or "" for row in _of(rows, session.session_id))]
            ),
            session.workspace_path,
        )
        for session in store.sessions.values()
    ]
    found += [
        Removable(row.run_id, False, row.ended_at or row.created_at, row.workspace_path)
        for row in rows
        if row.session_id is None and row.parent_run_id is None
    ]
    return sorted(found, key=lambda one: (one.used_at, one.name), reverse=True)


def extent(store: MemoryStore, one: Removable) -> Extent:
    rows = _runs_of(store, one)
    names = {row.run_id for row in rows}
    facts = sum(size + 64 for name in names for size in store.runs[name].sizes)
    digests = {row.sha256 for row in store.artifacts.values() if row.run_id in names}
    bodies = sum(store.bodies[digest].size for digest in digests if digest in store.bodies)
    prompts = [row.prompt for row in rows if row.prompt]
    runs = sum(row.kind != "session" for row in rows)
    return Extent(runs, facts + bodies, prompts[0] if prompts else "")


def size_of(store: MemoryStore) -> StoreSize:
    facts = sum(sum(index.sizes) for index in store.runs.values())
    return StoreSize(facts, sum(body.size for body in store.bodies.values()))


def remove_sessions(
    store: MemoryStore, limits: RemovalLimits, on_removed: OnRemoved, *, is_plan: bool
) -> Removal:
    before = size_of(store)
    result = Removal(before=before, after=before)
    left = before.total

    def take(one: Removable) -> None:
        nonlocal left
        gone = frozenset(known.name for known in result.removed)
        problem = _obstacle(store, one, prunes=True, only_ended=True, gone=gone)
        if problem is not None:
            result.spared.append((one, str(problem)))
            return
        size = extent(store, one)
        if not is_plan:
            _delete(store, one, prunes=True)
        left -= size.bytes
        result.removed.append(one)
        on_removed(one, size)

    old, rest = limits.split(removables(store))
    # A session whose forks go too goes after them, and forks are younger.
    for one in old:
        take(one)
    for one in rest:
        if limits.max_bytes is None or left <= limits.max_bytes:
            break
        take(one)
    result.after = StoreSize(max(0, left), 0) if is_plan else size_of(store)
    return result


def delete_session(store: MemoryStore, session_id: str, *, only_ended: bool) -> None:
    one = Removable(session_id, True, "", "")
    if not _runs_of(store, one):
        raise NotFound(f"there is no session {session_id}")
    problem = _obstacle(store, one, prunes=False, only_ended=only_ended)
    if problem is not None:
        raise problem
    _delete(store, one, prunes=False)


def _obstacle(
    store: MemoryStore,
    one: Removable,
    *,
    prunes: bool,
    only_ended: bool,
    gone: frozenset[str] = frozenset(),
) -> Conflict | None:
    rows = _runs_of(store, one)
    names = {row.run_id for row in rows}
    pinned = (
        row.artifact_id
        for row in store.artifacts.values()
        if prunes and row.pinned and row.deleted_at is None and row.run_id in names
    )
    forks = (
        row.session_id
        for row in store.sessions.values()
        if row.forked_from == one.name and row.session_id not in gone
    )
    return why_kept(one.name, rows, pinned, forks, only_ended=only_ended)


def _delete(store: MemoryStore, one: Removable, *, prunes: bool) -> None:
    for row in _runs_of(store, one):
        if prunes:
            store.past_usage.append((row, store.ledger.get(row.run_id, [])))
        index = store.runs.pop(row.run_id)
        index.forget(len(index.types))
        # The feed passes over what is before the base.
        index.state = replace(index.state, base_sequence=index.state.next_sequence)
        store.ledger.pop(row.run_id, None)
        store.unreserve(row.run_id)
        for rows in (store.requests, store.artifacts):
            for name in [name for name, each in rows.items() if each.run_id == row.run_id]:
                del rows[name]
    store.sessions.pop(one.name, None)
    drop_bodies(store)


def drop_bodies(store: MemoryStore) -> None:
    """Forget the bodies that no artifact needs."""
    rows = store.artifacts.values()
    needed = {row.sha256 for row in rows if row.artifact_id not in store.released}
    for digest in store.bodies.keys() - needed:
        del store.bodies[digest]


def old_runs(store: MemoryStore, bounds: Bounds) -> Iterator[str]:
    def left() -> list[RunRow]:
        return [row for row in _rows(store) if _is_whole(row)]

    for row in sorted(left(), key=lambda row: (row.ended_at or "", row.run_id)):
        is_old = bounds.since is not None and (row.ended_at or "") < bounds.since
        is_one_of_many = bounds.most is not None and len(left()) > bounds.most
        is_large = bounds.most_bytes is not None and size_of(store).database > bounds.most_bytes
        if not (is_old or is_one_of_many or is_large):
            return
        yield row.run_id


def _is_whole(row: RunRow) -> bool:
    """Whether an ended run has more than the marker of its pruning."""
    is_ended = row.kind != "session" and row.ended_at is not None
    return is_ended and row.next_sequence - row.base_sequence > 1


def old_artifacts(store: MemoryStore, bounds: Bounds) -> list[OldArtifact]:
    rows = sorted(
        (
            row
            for row in store.artifacts.values()
            if row.kind != "sealed" and row.artifact_id not in store.released
        ),
        key=lambda row: row.artifact_id,
    )
    excess = 0 if bounds.most is None else len(rows) - bounds.most
    size = sum(row.size_bytes for row in rows)
    too_many = 0 if bounds.most_bytes is None else size - bounds.most_bytes
    found: list[OldArtifact] = []
    for row in rows:
        if row.pinned or store.run(row.run_id).fold.ended_at is None:
            continue
        is_old = bounds.since is not None and row.created_at < bounds.since
        if not is_old and excess <= 0 and too_many <= 0:
            break
        is_deleted = row.deleted_at is not None
        found.append(OldArtifact(row.artifact_id, row.run_id, row.size_bytes, is_deleted))
        excess -= 1
        too_many -= row.size_bytes
    return found


def usage(store: MemoryStore, by: Grouping, since: str | None, until: str | None) -> list[UsageSum]:
    sums: dict[str, UsageSum] = {}

    def add(name: str, **more: int | bool) -> None:
        before = sums.get(name, UsageSum(name=name))
        added = {key: getattr(before, key) + value for key, value in more.items()}
        unknown = bool(added.pop("cost_unknown", before.cost_unknown))
        sums[name] = replace(before, cost_unknown=unknown, **added)

    runs = ((row, store.ledger.get(row.run_id, [])) for row in _rows(store))
    for row, calls in (*runs, *store.past_usage):
        is_within = (since or "") <= row.created_at and (until is None or row.created_at < until)
        if row.kind == "session" or not is_within:
            continue
        add(_group(by, row, calls[0] if calls else None), runs=1, cost_unknown=row.cost_unknown)
        for call in calls:
            add(
                _group(by, row, call),
                calls=1,
                input_tokens=call.input_tokens,
                output_tokens=call.output_tokens,
                cache_read_tokens=call.cache_read_tokens,
                cache_write_tokens=call.cache_write_tokens,
                cost_micros_usd=call.cost_micros_usd or 0,
                cost_unknown=call.cost_micros_usd is None,
            )
    return [sums[name] for name in sorted(sums)]


def _group(by: Grouping, row: RunRow, call: LedgerRow | None) -> str:
    """The group of a run by its first call, or of one of its calls."""
    match by:
        case "all":
            return ""
        case "day":
            return row.created_at[:10]
        case "local_day":
            return f"{datetime.fromisoformat(row.created_at).astimezone():%Y-%m-%d}"
        case "workspace":
            return row.workspace_path
        case "model":
            model = (row.model or "") if call is None else call.model
            provider = (row.provider or "") if call is None else call.provider
            return f"{provider}/{model}" if model else ""


def _rows(store: MemoryStore) -> list[RunRow]:
    return [row_of(index.state) for index in store.runs.values()]


def _of(rows: Iterable[RunRow], session_id: str) -> list[RunRow]:
    return [row for row in rows if row.session_id == session_id]


def _runs_of(store: MemoryStore, one: Removable) -> list[RunRow]:
    """The runs of a session; or a run with its child runs."""
    rows = _rows(store)
    if one.is_session:
        return _of(rows, one.name)
    names = {one.name}
    for row in rows:  # in the order of creation: a child comes after its parent
        if row.parent_run_id in names:
            names.add(row.run_id)
    return [row for row in rows if row.run_id in names]
