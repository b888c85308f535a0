"""The runtime beside the service: the token that its server has, and the address it tells."""

import secrets

TOKEN_VARIABLE = "BATTEN_OBSERVER_TOKEN"
"""Tells the runtime's process the token that grants looking at sessions and keeping registries."""

_BEGIN = b"listening on "
_LONGEST = 4096


class HostedRuntime:
    """One token for each start of the server; the address changes when the process is replaced."""

    def __init__(self, *, is_wanted: bool = True) -> None:
        self.is_wanted = is_wanted
        """Whether the service has such a process at all."""
        self.token = secrets.token_urlsafe(32)
        self.address = ""
        """Empty until the process has told it."""
        self._said = b""

    def heard(self, said: bytes) -> None:
        """Take what the process wrote: its address in a line, then a dot now and then."""
        *lines, rest = (self._said + said).split(b"\n")
        self._said = rest[-_LONGEST:]
        for line in lines:
            _, found, address = line.partition(_BEGIN)
            if found:
                self.address = address.decode("ascii", "replace").strip()

    def lost(self) -> None:
        """The process has ended."""
        self.address, self._said = "", b""
