"""A snapshot in place of one that the runtime could not give."""

from msgspec import UNSET

from batten.protocols.maestro import PROTOCOL_VERSION
from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.protocols.maestro.snapshot import RuntimeState
from batten.runner.evidence import FlushStatus
from batten.runner.flush import Flush

STATUS: dict[FlushStatus, str] = {
    "completed": "Drained",
    "failed": "Drain interrupted before runtime flush completed",
    "skipped": "Drain skipped: no runtime activity was available",
}


def snapshot(session_id: str, workspace: str, flushed: Flush) -> RuntimeSnapshot:
    return RuntimeSnapshot(
        protocol_version=PROTOCOL_VERSION,
        session_id=session_id,
        cursor=flushed.cursor or 0,
        last_init=None,
        state=RuntimeState(
            protocol_version=PROTOCOL_VERSION,
            session_id=session_id,
            cwd=workspace,
            last_error=UNSET if flushed.error is None else flushed.error,
            last_error_type=UNSET if flushed.error is None else "protocol",
            last_status=STATUS[flushed.status],
            is_ready=flushed.status == "completed",
        ),
    )
