"""Model calls that agents report in their messages, and what they cost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from batten.protocols.macp.json_values import number_of, object_of
from batten.protocols.macp.payloads import read_json, text_of

SIGNAL = "llm.call.completed"
"""The signal type whose data is a call itself."""
NANO = 1_000_000_000
_MOST_TOKENS = 10**9
_MOST_DOLLARS = 10_000
"""A call that claims more is no report of a call."""


class Rate(Struct, frozen=True):
    """Nano-dollars per token."""

    prompt: int
    completion: int


RATES: dict[str, Rate] = {
    "gpt-4o": Rate(2_500, 10_000),
    "gpt-4o-mini": Rate(150, 600),
    "gpt-4-turbo": Rate(10_000, 30_000),
    "claude-3-opus": Rate(15_000, 75_000),
    "claude-3-sonnet": Rate(3_000, 15_000),
    "claude-3-haiku": Rate(250, 1_250),
}
DEFAULT_RATE = Rate(1_000, 3_000)
"""The rate of a model that the table does not name."""

_COUNTS = (("promptTokens", "prompt_tokens"), ("completionTokens", "completion_tokens"))
_OTHERS = (
    ("model", "model"),
    ("latencyMs", "latency_ms"),
    ("provider", "provider"),
    ("prompt", "prompt"),
    ("response", "response"),
    ("estimatedCostUsd", "estimated_cost_usd"),
    ("artifactId", "artifact_id"),
)


def cost_nanos(call: Mapping[str, Any]) -> int:
    """The cost of a call: as its agent computed it, else by the rate of its model."""
    given = number_of(call.get("estimatedCostUsd"))
    if given is not None and 0 <= given <= _MOST_DOLLARS:
        return round(given * NANO)
    rate = RATES.get(str(call.get("model", "")), DEFAULT_RATE)
    return int(call["promptTokens"]) * rate.prompt + int(call["completionTokens"]) * rate.completion


def dollars(nanos: int) -> float:
    return nanos / NANO


def find_call(
    message_type: str, payload: Any, metadata: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The model call that a message reports, in the fields of `llm.call.completed`.

    The first that its payload holds, else the one that came beside it.
    """
    beside = (metadata.get("llmCall"), metadata.get("tokenUsage"))
    for candidate in (*_candidates(message_type, payload), *beside):
        fields = object_of(candidate)
        if fields is not None and (call := _call(fields)) is not None:
            return call
    return None


def _candidates(message_type: str, payload: Any) -> Iterator[Any]:
    fields = object_of(payload)
    if fields is None:
        return
    inner = object_of(fields.get("json"))
    yield from _reports([fields] if inner is None else [fields, inner])
    if message_type == "Signal":
        data = object_of(read_json(text_of(fields.get("data")) or ""))
        if data is not None:
            if fields.get("signalType") == SIGNAL:
                yield data
            yield from _reports([data])


def _reports(values: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """What may be a call, in the places where agents put one."""
    for key in ("llmCall", "tokenUsage"):
        for value in values:
            yield value.get(key)
            if (metadata := object_of(value.get("metadata"))) is not None:
                yield metadata.get(key)


def _call(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    call: dict[str, Any] = {}
    for name, other in _COUNTS:
        count = number_of(fields.get(name, fields.get(other, 0)))
        if count is None or not 0 <= count <= _MOST_TOKENS:
            return None
        call[name] = int(count)
    for name, other in _OTHERS:
        if (value := fields.get(name, fields.get(other))) is not None:
            call[name] = value
    total = call["promptTokens"] + call["completionTokens"]
    if not total and not {"model", "prompt", "response"} & call.keys():
        return None
    call["totalTokens"] = total
    return call
