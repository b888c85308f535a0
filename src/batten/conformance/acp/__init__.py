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
from batten.conformance.check import Check

GATE = "acp.initialize.answered"


def checks() -> tuple[Check, ...]:
    return (
        *handshake.CHECKS,
        *calls.CHECKS,
        *sessions.CHECKS,
        *prompting.CHECKS,
        *permission.CHECKS,
        *cancelling.CHECKS,
        *lending.CHECKS,
    )
