"""A registry whose time stands still until it is moved, and snapshots of hardly anything."""

from collections import Counter

from batten.protocols.maestro import PROTOCOL_VERSION
from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.protocols.maestro.registry import Registry
from batten.protocols.maestro.roster import Most, Timings
from batten.protocols.maestro.snapshot import RuntimeState


class Shared:
    """Ids are counted: `conn_1`, `sub_1`, `conn_2`."""

    def __init__(self, timings: Timings | None = None, most: Most | None = None) -> None:
        self.now = 1_000.0
        self._ids: Counter[str] = Counter()
        self.registry = Registry(timings or Timings(), lambda: self.now, self._new_id, most)

    def _new_id(self, kind: str) -> str:
        self._ids[kind] += 1
        return f"{kind}_{self._ids[kind]}"


def snapshot_at(cursor: int, state: RuntimeState | None = None) -> RuntimeSnapshot:
    return RuntimeSnapshot(
        protocol_version=PROTOCOL_VERSION,
        session_id="sess_1",
        cursor=cursor,
        last_init=None,
        state=state or RuntimeState(is_ready=True),
    )
