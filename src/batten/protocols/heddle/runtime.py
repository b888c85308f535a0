"""Where a session stores its transcript, and how responses report it; since 0.4."""

import os.path
from typing import Any

from batten.contract.errors import CallerError
from batten.protocols.heddle.requests import Runtime

_MODES = ("default", "isolated")


def check(runtime: Runtime) -> None:
    """Raises `CallerError` for invalid values; relative paths are invalid."""
    if runtime.mode not in _MODES:
        raise CallerError(f"runtime.mode must be one of {', '.join(_MODES)}")
    if runtime.mode == "isolated" and runtime.state_root is None:
        raise CallerError("runtime.state_root is required when runtime.mode is isolated")
    for name in ("state_root", "transcript_path"):
        path = getattr(runtime, name)
        if path is not None and not os.path.isabs(path):
            raise CallerError(f"runtime.{name} must be an absolute path")


def transcript_path(runtime: Runtime, session_id: str) -> str | None:
    """The transcript's file; None for no transcript."""
    if runtime.transcript_path is not None:
        return runtime.transcript_path
    if runtime.state_root is None:
        return None
    return os.path.join(runtime.state_root, "sessions", f"{session_id}.jsonl")


def echo(runtime: Runtime, session_id: str) -> dict[str, Any]:
    """The effective runtime, as responses repeat it."""
    fields: dict[str, Any] = {"mode": runtime.mode}
    if runtime.state_root is not None:
        fields["state_root"] = runtime.state_root
    path = transcript_path(runtime, session_id)
    if path is not None:
        fields["transcript_path"] = path
    return fields
