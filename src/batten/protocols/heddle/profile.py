"""A session's capabilities and configuration, for clients that compare workers; since 0.5."""

from typing import Any

import msgspec

from batten.protocols.heddle.requests import Later


def capabilities(tools: tuple[str, ...]) -> dict[str, Any]:
    return {
        "enabled_tools": sorted(tools),
        "explicit_tool_allowlist": True,
        "runtime_modes": ["default", "isolated"],
        "transcript_placement": True,
        "failure_details_version": "v2",
        "routing_request_metadata": True,
        "effective_routing_metadata": True,
        "cache_usage_metrics": True,
        "cancellation": True,
        "turn_state_events": True,
    }


def profile(later: Later, model: str, tools: tuple[str, ...], iterations: int) -> dict[str, Any]:
    """Equal configurations have equal fingerprints. It holds no prompt, path or secret."""
    from hashlib import sha256

    facts = {
        "model": model,
        "tools": sorted(tools),
        "runtime_mode": "default" if later.runtime is None else later.runtime.mode,
        "max_iterations": iterations,
        "permissions": later.permissions is not None,
        "hooks": later.hooks is not None,
    }
    digest = sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()
    return {"fingerprint": f"sha256:{digest}", "model": model}
