"""The settings of a run: one frozen value, stored with the session."""

from typing import Any

from msgspec import Struct

from batten.agent.doom import THRESHOLD
from batten.agent.rules.rule import Rule
from batten.agent.rules.verdict import Mode
from batten.models.retry import MAX_RETRIES

PARALLEL_READS = 8


class RunSettings(Struct, frozen=True, kw_only=True):
    models: tuple[str, ...]
    """Names as `provider/model`. The first is used; the others are fallbacks, in order."""
    mode: Mode = "default"
    rules: tuple[Rule, ...] = ()
    max_turns: int | None = None
    budget_micros_usd: int | None = None
    """For the whole task: earlier runs of the session and child runs count."""
    spent_before_micros_usd: int = 0
    """The part of the budget that the task had spent when the budget was given."""
    max_seconds: float | None = None
    max_retries: int = MAX_RETRIES
    """Further attempts at a model call that fails."""
    parallel_reads: int = PARALLEL_READS
    """How many read-only calls of one message may run at the same time."""
    system: str | None = None
    """Replaces our own system prompt."""
    append_system: str = ""
    max_output_tokens: int = 8192
    temperature: float | None = None
    thinking_tokens: int = 0
    record_thinking: bool = False
    """Whether thinking is journaled as `assistant.thinking_*`; otherwise only live clients see it.
    """
    output_schema: dict[str, Any] | None = None
    tools: tuple[str, ...] | None = None
    """Names of the tools to offer; None offers all."""
    resolvers: tuple[str, ...] = ()
    """Roles that answer this run's requests. If none is declared, policy denies at once."""
    denies_asked: bool = False
    """Whether Maestro's clients want calls denied that would otherwise be asked about."""
    request_seconds: float = 300.0
    doom_threshold: int = THRESHOLD
    """So many turns in a row with the same calls end the run."""
    prune_from_tokens: int = 20_000
    protect_tokens: int = 40_000
    compact_ratio: float = 0.8
    compact_model: str | None = None
    """The model that summarizes old messages, as `provider/model`; None for the answering model."""
    fail_on: tuple[str, ...] = ()
    """Failures that keep a run from ending as completed: `denied`, `tool_error`."""
    auto_apply: bool = True
    """Whether edits change files; otherwise they stay proposed until a client applies them."""
    instructions: bool = True
    """Whether project instructions and memory are read."""
