"""How a hosted runner is told who it is: by flags, or by variables of its environment."""

import os
from collections.abc import Mapping

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.runner.identity import Identity

VARIABLES: dict[str, tuple[str, ...]] = {
    "runner-session-id": ("MAESTRO_RUNNER_SESSION_ID", "REMOTE_RUNNER_SESSION_ID"),
    "workspace-root": ("MAESTRO_WORKSPACE_ROOT", "WORKSPACE_ROOT"),
    "owner-instance-id": (
        "MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID",
        "REMOTE_RUNNER_OWNER_INSTANCE_ID",
    ),
    "snapshot-root": ("MAESTRO_REMOTE_RUNNER_SNAPSHOT_ROOT", "REMOTE_RUNNER_SNAPSHOT_ROOT"),
    "restore-manifest": (
        "MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST",
        "REMOTE_RUNNER_RESTORE_MANIFEST",
    ),
    "workspace-id": ("MAESTRO_REMOTE_RUNNER_WORKSPACE_ID", "MAESTRO_WORKSPACE_ID"),
    "agent-run-id": ("MAESTRO_AGENT_RUN_ID",),
    "maestro-session-id": ("MAESTRO_SESSION_ID",),
}
"""By the name of the flag, which goes before them; the first that is not blank counts."""

NO_FLAG = frozenset({"restore-manifest"})
"""What only the environment says."""


class Configuration(Struct, frozen=True, kw_only=True):
    identity: Identity
    restore_manifest: str | None = None
    """What to go on from; see `restore`."""


def resolved(flags: Mapping[str, str], environ: Mapping[str, str]) -> Configuration:
    """From flags by their names without dashes; raises `CallerError` for what cannot be served."""
    unknown = [name for name in flags if name not in VARIABLES or name in NO_FLAG]
    if unknown:
        known = ", ".join(f"--{name}" for name in VARIABLES if name not in NO_FLAG)
        raise _wrong(f"There is no flag --{unknown[0]}; there are {known}")
    found = {name: _value(name, flags, environ) for name in VARIABLES}
    return Configuration(
        identity=Identity(
            runner_session_id=_required("runner-session-id", found),
            owner_instance_id=found["owner-instance-id"],
            workspace_root=_directory(_required("workspace-root", found)),
            snapshot_root=found["snapshot-root"],
            workspace_id=found["workspace-id"],
            agent_run_id=found["agent-run-id"],
            maestro_session_id=found["maestro-session-id"],
        ),
        restore_manifest=found["restore-manifest"],
    )


def _value(name: str, flags: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    said = (flags.get(name, ""), *(environ.get(variable, "") for variable in VARIABLES[name]))
    return next((value.strip() for value in said if value.strip()), None)


def _required(name: str, found: Mapping[str, str | None]) -> str:
    value = found[name]
    if value is None:
        variables = " or ".join(VARIABLES[name])
        raise _wrong(f"A hosted runner needs --{name}, or {variables} in its environment")
    return value


def _directory(path: str) -> str:
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise _wrong(f"Hosted runner workspace root is not a directory: {path}")
    return real


def _wrong(message: str) -> CallerError:
    return CallerError(message, code="invalid_config")
