"""Maestro's headless protocol 2026-04-02 on standard input and output."""

from batten.conformance.check import Check
from batten.conformance.maestro import (
    asking,
    ending,
    handshake,
    messages,
    prompting,
    roles,
    stopping,
    utilities,
    watching,
)

GATE = "maestro.hello.answered"


def checks() -> tuple[Check, ...]:
    return (
        *handshake.CHECKS,
        *roles.CHECKS,
        *messages.CHECKS,
        *prompting.CHECKS,
        *asking.CHECKS,
        *stopping.CHECKS,
        *utilities.CHECKS,
        *watching.CHECKS,
        *ending.CHECKS,
    )
