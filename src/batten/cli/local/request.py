"""What the thin client and the fork server send each other. Plain bytes: loads nothing."""

import os
import sys

from batten import __version__

SOCKET = "print.sock"
"""Its name below the home."""

ACCEPTED, REFUSED, GO, SIGNAL, EXITED, KILLED = b"A", b"R", b"G", b"s", b"x", b"k"
"""The child accepts or refuses, the client says go. Then one byte follows each of the others: the
number of a signal for the child; the exit code, or the signal that killed it, for the client.
"""

LARGEST = 8 << 20
"""Bytes of a request: the kernel allows less for arguments and environment."""
DESCRIPTORS = 4
"""Standard input, output and error, and the current directory."""
HEAD = 8
"""The length of a request, in decimal, before it."""


def identity() -> bytes:
    """The program that runs here; two sides that differ do not work together."""
    words = (__version__, os.path.dirname(os.path.dirname(__file__)), sys.prefix, sys.version)
    return "\n".join(words).encode()


def joined(parts: list[bytes]) -> bytes:
    """The parts as one text, with its length in front. None of them holds a NUL."""
    body = b"\0".join(parts)
    return b"%0*d" % (HEAD, len(body)) + body
