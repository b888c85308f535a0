"""Heddle's headless protocol 0.2.0."""

from batten.conformance.check import Check, checks_in
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
    return checks_in(handshake, requests, sending, tools, cancelling, ending, later)
