"""The configuration of a hosted runner: flags, then variables, then defaults."""

import os
from collections.abc import Mapping

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.runner.identity import Identity

DEFAULT_HOST = "0.0.0.0"
DEFAULT_PORT = 8080
KEYS = ("MAESTRO_WEB_API_KEY", "MAESTRO_HOSTED_RUNNER_AUTH_TOKEN")
"""Either authenticates callers of the API; the session does not see them."""
_REQUIRE = "MAESTRO_WEB_REQUIRE_KEY"
MANIFEST_KEY = "BATTEN_RUNNER_MANIFEST_KEY"
"""Signs manifests in the place of a caller's key, which may differ from runner to runner."""
UNSIGNED = "BATTEN_RUNNER_UNSIGNED_MANIFESTS"
"""With `1`, a manifest without a MAC is restored: of an older version, or of another make."""
_OFF = ("0", "false", "no", "off")

VARIABLES: dict[str, tuple[str, ...]] = {
    "runner_session_id": ("MAESTRO_RUNNER_SESSION_ID", "REMOTE_RUNNER_SESSION_ID"),
    "workspace_root": ("MAESTRO_WORKSPACE_ROOT", "WORKSPACE_ROOT"),
    "listen": ("MAESTRO_HOSTED_RUNNER_LISTEN",),
    "host": ("MAESTRO_HOSTED_RUNNER_HOST",),
    "port": ("MAESTRO_HOSTED_RUNNER_PORT", "PORT"),
    "owner_instance_id": (
        "MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID",
        "REMOTE_RUNNER_OWNER_INSTANCE_ID",
    ),
    "snapshot_root": ("MAESTRO_REMOTE_RUNNER_SNAPSHOT_ROOT", "REMOTE_RUNNER_SNAPSHOT_ROOT"),
    "restore_manifest": (
        "MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST",
        "REMOTE_RUNNER_RESTORE_MANIFEST",
    ),
    "workspace_id": ("MAESTRO_REMOTE_RUNNER_WORKSPACE_ID", "MAESTRO_WORKSPACE_ID"),
    "agent_run_id": ("MAESTRO_AGENT_RUN_ID",),
    "maestro_session_id": ("MAESTRO_SESSION_ID",),
    "attach_audience": ("MAESTRO_ATTACH_AUDIENCE",),
}
"""The variables of each field; the first that is not blank counts."""

_REQUIRED = ("runner_session_id", "workspace_root")
_PATHS = ("workspace_root", "snapshot_root", "restore_manifest")
_LONGEST = 512
_LONGEST_PATH = 4096


class RunnerConfig(Struct, frozen=True, kw_only=True):
    identity: Identity
    host: str
    port: int
    restore: str | None
    """The manifest of the runner to go on from."""
    keys: tuple[str, ...]
    """Each authenticates a caller; empty if none is wanted."""
    exported: dict[str, str]
    """Variables that the session and its commands see."""


def resolve(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> RunnerConfig:
    """Raises `CallerError` with the code `config` and what would be right."""
    found = {name: _value(name, flags, environ) for name in VARIABLES}
    for name in _REQUIRED:
        if found[name] is None:
            raise _wrong(
                f"{_flag(name)} is missing; give it, or set {' or '.join(VARIABLES[name])}"
            )
    root = os.path.realpath(found["workspace_root"] or "")
    if not os.path.isdir(root):
        raise _wrong(f"{_flag('workspace_root')} {found['workspace_root']} is not a directory")
    host, port = _address(flags, environ)
    identity = Identity(
        runner_session_id=found["runner_session_id"] or "",
        owner_instance_id=found["owner_instance_id"],
        workspace_root=root,
        snapshot_root=found["snapshot_root"],
        workspace_id=found["workspace_id"],
        agent_run_id=found["agent_run_id"],
        maestro_session_id=found["maestro_session_id"],
    )
    found["workspace_root"] = root
    return RunnerConfig(
        identity=identity,
        host=host,
        port=port,
        restore=found["restore_manifest"],
        keys=_keys(environ),
        exported=_exported(found, environ),
    )


def _value(name: str, flags: Mapping[str, str | None], environ: Mapping[str, str]) -> str | None:
    given = (flags.get(name), *(environ.get(variable) for variable in VARIABLES[name]))
    value = next((text.strip() for text in given if text is not None and text.strip()), None)
    longest = _LONGEST_PATH if name in _PATHS else _LONGEST
    if value is not None and (len(value) > longest or not value.isprintable()):
        what = f"no more than {longest} printable characters"
        raise _wrong(f"{_flag(name)} is {value[:80]!r}; it must be {what}")
    return value


def _address(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> tuple[str, int]:
    host, port = _named_address(flags, {})
    if host is None or port is None:
        also_host, also_port = _named_address({}, environ)
        host, port = host or also_host, port or also_port
    host = (host or DEFAULT_HOST).removeprefix("[").removesuffix("]")
    if port is None:
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise _wrong(
            f"the port is {port!r}; it must be a number from 1 to 65535, or 0 for a free one"
        )
    return host, int(port)


def _named_address(
    flags: Mapping[str, str | None], environ: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The host and the port, as far as they are named; `listen` before the other two."""
    listen, host, port = (_value(name, flags, environ) for name in ("listen", "host", "port"))
    if listen is None:
        return host, port
    before, _, after = listen.rpartition(":")
    return before or host, after


def manifest_keys(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of manifests: the first signs, each is accepted. Empty if manifests have no MAC."""
    own = environ.get(MANIFEST_KEY, "").strip()
    return (own,) if own else _callers_keys(environ)


def takes_unsigned(environ: Mapping[str, str]) -> bool:
    return environ.get(UNSIGNED, "").strip().lower() in ("1", "true", "yes", "on")


def _callers_keys(environ: Mapping[str, str]) -> tuple[str, ...]:
    if environ.get(_REQUIRE, "").strip().lower() in _OFF:
        return ()
    return tuple(text for name in KEYS if (text := environ.get(name, "").strip()))


def _keys(environ: Mapping[str, str]) -> tuple[str, ...]:
    keys = _callers_keys(environ)
    if not keys and environ.get(_REQUIRE, "").strip().lower() not in _OFF:
        raise _wrong(
            f"callers need a key: set {' or '.join(KEYS)}, or {_REQUIRE}=0 to let anyone in who"
            " reaches the port"
        )
    return keys


def _exported(found: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, str]:
    root = found["workspace_root"] or ""
    values = {
        "MAESTRO_PROFILE": "hosted-runner",
        "MAESTRO_WEB_REQUIRE_REDIS": "0",
        "MAESTRO_WEB_REQUIRE_CSRF": "0",
        "MAESTRO_AGENT_DIR": os.path.join(root, ".maestro/agent"),
        _REQUIRE: "1",
    }
    kept = {name: value for name, value in environ.items() if name not in (*KEYS, MANIFEST_KEY)}
    named = {VARIABLES[name][0]: value for name, value in found.items() if value is not None}
    return {**values, **kept, **named, "MAESTRO_HOSTED_RUNNER_MODE": "1"}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _wrong(message: str) -> CallerError:
    return CallerError(message, code="config")
