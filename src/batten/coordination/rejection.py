"""Why the runtime refuses a message: a code of the MACP registry, and the policy's denials."""

from typing import Literal

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError

Code = Literal[
    "UNSUPPORTED_PROTOCOL_VERSION",
    "INVALID_ENVELOPE",
    "INVALID_SESSION_ID",
    "SESSION_ALREADY_EXISTS",
    "SESSION_NOT_FOUND",
    "SESSION_NOT_OPEN",
    "MODE_NOT_SUPPORTED",
    "FORBIDDEN",
    "UNAUTHENTICATED",
    "PAYLOAD_TOO_LARGE",
    "RATE_LIMITED",
    "INTERNAL_ERROR",
    "UNKNOWN_POLICY_VERSION",
    "POLICY_DENIED",
    "INVALID_POLICY_DEFINITION",
    "REGISTRY_READ_ONLY",
    "INVALID_REQUEST",
    "STREAM_LAGGED",
    "AGENT_NOT_FOUND",
]

DenialCode = Literal[
    "veto",
    "veto_hold",
    "quorum_not_met",
    "threshold_not_met",
    "confidence_below_minimum",
    "evaluation_required",
    "no_votes",
    "decline_over_approval",
    "decline_not_backed",
    "criterion_not_met",
    "output_required",
    "reassignment_not_allowed",
    "unsupported_schema_version",
    "invalid_rules",
]


class Denial(Struct, frozen=True):
    """One reason why a policy denies."""

    code: DenialCode
    message: str
    participants: tuple[str, ...] = ()
    """The participants it concerns: those who objected, declined or have not voted."""


class Rejection(CallerError):
    """A message or request that the runtime does not accept. It changes nothing."""

    def __init__(self, code: Code, message: str, denials: tuple[Denial, ...] = ()) -> None:
        super().__init__(message, code=code)
        self.macp_code: Code = code
        self.denials = denials

    @property
    def details(self) -> bytes:
        """JSON for `MACPError.details`; empty unless a policy denied."""
        if not self.denials:
            return b""
        reasons = [denial.message for denial in self.denials]
        return msgspec.json.encode({"reasons": reasons, "denials": self.denials})


def invalid(message: str) -> Rejection:
    return Rejection("INVALID_ENVELOPE", message)


def forbidden(message: str) -> Rejection:
    return Rejection("FORBIDDEN", message)


def not_found(session_id: str) -> Rejection:
    return Rejection("SESSION_NOT_FOUND", f"there is no session {session_id}")


def denied(*denials: Denial) -> Rejection:
    reasons = "; ".join(denial.message for denial in denials)
    return Rejection("POLICY_DENIED", f"the policy denies it: {reasons}", denials)
