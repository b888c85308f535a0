"""Tokens and cost as Claude Code counts them, for one prompt and for a whole process."""

from collections.abc import Callable
from typing import Any

from batten.contract.facts.assistant import StopReason, Usage, added
from batten.protocols.claude.names import claude_model

_STOP_REASONS = frozenset({"end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal"})


def stop_reason_of(reason: StopReason) -> str | None:
    """The API's stop reason, or None if it has no such reason."""
    return reason if reason in _STOP_REASONS else None


def usage_of(usage: Usage) -> dict[str, Any]:
    """In this API `input_tokens` excludes tokens read from or written to a cache."""
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": max(0, usage.input_tokens - cached),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }


class Totals:
    """The usage of all prompts of one process, by model. An unknown cost stays unknown."""

    def __init__(self, window: Callable[[str], int | None] = lambda model: None) -> None:
        """`window`: the tokens that a model takes, by its name with the provider's."""
        self._window = window
        self._windows: dict[str, int | None] = {}
        self._usage: dict[str, Usage] = {}
        self._micros: dict[str, int | None] = {}

    def add(self, model: str, usage: Usage, cost_micros_usd: int | None) -> None:
        name = claude_model(model)
        if name not in self._windows:
            self._windows[name] = self._window(model)
        self._usage[name] = added(self._usage.get(name, Usage()), usage)
        before = self._micros.get(name, 0)
        unknown = before is None or cost_micros_usd is None
        self._micros[name] = None if unknown else (before or 0) + (cost_micros_usd or 0)

    @property
    def cost_usd(self) -> float | None:
        known = [cost for cost in self._micros.values() if cost is not None]
        return sum(known) / 1e6 if len(known) == len(self._micros) else None

    def by_model(self) -> dict[str, dict[str, Any]]:
        return {name: self._model(name, usage) for name, usage in self._usage.items()}

    def _model(self, name: str, usage: Usage) -> dict[str, Any]:
        counted = usage_of(usage)
        micros = self._micros[name]
        fields: dict[str, Any] = {
            "inputTokens": counted["input_tokens"],
            "outputTokens": counted["output_tokens"],
            "cacheReadInputTokens": counted["cache_read_input_tokens"],
            "cacheCreationInputTokens": counted["cache_creation_input_tokens"],
            "webSearchRequests": 0,
        }
        if micros is not None:
            fields["costUSD"] = micros / 1e6
        if (window := self._windows[name]) is not None:
            fields["contextWindow"] = window
        return fields
