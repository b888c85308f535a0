"""Size limits for attachments and reads, and request timeouts: read once, at the start."""

from collections.abc import Mapping

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.contract.identity import is_hosted
from batten.protocols.maestro.vocabulary import RequestType


class Limits(Struct, frozen=True, kw_only=True):
    attachment_bytes: int = 10 * 1024 * 1024
    """Of one file; a file of exactly this size is accepted."""
    attachment_characters: int = 200_000
    """Of the text of one file; the rest is cut off."""
    is_confined: bool = False
    """Whether attached files must be in the workspace: clients of a hosted runner are elsewhere."""
    read_bytes: int = 2 * 1024 * 1024
    """Of one file that the client reads."""
    approval_ms: int = 3_600_000
    retry_ms: int = 3_600_000
    client_ms: int = 60_000

    def patience_s(self, kind: RequestType) -> float:
        """How long a request of this class waits for an answer."""
        match kind:
            case "approval":
                return self.approval_ms / 1000
            case "tool_retry":
                return self.retry_ms / 1000
            case _:
                return self.client_ms / 1000


VARIABLES = {
    "attachment_bytes": "MAESTRO_HEADLESS_MAX_ATTACHMENT_BYTES",
    "attachment_characters": "MAESTRO_HEADLESS_MAX_TEXT_CHARS",
    "read_bytes": "MAESTRO_HEADLESS_UTILITY_FILE_READ_MAX_BYTES",
    "approval_ms": "MAESTRO_HEADLESS_APPROVAL_TIMEOUT_MS",
    "retry_ms": "MAESTRO_HEADLESS_RETRY_TIMEOUT_MS",
    "client_ms": "MAESTRO_HEADLESS_CLIENT_TIMEOUT_MS",
}
"""The environment variable of each limit."""


def limits_of(environ: Mapping[str, str]) -> Limits:
    values: dict[str, int] = {}
    for field, variable in VARIABLES.items():
        text = environ.get(variable, "").strip()
        if text:
            values[field] = number_of(text, variable)
    return Limits(**values, is_confined=is_hosted(environ))


def number_of(text: str, variable: str) -> int:
    """Parse the value of a variable as a positive whole number."""
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text)):
        raise CallerError(
            f"{variable} is {text[:80]!r}; it is a whole number above 0", code="config"
        )
    return int(text)
