"""The runtime beside the service: the token that its server has, and the address it tells."""

import secrets
import time
from collections.abc import Callable

from batten.control.supervisor import SILENT_S

TOKEN_VARIABLE = "BATTEN_OBSERVER_TOKEN"
"""Tells the runtime's process the token that grants looking at sessions and keeping registries."""

_BEGIN = b"listening on "
_LONGEST = 4096


class HostedRuntime:
    """One token for each start of the server; the address changes when the process is replaced."""

    def __init__(
        self, *, is_wanted: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_wanted = is_wanted
        """Whether the service has such a process at all."""
        self.token = secrets.token_urlsafe(32)
        self.address = ""
        """Empty until the process has told it."""
        self._said = b""
        self._clock = clock
        self._heard_at = clock()

    @property
    def fault(self) -> str:
        """Why it cannot be used now; empty if it can."""
        if not self.is_wanted:
            return "this service has no runtime"
        if not self.address:
            return "the runtime beside this service does not run yet"
        silent_s = self._clock() - self._heard_at
        if silent_s > SILENT_S:
            return f"the runtime beside this service hangs: it said nothing for {silent_s:.0f} s"
        return ""

    def heard(self, said: bytes) -> None:
        """Take what the process wrote: its address in a line, then a dot now and then."""
        self._heard_at = self._clock()
        *lines, rest = (self._said + said).split(b"\n")
        self._said = rest[-_LONGEST:]
        for line in lines:
            _, found, address = line.partition(_BEGIN)
            if found:
                self.address = address.decode("ascii", "replace").strip()

    def lost(self) -> None:
        """The process has ended."""
        self.address, self._said = "", b""
