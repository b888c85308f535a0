"""Sends one message as an HTTP request: public addresses only, no redirects, a deadline.

A name is resolved once for each attempt, and the connection uses the address that was checked.
The status decides; a body that is slow, endless or broken does not make a receiver be told again.
"""

import logging
from collections.abc import Callable, Iterable
from email.utils import parsedate_to_datetime

from batten.contract.errors import BattenError, Refused
from batten.sinks.backoff import LONGEST_WAIT_S
from batten.sinks.contract import ATTEMPT_S, Attempt, Message
from batten.sinks.webhooks.signing import signature_headers
from batten.sinks.webhooks.subscription import Subscription
from batten.tools.outbound import REDIRECTS, Outbound

_GONE = 410
_log = logging.getLogger("batten.sinks")


class WebhookTransport:
    def __init__(
        self,
        subscription: Subscription,
        now: Callable[[], float],
        allow: Iterable[str] = (),
        *,
        timeout_s: float = ATTEMPT_S,
    ) -> None:
        """`allow` names hosts and ranges that need not be public."""
        self._to = subscription
        self._now = now
        self._outbound = Outbound(allow)
        self._timeout_s = timeout_s

    async def send(self, message: Message) -> Attempt:
        now = self._now()
        headers = {
            "Content-Type": "application/json",
            "X-MACP-Event": message.type,
            **signature_headers(self._to.signing(now), message.message_id, int(now), message.body),
        }
        try:
            answer = await self._outbound.send(
                "POST",
                self._to.url,
                headers=headers,
                body=message.body,
                deadline_s=self._timeout_s,
                follow=False,
                wants_body=False,
            )
        except Refused as error:
            problem = _said(error)
            _log.warning("webhook %s: %s", self._to.id, problem)
            return Attempt(result="retry", problem=problem)
        except BattenError as error:
            return Attempt(result="retry", problem=str(error)[:500])
        if 200 <= answer.status < 300:
            return Attempt(result="delivered", status=answer.status)
        if answer.status in REDIRECTS:
            problem = "the receiver redirects, which is not followed"
        else:
            problem = f"the receiver answered {answer.status} {answer.reason}".strip()
        return Attempt(
            result="refused" if answer.status == _GONE else "retry",
            status=answer.status,
            problem=problem[:500],
            retry_after_s=retry_after(answer.headers.get("retry-after", ""), self._now()),
        )

    async def aclose(self) -> None:
        """Every attempt has a connection of its own."""


def retry_after(value: str, now: float) -> float | None:
    """The seconds of a `Retry-After` header, a number or a date, at most a day."""
    if value.isascii() and value.isdigit():
        return min(float(value), LONGEST_WAIT_S)
    if not value:
        return None
    try:
        then = parsedate_to_datetime(value)
        return min(max(0.0, then.timestamp() - now), LONGEST_WAIT_S)
    except (ValueError, OverflowError):
        return None


def _said(error: Refused) -> str:
    if error.code == "address_refused":
        where = str(error).partition(", which")[0]
        return f"{where}: not a public address; sinks.allow in the settings can allow it"
    return str(error)[:500]
