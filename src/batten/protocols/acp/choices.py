"""The options of our sessions: permission mode, model and thinking budget."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from batten.protocols.acp.methods import ModeState
from batten.protocols.acp.options import Choice, SelectOption
from batten.protocols.acp.rpc import INVALID_PARAMS, RpcError

_THINKING = {"off": 0, "low": 2048, "medium": 8192, "high": 32_768}
"""Thinking budgets in tokens."""


class InForce(Struct, frozen=True):
    """The current settings of a session."""

    modes: ModeState
    model: str
    models: Sequence[str]
    """The models on offer."""
    thinking_tokens: int


def options_of(current: InForce) -> list[SelectOption]:
    """Every option with its current value; a value that is not on offer is added to the list."""
    modes = [
        Choice(value=mode.id, name=mode.name, description=mode.description)
        for mode in current.modes.available_modes
    ]
    models = dict.fromkeys([*current.models, current.model])
    level = _level(current.thinking_tokens)
    levels = dict.fromkeys([*_THINKING, level])
    return [
        SelectOption(
            id="mode",
            name="Mode",
            description="What is done without asking.",
            category="mode",
            current_value=current.modes.current_mode_id,
            options=modes,
        ),
        SelectOption(
            id="model",
            name="Model",
            category="model",
            current_value=current.model,
            options=[Choice(value=name, name=name) for name in models],
        ),
        SelectOption(
            id="thinking",
            name="Thinking",
            description="How much the model thinks before it answers, from the next prompt on.",
            category="thought_level",
            current_value=level,
            options=[Choice(value=name, name=name.capitalize()) for name in levels],
        ),
    ]


def change_of(options: Sequence[SelectOption], option_id: str, value: str | bool) -> dict[str, Any]:
    """The settings that a choice changes; `RpcError` if the option or value does not exist."""
    option = next((one for one in options if one.id == option_id), None)
    if option is None:
        known = ", ".join(one.id for one in options)
        raise RpcError(
            INVALID_PARAMS, f"no option is named {option_id[:200]!r}; there are: {known}"
        )
    values = [choice.value for choice in option.options]
    if not isinstance(value, str) or value not in values:
        problem = f"{str(value)[:200]!r} is no value of {option_id}; there are: {', '.join(values)}"
        raise RpcError(INVALID_PARAMS, problem)
    if option_id == "thinking":
        return {"thinking_tokens": _THINKING.get(value) or _tokens(value)}
    return {option_id: value}


def _level(tokens: int) -> str:
    """The name of a level, or its number of tokens."""
    named = {count: name for name, count in _THINKING.items()}
    return named.get(tokens, f"{tokens} tokens")


def _tokens(level: str) -> int:
    count, _, _ = level.partition(" ")
    return int(count) if count.isascii() and count.isdecimal() else 0
