"""Maps the fields of `init` to the session's settings."""

from typing import Any

from batten.agent.settings import RunSettings
from batten.protocols.maestro.incoming import Init
from batten.protocols.maestro.vocabulary import ApprovalMode, ThinkingLevel

_THINKING: dict[ThinkingLevel, int] = {
    "off": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "ultra": 32_768,
}
_ANSWER_TOKENS = 8192
"""Output tokens for the answer itself, besides thinking."""
_ASKING_NOBODY = ("dontAsk", "bypassPermissions", "disabled")


def approval_mode_of(settings: RunSettings) -> ApprovalMode:
    """The approval mode before the client sets one: that of a resumed session, if it still fits."""
    if settings.mode in _ASKING_NOBODY:
        return "auto"
    return "fail" if settings.denies_asked else "prompt"


def changes_of(init: Init, settings: RunSettings) -> dict[str, Any]:
    """The settings to change, by the names of `RunSettings`."""
    changes: dict[str, Any] = {}
    if init.system_prompt is not None:
        changes |= {"system": init.system_prompt, "append_system": ""}
    if init.append_system_prompt is not None:
        own = changes.get("system", settings.system)
        place = "append_system" if own is None else "system"
        before = settings.append_system if own is None else own
        changes[place] = "\n\n".join(filter(None, (before, init.append_system_prompt)))
    if init.thinking_level is not None:
        thinking = _THINKING[init.thinking_level]
        most = max(settings.max_output_tokens, thinking + _ANSWER_TOKENS if thinking else 0)
        changes |= {"thinking_tokens": thinking, "max_output_tokens": most}
    if init.approval_mode is not None:
        changes["mode"] = _mode(init.approval_mode, settings)
        changes["denies_asked"] = init.approval_mode == "fail"
    return changes


def _mode(asked: ApprovalMode, settings: RunSettings) -> str:
    """The permission mode; a mode stricter than asking stays in force."""
    if asked == "auto":
        return settings.mode if settings.mode == "bypassPermissions" else "dontAsk"
    return "default" if settings.mode in _ASKING_NOBODY else settings.mode


def applied(init: Init) -> str:
    """The status message for the client."""
    fields = {
        "system_prompt": init.system_prompt,
        "append_system_prompt": init.append_system_prompt,
        "thinking_level": init.thinking_level,
        "approval_mode": init.approval_mode,
        "client_tools": init.client_tools,
    }
    names = [name for name, value in fields.items() if value is not None]
    return f"Initialized: {', '.join(names)}" if names else "Init received with no changes"
