"""How a run ended and what it took: the value that is left of it."""

from msgspec import Struct

from batten.contract.outcomes import Outcome


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens, each counted in one of the four counters, and which model they were for."""

    input_tokens: int
    """Those that no cache was involved in."""
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
    """One run, ended."""

    run_id: str
    """What `batten show` and `batten events` know it by."""
    outcome: Outcome
    text: str
    """What the model said after its last tool: the answer."""
    message: str = ""
    """Why it ended as it did, if not well."""
    usage: Usage
    cost_usd: float | None
    """None if no price is known for the model."""
    duration_s: float
    first_token_s: float | None = None
    """From the prompt to the first word, thinking included."""
    tools_used: tuple[str, ...] = ()
    calls_succeeded: int = 0
    calls_failed: int = 0
    problems: tuple[str, ...] = ()
    """What went wrong on the way, in words: also what the run got over."""

    @property
    def completed(self) -> bool:
        return self.outcome == "completed"
