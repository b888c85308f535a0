"""The checks of `batten doctor`: a finding for each thing that a run needs."""

from typing import Literal

from msgspec import Struct

from batten.settings.contract import Settings

Status = Literal["ok", "warning", "problem"]


class Finding(Struct, frozen=True, omit_defaults=True):
    """A result in words."""

    subject: str
    status: Status
    """`problem`: a run without further flags fails. `warning`: it works, but less well."""
    message: str
    remedy: str = ""
    """What to do about it."""
    clock_s: float | None = None
    """Seconds by which our clock is ahead of the server that was asked."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """What the checks look at."""

    environ: dict[str, str]
    """With the variables of settings files."""
    workspace: str
    home: str
    settings: Settings
    timeout_s: float
    offline: bool
