"""What a session's answers repeat of its config, and what was observed beside it; since 0.4."""

from typing import Any

from batten.protocols.heddle import runtime
from batten.protocols.heddle.requests import Later
from batten.protocols.heddle.versions import Spoken


def echoed(later: Later, spoken: Spoken, session_id: str, routed_model: str) -> dict[str, Any]:
    """The fields of `init_ok`, `status_ok` and `result` that only some sessions have."""
    told: dict[str, Any] = {}
    if later.runtime is not None:
        told["runtime"] = runtime.echo(later.runtime, session_id)
    observed = {"routed_model": routed_model} if routed_model else {}
    if later.routing is not None:
        told["routing"] = {**later.routing, **observed}
        if spoken.has("0.5.0"):
            told["requested_routing"] = later.routing
    if observed and spoken.has("0.5.0"):
        told["effective_routing"] = observed
    return told
