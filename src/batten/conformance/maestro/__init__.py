"""Maestro's headless protocol 2026-04-02 on standard input and output."""

from batten.conformance.check import Check, checks_in
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
    return checks_in(
        handshake, roles, messages, prompting, asking, stopping, utilities, watching, ending
    )
