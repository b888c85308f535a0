"""Ports for programs that have to be told one."""

import socket
from contextlib import suppress
from random import SystemRandom

_random = SystemRandom()


def free_port() -> int:
    """A port of loopback that is free, and that nobody else is given before it is used.

    It is below those that the kernel gives to whoever asks for any: a connection of another test
    could take one of them at any time.
    """
    while True:
        port = _random.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
