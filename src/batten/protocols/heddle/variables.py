"""The `HEDDLE_*` variables. What makes no sense in one is as if it were not set."""

from collections.abc import Mapping
from math import isfinite

from msgspec import Struct

from batten.protocols.heddle.approval import ApprovalMode, read_mode
from batten.protocols.heddle.versions import parse

HEARTBEAT_MS = 5000


class Variables(Struct, frozen=True, kw_only=True):
    heartbeat_ms: int = HEARTBEAT_MS
    protocol_version: str = ""
    """The version the operator lets us speak; empty for all that we know."""
    model: str = ""
    base_url: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    approval_mode: ApprovalMode | None = None
    tools: tuple[str, ...] = ()


def read(environ: Mapping[str, str]) -> Variables:
    def text(name: str) -> str:
        return environ.get(f"HEDDLE_{name}", "").strip()

    tokens, heartbeat = _number(text("MAX_TOKENS")), _number(text("HEARTBEAT_INTERVAL"))
    return Variables(
        heartbeat_ms=int(heartbeat or 0) if (heartbeat or 0) >= 1 else HEARTBEAT_MS,
        protocol_version=_version(text("PROTOCOL_VERSION")),
        model=text("MODEL"),
        base_url=text("BASE_URL"),
        max_tokens=int(tokens) if tokens is not None and tokens >= 1 else None,
        temperature=_number(text("TEMPERATURE")),
        approval_mode=read_mode(text("APPROVAL_MODE")),
        tools=tuple(name.strip() for name in text("TOOLS").split(",") if name.strip()),
    )


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
