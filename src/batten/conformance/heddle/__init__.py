"""Heddle's headless protocol 0.2.0."""

from batten.conformance.check import Check
from batten.conformance.heddle import (
    cancelling,
    ending,
    handshake,
    later,
    requests,
    sending,
    tools,
)

GATE = "heddle.init.answered"


def checks() -> tuple[Check, ...]:
    return (
        *handshake.CHECKS,
        *requests.CHECKS,
        *sending.CHECKS,
        *tools.CHECKS,
        *cancelling.CHECKS,
        *ending.CHECKS,
        *later.CHECKS,
    )
