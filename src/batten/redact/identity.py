"""The ids that a launcher set, as they are recorded with sessions and runs."""

from collections.abc import Mapping

from batten.contract.identity import TRACE_IDS, identity_of
from batten.redact.redactor import Redactor


def recorded_identity(environ: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """Ids look like secrets of no known form, so only what is known to be one is replaced."""
    named = identity_of(environ).items()
    return {name: redactor.authored.text(value) for name, value in named}


def service_identity(environ: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """The ids of a service's launcher, for all its runs. Their traces are those of requests."""
    found = recorded_identity(environ, redactor)
    return {name: value for name, value in found.items() if name not in TRACE_IDS}
