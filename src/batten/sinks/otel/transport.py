"""Posts exports to a collector, and reads from its answer whether to try again."""

import logging
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from batten.contract.errors import BattenError
from batten.sinks.contract import ATTEMPT_S, Attempt, Message
from batten.sinks.otel.environment import OtelTarget
from batten.sinks.webhooks.transport import retry_after
from batten.tools.outbound import Outbound

_AGAIN = frozenset((429, 502, 503, 504))
"""Statuses after which the protocol lets a client try again."""
_LARGEST_ANSWER = 64 * 1024
_log = logging.getLogger("batten.sinks")


class OtelTransport:
    """To a collector that the operator named, wherever it is."""

    def __init__(self, target: OtelTarget, headers: Mapping[str, str]) -> None:
        self._urls = {"traces": target.traces_url, "metrics": target.metrics_url}
        hosts = {urlsplit(url).hostname or "" for url in self._urls.values() if url}
        self._outbound = Outbound(hosts)
        self._headers = {**headers, "Content-Type": "application/json"}

    async def send(self, message: Message) -> Attempt:
        try:
            answer = await self._outbound.send(
                "POST",
                self._urls[message.type],
                headers=self._headers,
                body=message.body,
                deadline_s=ATTEMPT_S,
                max_bytes=_LARGEST_ANSWER,
            )
        except BattenError as error:
            return Attempt(result="retry", problem=str(error)[:500])
        if 200 <= answer.status < 300:
            if rejected := _rejected(answer.body):
                _log.warning("the collector rejected a part: %s", rejected)
                return Attempt(result="refused", status=answer.status, problem=rejected)
            return Attempt(result="delivered", status=answer.status)
        return Attempt(
            result="retry" if answer.status in _AGAIN else "refused",
            status=answer.status,
            problem=f"the collector answered {answer.status} {answer.reason}"[:500],
            retry_after_s=retry_after(answer.headers.get("retry-after", "")),
        )

    async def aclose(self) -> None:
        """Every export has a connection of its own."""


class _Partial(Struct, rename="camel"):
    rejected_spans: int | str = 0
    rejected_data_points: int | str = 0
    error_message: str = ""


class _Answer(Struct, rename="camel"):
    partial_success: _Partial | None = None


def _rejected(body: bytes) -> str:
    """What a collector did not take although it answered well; such a part is not sent again."""
    try:
        partial = msgspec.json.decode(body, type=_Answer).partial_success
    except (msgspec.MsgspecError, ValueError):
        return ""
    if partial is None:
        return ""
    counts = (partial.rejected_spans, partial.rejected_data_points)
    if all(str(count) == "0" for count in counts):
        return ""
    return f"rejected: {partial.error_message or 'no reason given'}"[:500]
