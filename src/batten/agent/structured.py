"""An answer that must fit a JSON Schema: requested, validated, and requested again twice."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from batten.contract.depth import DEEPEST, is_too_deep
from batten.contract.facts import ErrorModelCapabilityMissing
from batten.models.contract import Model, ModelRequest

RETRIES = 2
_MOST_STARTS = 50
"""Opening brackets to try: each costs a scan through the rest of the text."""
_OPENING = re.compile(r"[{\[]")


class Structured:
    """Does nothing without a schema."""

    def __init__(self, schema: dict[str, Any] | None) -> None:
        self._schema = schema
        self._retries = RETRIES
        self._reported: set[str] = set()
        self.value: Any = UNSET

    def suit(self, request: ModelRequest, model: Model) -> ModelRequest:
        """The request with the schema, in the system prompt if the model has no native support."""
        if self._schema is None:
            return request
        if model.native_schema:
            return replace(request, output_schema=self._schema)
        wanted = msgspec.json.encode(self._schema).decode()
        words = f"Your final answer is only a JSON value that fits this schema: {wanted}"
        return replace(request, system=f"{request.system}\n\n{words}")

    def missing(self, model: Model) -> ErrorModelCapabilityMissing | None:
        """The fact that a model enforces no schema, the first time it is asked for one."""
        name = f"{model.provider}/{model.name}"
        if self._schema is None or model.native_schema or name in self._reported:
            return None
        self._reported.add(name)
        return ErrorModelCapabilityMissing(
            model=model.name,
            missing_capability="structured_output",
            fallback_strategy="schema_in_prompt",
        )

    def check(self, answer: str) -> str | None:
        """The validator's errors; None if the answer fits."""
        if self._schema is None:
            return None
        from batten.tools.schema import validator_for

        validator = validator_for(self._schema)
        problem = "the answer holds no JSON object"
        longest = 0
        for value, size in json_values(answer):
            wrong = _problem(value, validator)
            if wrong is None:
                self.value = value
                return None
            if size > longest:  # the answer itself, rather than an aside
                problem, longest = wrong, size
        return problem

    def tries_left(self) -> int:
        """Count one failure; how many tries remained before it."""
        left = self._retries
        self._retries -= 1
        return max(left, 0)

    def again(self, problem: str) -> str:
        return f"That did not fit the schema: {problem}. Answer again with only the JSON value."


def _problem(value: Any, validator: Any) -> str | None:
    """Why a value does not fit; None if it does."""
    if is_too_deep(value):
        return f"the answer is nested more than {DEEPEST} levels deep"
    errors = [
        f"{'.'.join(map(str, error.instance_path)) or 'value'}: {error.message}"
        for error in validator.iter_errors(value)
    ]
    return "; ".join(errors[:5]) or None


def json_values(text: str) -> Iterator[tuple[Any, int]]:
    """The text as JSON, or else each object and array in it, outermost only; with its length."""
    try:
        yield msgspec.json.decode(text), len(text)
        return
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    at = 0
    for _ in range(_MOST_STARTS):
        found = _OPENING.search(text, at)
        if found is None:
            return
        at = found.start() + 1
        end = _end_of(text, found.start())
        if end is not None:
            try:
                value = msgspec.json.decode(text[found.start() : end])
            except (msgspec.DecodeError, RecursionError, ValueError):
                continue
            at = end
            yield value, end - found.start()


def _end_of(text: str, start: int) -> int | None:
    """Where the object or array that begins at `start` ends; brackets in strings do not count."""
    depth, in_string, escaped = 0, False, False
    for index in range(start, len(text)):
        letter = text[index]
        if escaped:
            escaped = False
        elif in_string:
            escaped = letter == "\\"
            in_string = letter != '"'
        elif letter == '"':
            in_string = True
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
            if depth == 0:
                return index + 1
    return None
