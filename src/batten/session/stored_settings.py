"""A session's settings as facts: recorded when they change, read back when it is resumed."""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import UNSET, UnsetType

from batten.agent.settings import RunSettings
from batten.contract.errors import CallerError
from batten.contract.facts import SessionConfigured
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Journal, SessionRow
from batten.journal.keeping import must_seal
from batten.journal.recorder import Recorder, open_sealed
from batten.redact.seal import SealKey
from batten.session import history


def record_settings(
    recorder: Recorder, settings: RunSettings, before: RunSettings | None = None, by: str = ""
) -> Awaitable[object]:
    """Record the settings, with a sealed copy for the resume if they hold a secret."""
    plain = msgspec.to_builtins(settings)
    exact = msgspec.json.encode(plain)
    sealed: str | None = None
    if must_seal(recorder.redactor, plain, exact):
        sealed = recorder.seal(exact, summary="settings")
    changed: list[str] | UnsetType = UNSET
    if before is not None:
        names = RunSettings.__struct_fields__
        changed = [name for name in names if getattr(settings, name) != getattr(before, name)]
    return recorder.record(SessionConfigured(plain, sealed or UNSET, changed, by or UNSET))


async def settings_of(row: SessionRow, journal: Journal, key: Callable[[], SealKey]) -> RunSettings:
    """The session's last settings. Raises `Refused` if they are sealed and the key is gone."""
    settings: object = row.settings
    stream = session_stream(SessionId(row.session_id))
    given = [
        fact
        async for fact in history.facts_of(journal, stream)
        if isinstance(fact, SessionConfigured)
    ]
    if given and given[-1].sealed_artifact_id is not UNSET:
        sealed = await open_sealed(journal, key(), given[-1].sealed_artifact_id)
        settings = msgspec.json.decode(sealed)
    try:
        return msgspec.convert(settings, RunSettings)
    except msgspec.ValidationError as error:
        raise CallerError(
            f"the settings of session {row.session_id} do not fit this version: {error}",
            code="config",
        ) from error
