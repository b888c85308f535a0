"""The result of a run: its outcome, answer, usage and cost."""

from typing import Any

from msgspec import UNSET, Struct

from batten.contract.outcomes import Outcome


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens, each counted once among the four counters, and the model that used them."""

    input_tokens: int
    """Tokens neither read from nor written to a cache."""
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    model: str
    provider: str

    @property
    def total_tokens(self) -> int:
        cached = self.cache_read_tokens + self.cache_write_tokens
        return self.input_tokens + self.output_tokens + cached


class Result(Struct, frozen=True, kw_only=True):
    """How one run ended."""

    run_id: str
    """The id for `batten show` and `batten events`."""
    outcome: Outcome
    text: str
    """The answer: what the model wrote after its last tool call."""
    message: str = ""
    """Why it ended so, unless it completed."""
    usage: Usage
    cost_usd: float | None
    """None if the model's price is unknown."""
    duration_s: float
    first_token_s: float | None = None
    """From the prompt to the first token, thinking included."""
    tools_used: tuple[str, ...] = ()
    calls_succeeded: int = 0
    calls_failed: int = 0
    problems: tuple[str, ...] = ()
    """Problems on the way, including those the run recovered from."""
    structured_output: Any = UNSET
    """The answer as a JSON value, if the prompt had a schema and the run completed."""

    @property
    def completed(self) -> bool:
        return self.outcome == "completed"
