"""Limits of stored bytes, as the environment sets them."""

from collections.abc import Mapping

from batten.contract.errors import CallerError

ARTIFACT_VARIABLE = "BATTEN_ARTIFACT_MIB"
USUAL_ARTIFACT_MIB = 2048
"""Of one body. A command that writes more has exceeded its output cap."""


def bytes_of(environ: Mapping[str, str], variable: str, usual_mib: int) -> int:
    """The limit that a variable sets. Raises `CallerError` for anything but a number of MiB."""
    given = environ.get(variable) or str(usual_mib)
    try:
        mib = float(given)
    except ValueError:
        mib = -1.0
    if not 0 < mib < 2**40:
        raise CallerError(
            f"{variable} is {given[:40]!r}; it must be a number of MiB, such as {usual_mib}",
            code="config",
        )
    return int(mib * (1 << 20))
