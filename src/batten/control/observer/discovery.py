"""Runs for sessions that agents opened on the runtime without telling the control plane."""

from contextlib import suppress

from batten.contract import facts
from batten.contract.envelope import timestamp
from batten.contract.errors import Conflict
from batten.contract.facts import Fact
from batten.contract.ids import new_run_id, new_task_id, session_stream
from batten.control.coordination.ids import SURFACE, journal_session
from batten.control.observer.contract import SessionSnapshot
from batten.journal.contract import Journal, NewRun
from batten.protocols.macp.normaliser import VERSION
from batten.protocols.macp.redaction import parse_patterns
from batten.settings.control_plane import ControlPlaneSettings

_TTL_MS = 300_000
"""Of a session that does not tell its own."""


async def discover(
    journal: Journal, session: SessionSnapshot, settings: ControlPlaneSettings
) -> bool:
    """Queue a run that observes the session; False if there is one already."""
    chat, task_id = journal_session(session.session_id), new_task_id()
    if await journal.session(chat) is not None:
        return False
    opened: list[Fact] = [
        facts.SessionOpened(workspace_path="", task_id=task_id, surface=SURFACE),
        facts.SessionConfigured(settings={"macp_session_id": session.session_id}),
    ]
    stream = NewRun(run_id=session_stream(chat), kind="session", task_id=task_id, session_id=chat)
    run = NewRun(
        run_id=new_run_id(),
        kind="coordination",
        task_id=task_id,
        session_id=chat,
        alone=True,
    )
    with suppress(Conflict):  # another server or a client was faster
        await journal.create(stream, opened)
        await journal.create(run, [_queued(), _described(session, settings)])
        return True
    return False


def _queued() -> facts.RunQueued:
    return facts.RunQueued(
        kind="coordination",
        model=None,
        provider=None,
        workspace_path="",
        workspace_mode="in_place",
        prior_run_id=None,
        executor_type="live",
        by="session-discovery",
    )


def _described(session: SessionSnapshot, settings: ControlPlaneSettings) -> facts.MacpRunDescribed:
    lasts_ms = session.expires_at_unix_ms - session.started_at_unix_ms
    good, _ = parse_patterns(",".join(settings.macp_redact_patterns))
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
                    "source": "session-discovery",
                    "discoveredAt": timestamp(),
                    "initiator": session.initiator,
                },
            },
        },
        normaliser=VERSION,
        redact=good,
    )
