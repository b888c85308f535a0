"""Runs for sessions that agents opened on the runtime without telling the control plane."""

from contextlib import suppress

from msgspec import UNSET

from batten.contract import facts
from batten.contract.envelope import timestamp
from batten.contract.errors import Conflict
from batten.contract.ids import new_run_id
from batten.control.coordination.ids import journal_session
from batten.control.coordination.records import Keeping
from batten.control.coordination.run_facts import new_stream, queued
from batten.control.observer.contract import SessionSnapshot
from batten.journal.contract import NewRun
from batten.protocols.macp.normaliser import VERSION
from batten.settings.control_plane import ControlPlaneSettings

_SOURCE = "session-discovery"
_TTL_MS = 300_000
"""Of a session that does not tell its own."""


async def discover(
    keeping: Keeping, session: SessionSnapshot, settings: ControlPlaneSettings
) -> bool:
    """Queue a run that observes the session; False if it has a run already."""
    journal = keeping.journal
    if await journal.session(journal_session(session.session_id)) is not None:
        return False
    stream, opened = new_stream(session.session_id, keeping.identity)
    run = NewRun(
        run_id=new_run_id(),
        kind="coordination",
        task_id=stream.task_id,
        session_id=stream.session_id,
        first=True,
    )
    with suppress(Conflict):  # another server or a client was faster
        await journal.create(stream, opened)
        first = queued(_SOURCE, identity=keeping.identity)
        await journal.create(run, [first, _described(session, settings)])
        return True
    return False


def _described(session: SessionSnapshot, settings: ControlPlaneSettings) -> facts.MacpRunDescribed:
    lasts_ms = session.expires_at_unix_ms - session.started_at_unix_ms
    return facts.MacpRunDescribed(
        session_id=session.session_id,
        descriptor={
            "mode": "live",
            "runtime": {"kind": "rust"},
            "session": {
                "sessionId": session.session_id,
                "modeName": session.mode,
                "modeVersion": session.mode_version,
                "configurationVersion": session.configuration_version,
                "policyVersion": session.policy_version,
                "ttlMs": lasts_ms if lasts_ms > 0 else _TTL_MS,
                "participants": [{"id": one} for one in session.participants],
                "metadata": {
                    "source": _SOURCE,
                    "discoveredAt": timestamp(),
                    "initiator": session.initiator,
                },
            },
        },
        normaliser=VERSION,
        redact=list(settings.macp_redact_patterns) or UNSET,
        by=_SOURCE,
        elsewhere=True,
    )
