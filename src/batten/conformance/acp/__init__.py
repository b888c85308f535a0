"""The Agent Client Protocol, version 1, on standard input and output."""

from batten.conformance.acp import (
    calls,
    cancelling,
    handshake,
    lending,
    permission,
    prompting,
    sessions,
)
from batten.conformance.check import Check, checks_in

GATE = "acp.initialize.answered"


def checks() -> tuple[Check, ...]:
    return checks_in(handshake, calls, sessions, prompting, permission, cancelling, lending)
