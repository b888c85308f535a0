"""Posts exports to a collector, and reads from its answer whether to try again."""

import logging
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from batten.contract.errors import BattenError
from batten.sinks.contract import ATTEMPT_S, Attempt, Message
from batten.sinks.otel.encoding import joined
from batten.sinks.otel.environment import OtelTarget
from batten.sinks.otel.protobuf import read_partial, to_protobuf
from batten.sinks.webhooks.transport import retry_after
from batten.tools.outbound import Outbound

_AGAIN = frozenset((429, 502, 503, 504))
"""Statuses after which the protocol lets a client try again."""
_LARGEST_ANSWER = 64 * 1024
_LARGEST_BATCH = 1024 * 1024
_KEEP_S = 15.0
_log = logging.getLogger("batten.sinks")


class OtelTransport:
    """To a collector that the operator named, wherever it is. Many runs share a request."""

    most = 128

    def __init__(self, target: OtelTarget, headers: Mapping[str, Mapping[str, str]]) -> None:
        self._urls = {"traces": target.traces_url, "metrics": target.metrics_url}
        hosts = {urlsplit(url).hostname or "" for url in self._urls.values() if url}
        self._outbound = Outbound(hosts, keep_s=_KEEP_S)
        self._headers = headers
        """By the kind of export."""
        self._timeouts = target.timeouts
        self._as_protobuf = {
            kind for kind, protocol in target.protocols.items() if protocol == "http/protobuf"
        }

    async def send(self, message: Message) -> Attempt:
        return await self._post(message.type, message.body)

    async def send_all(self, messages: Sequence[Message]) -> Sequence[Attempt]:
        """One request for each kind. A collector that refuses a batch is asked about each message:
        one that it cannot read must not take the others with it.
        """
        attempts: dict[str, Attempt] = {}
        for batch in _batches(messages):
            attempt = await self._post(batch[0].type, joined(one.body for one in batch))
            is_refused = attempt.result == "refused" and not _is_good(attempt.status)
            for message in batch:
                again = is_refused and len(batch) > 1
                attempts[message.message_id] = await self.send(message) if again else attempt
        return [attempts[message.message_id] for message in messages]

    async def _post(self, kind: str, body: bytes) -> Attempt:
        is_protobuf = kind in self._as_protobuf
        type_ = "application/x-protobuf" if is_protobuf else "application/json"
        try:
            answer = await self._outbound.send(
                "POST",
                self._urls[kind],
                headers={**self._headers.get(kind, {}), "Content-Type": type_},
                body=to_protobuf(body) if is_protobuf else body,
                deadline_s=self._timeouts.get(kind, ATTEMPT_S),
                max_bytes=_LARGEST_ANSWER,
            )
        except BattenError as error:
            return Attempt(result="retry", problem=str(error)[:500])
        if _is_good(answer.status):
            if rejected := (_rejected_part if is_protobuf else _rejected)(answer.body):
                _log.warning("the collector rejected a part: %s", rejected)
                return Attempt(result="refused", status=answer.status, problem=rejected)
            return Attempt(result="delivered", status=answer.status)
        return Attempt(
            result="retry" if answer.status in _AGAIN else "refused",
            status=answer.status,
            problem=f"the collector answered {answer.status} {answer.reason}"[:500],
            retry_after_s=retry_after(answer.headers.get("retry-after", ""), time.time()),
        )

    async def aclose(self) -> None:
        await self._outbound.aclose()


def _batches(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages of each kind in order, none too large together."""
    found: list[list[Message]] = []
    for kind in dict.fromkeys(message.type for message in messages):
        size = _LARGEST_BATCH
        for message in messages:
            if message.type != kind:
                continue
            if size + len(message.body) > _LARGEST_BATCH:
                found.append([])
                size = 0
            found[-1].append(message)
            size += len(message.body)
    return found


def _is_good(status: int | None) -> bool:
    return status is not None and 200 <= status < 300


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


def _rejected_part(body: bytes) -> str:
    """The same of an answer in protobuf."""
    count, why = read_partial(body)
    return f"rejected: {why or 'no reason given'}"[:500] if count else ""
