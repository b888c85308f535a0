"""Failures of a model call, each a `ProviderError` with a stable code.

Code                 Meaning                                           Tried again
model_unreachable    no connection, or it broke                        yes
model_timeout        connected, but silent longer than our patience    yes
model_protocol       bytes that are not what the provider documents    twice
model_rate_limited   too many requests                                 yes
model_overloaded     the provider has no capacity now                  yes
model_server_error   the provider failed                               yes
model_auth           the key is missing, wrong or not entitled         no
model_quota          the account has no credit                         no
model_not_found      no such model or address                          no
model_bad_request    the request is not acceptable                     no
context_overflow     the request is longer than the model's context    no

If such a failure ends the run, `run.failed` carries this code.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from batten.contract.errors import ProviderError
from batten.contract.numbers import parse_number

_BY_STATUS_ALONE = frozenset({401, 403, 429})
"""Statuses whose meaning no body changes."""

_RETRIABLE = frozenset(
    {
        "model_unreachable",
        "model_timeout",
        "model_protocol",
        "model_rate_limited",
        "model_overloaded",
        "model_server_error",
    }
)

_BY_STATUS = {
    401: "model_auth",
    402: "model_quota",
    403: "model_auth",
    404: "model_not_found",
    408: "model_timeout",
    409: "model_server_error",
    413: "context_overflow",
    429: "model_rate_limited",
    503: "model_overloaded",
    504: "model_timeout",
    529: "model_overloaded",
}

_BY_KIND = {
    "authentication_error": "model_auth",
    "permission_error": "model_auth",
    "invalid_api_key": "model_auth",
    "UNAUTHENTICATED": "model_auth",
    "PERMISSION_DENIED": "model_auth",
    "billing_error": "model_quota",
    "insufficient_quota": "model_quota",
    "not_found_error": "model_not_found",
    "model_not_found": "model_not_found",
    "NOT_FOUND": "model_not_found",
    "request_too_large": "context_overflow",
    "context_length_exceeded": "context_overflow",
    "rate_limit_error": "model_rate_limited",
    "rate_limit_exceeded": "model_rate_limited",
    "RESOURCE_EXHAUSTED": "model_rate_limited",
    "timeout_error": "model_timeout",
    "DEADLINE_EXCEEDED": "model_timeout",
    "overloaded_error": "model_overloaded",
    "server_is_overloaded": "model_overloaded",
    "slow_down": "model_overloaded",
    "UNAVAILABLE": "model_overloaded",
    "api_error": "model_server_error",
    "server_error": "model_server_error",
    "INTERNAL": "model_server_error",
    "invalid_request_error": "model_bad_request",
    "invalid_prompt": "model_bad_request",
    "INVALID_ARGUMENT": "model_bad_request",
}

_OVERFLOW_WORDS = (
    "prompt is too long",
    "exceed context limit",
    "maximum context length",
    "context window",
    "context length",
    "available context size",
    "maximum number of tokens",
)

_LONGEST_MESSAGE = 500
_LONGEST_ANSWER = 16 * 1024
"""Limit in bytes of an error answer kept whole; of a longer one only the message is kept."""


def fault(
    provider: str,
    code: str,
    message: str,
    *,
    status: int | None = None,
    retry_after_s: float | None = None,
    answer: object = None,
) -> ProviderError:
    return ProviderError(
        f"{provider}: {message}",
        code=code,
        retriable=code in _RETRIABLE,
        status=status,
        retry_after_s=retry_after_s,
        provider=provider,
        answer=answer,
    )


def broken(provider: str, message: str) -> ProviderError:
    """The provider violates its documented protocol."""
    return fault(provider, "model_protocol", message)


def from_answer(
    provider: str, status: int, headers: Mapping[str, str], body: bytes
) -> ProviderError:
    """The error that an HTTP response reports."""
    if 300 <= status < 400:
        where = headers.get("location", "nowhere")
        return ProviderError(
            f"{provider}: redirected to {where}; set the base address to where the API is",
            code="model_protocol",
            status=status,
            provider=provider,
        )
    answer = _loads(body)
    kinds, words, delay = _read_error(answer)
    if not words:
        words = body[:_LONGEST_MESSAGE].decode("utf-8", "replace").strip()
    after = _retry_after(headers)
    return _named(
        provider,
        kinds,
        words,
        otherwise=_code_of_status(status),
        status=status,
        retry_after_s=after if after is not None else delay,
        answer=answer if 0 < len(body) <= _LONGEST_ANSWER and answer is not None else words or None,
    )


def from_event(provider: str, error: object) -> ProviderError:
    """The error that a stream reports after status 200."""
    kinds, words, delay = _read_error({"error": error})
    status = _status_in(error)
    return _named(
        provider,
        kinds,
        words,
        otherwise="model_server_error" if status is None else _code_of_status(status),
        status=status,
        retry_after_s=delay,
        answer={"error": error},
    )


def error_in(body: bytes) -> object | None:
    """The error that a JSON response in place of a stream reports; None if it reports none."""
    answer = _first(_loads(body))
    kinds, words, _ = _read_error(answer)
    return cast("dict[str, object]", answer)["error"] if kinds or words else None


def _named(
    provider: str,
    kinds: list[str],
    words: str,
    *,
    otherwise: str,
    status: int | None,
    retry_after_s: float | None,
    answer: object,
) -> ProviderError:
    code = next((_BY_KIND[kind] for kind in kinds if kind in _BY_KIND), otherwise)
    # The status is more specific than a general kind: 529 can come with `api_error`.
    if status is not None and (status >= 500 or status in _BY_STATUS_ALONE):
        code = otherwise
    if code == "model_bad_request" and any(word in words.lower() for word in _OVERFLOW_WORDS):
        code = "context_overflow"
    if code == "model_bad_request" and "api key not valid" in words.lower():
        # Google's response to a wrong key.
        code = "model_auth"
    kind = f" ({kinds[0]})" if kinds else ""
    answered = f"answered {status}{kind}" if status is not None else f"failed{kind}"
    message = f"{answered}: {words[:_LONGEST_MESSAGE]}" if words else answered
    return fault(provider, code, message, status=status, retry_after_s=retry_after_s, answer=answer)


def _code_of_status(status: int) -> str:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return "model_server_error" if status >= 500 else "model_bad_request"


def _status_in(error: object) -> int | None:
    """The HTTP status that a gateway gives as the code of an error in a stream."""
    code = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
    return code if type(code) is int and 400 <= code < 600 else None


def _loads(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _read_error(answer: object) -> tuple[list[str], str, float | None]:
    """Kinds (most specific first), message and delay of an error object of any provider."""
    answer = _first(answer)
    if not isinstance(answer, dict):
        return [], "", None
    error = cast("dict[str, Any]", answer).get("error")
    if isinstance(error, str):
        return [], error, None
    if not isinstance(error, dict):
        return [], "", None
    fields = cast("dict[str, Any]", error)
    kinds = [
        value for key in ("code", "type", "status") if isinstance(value := fields.get(key), str)
    ]
    words = fields.get("message")
    return kinds, words if isinstance(words, str) else "", _delay_of(fields.get("details"))


def _first(answer: object) -> object:
    """Google wraps an error in a list."""
    if not isinstance(answer, list):
        return answer
    entries = cast("list[object]", answer)
    return entries[0] if entries else None


def _delay_of(details: object) -> float | None:
    """Google's `RetryInfo`: `{"retryDelay": "12s"}` among the details."""
    for detail in cast("list[object]", details) if isinstance(details, list) else []:
        if isinstance(detail, dict):
            delay = cast("dict[str, Any]", detail).get("retryDelay")
            if isinstance(delay, str) and delay.endswith("s"):
                return _seconds(delay[:-1])
    return None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    millis = _seconds(headers.get("retry-after-ms", ""))
    if millis is not None:
        return millis / 1000
    value = headers.get("retry-after", "")
    seconds = _seconds(value)
    return seconds if seconds is not None or not value else _until(value)


def _seconds(text: str) -> float | None:
    seconds = parse_number(text)
    return seconds if seconds is not None and seconds >= 0 else None


def _until(date: str) -> float | None:
    """Seconds until an HTTP date."""
    import time
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
