"""The `HEDDLE_*` variables, which override the operator's `config.toml`. Invalid values count as
unset."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from msgspec import Struct

from batten.protocols.heddle.approval import ApprovalMode, read_mode
from batten.protocols.heddle.versions import parse

HEARTBEAT_MS = 5000
LOOP_THRESHOLD = 3
"""Equal consecutive iterations that end a send."""
_YES = ("1", "true")


class Variables(Struct, frozen=True, kw_only=True):
    heartbeat_ms: int = HEARTBEAT_MS
    protocol_version: str = ""
    """The version to offer in place of the latest; empty for the latest."""
    model: str = ""
    weak_model: str = ""
    """The model that summarizes."""
    api_key: str = ""
    base_url: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    approval_mode: ApprovalMode | None = None
    doom_loop_threshold: int = LOOP_THRESHOLD
    compact_trigger: float | None = None
    prune_protect: int | None = None
    debug: tuple[str, ...] = ()
    """Debug channels to log; `*` is all of them."""
    debug_file: str = ""


def read(environ: Mapping[str, str], config: Mapping[str, Any] | None = None) -> Variables:
    """`config` is the content of the file in Heddle's directory; a variable overrides it."""
    sources = _Sources(environ, config or {})
    tokens, heartbeat = sources.number("max_tokens"), sources.variable("HEARTBEAT_INTERVAL")
    threshold = sources.number("doom_loop_threshold") or 0
    protect = sources.number("prune_protect")
    trigger, beat_ms = sources.number("compact_trigger"), _number(heartbeat) or 0
    return Variables(
        heartbeat_ms=int(beat_ms) if beat_ms >= 1 else HEARTBEAT_MS,
        protocol_version=_version(sources.variable("PROTOCOL_VERSION")),
        model=sources.text("model"),
        weak_model=sources.text("weak_model"),
        api_key=environ.get("OPENROUTER_API_KEY", "").strip() or sources.text("api_key"),
        base_url=sources.text("base_url"),
        max_tokens=int(tokens) if tokens is not None and tokens >= 1 else None,
        temperature=sources.number("temperature"),
        approval_mode=read_mode(sources.text("approval_mode")),
        doom_loop_threshold=int(threshold) if threshold >= 2 else LOOP_THRESHOLD,
        compact_trigger=trigger if trigger is not None and 0 < trigger <= 1 else None,
        prune_protect=int(protect) if protect is not None and protect >= 1 else None,
        debug=_channels(sources.variable("DEBUG")),
        debug_file=sources.variable("DEBUG_FILE"),
    )


class _Sources:
    """The two sources of a value, variables first."""

    def __init__(self, environ: Mapping[str, str], config: Mapping[str, Any]) -> None:
        self._environ = environ
        self._config = config

    def variable(self, name: str) -> str:
        return self._environ.get(f"HEDDLE_{name}", "").strip()

    def text(self, key: str) -> str:
        held = self._config.get(key)
        return self.variable(key.upper()) or (held.strip() if isinstance(held, str) else "")

    def number(self, key: str) -> float | None:
        found = _number(self.variable(key.upper()))
        held = self._config.get(key)
        if found is not None or isinstance(held, bool) or not isinstance(held, int | float):
            return found
        return float(held) if isfinite(held) and held >= 0 else None


def _channels(text: str) -> tuple[str, ...]:
    if text.lower() in _YES:
        return ("*",)
    return tuple(name.strip() for name in text.split(",") if name.strip() not in ("", "0", "false"))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None


def _version(text: str) -> str:
    try:
        parse(text)
    except ValueError:
        return ""
    return text
