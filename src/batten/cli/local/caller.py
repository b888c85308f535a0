"""The thin client: lets a warm process of the service run print mode with our descriptors.

Loads neither asyncio nor msgspec nor argparse: starting Python is most of what it costs.
"""

import os
import resource
import signal
import socket
import sys

from batten.cli import current_directory, ending_signals
from batten.cli.local import request
from batten.wiring.home import batten_home

TYPE_CHECKING = False
"""As in `typing`, which takes long to load."""
if TYPE_CHECKING:
    from typing import TextIO

_PATIENCE_S = 2.0
"""How long the service may take to accept; after that this process runs the prompt itself."""

_LIMITS = 16
"""Kinds of limits that Linux has for a process."""


def call(argv: list[str]) -> int | None:
    """Run print mode in the service and return its exit code; None to run it in this process.

    Nothing has happened when it returns None: the child starts only after we told it to.
    """
    try:
        connection = _connected()
    except OSError:
        return None
    try:
        with connection:
            if not _is_accepted(connection, argv):
                return None
            return _wait(connection)
    except OSError:
        return None


def _connected() -> socket.socket:
    home = batten_home(os.environ, current_directory())
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_PATIENCE_S)
        connection.connect(os.path.join(home, request.SOCKET))
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if int.from_bytes(peer[4:8], sys.byteorder) != os.getuid():
            raise PermissionError("another user serves this socket")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_accepted(connection: socket.socket, argv: list[str]) -> bool:
    """Hand everything over; whether a child is ready to run it."""
    directory = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        data = request.joined(_parts(argv))
        sent = socket.send_fds(connection, [data], [0, 1, 2, directory])
        connection.sendall(memoryview(data)[sent:])
        return connection.recv(1) == request.ACCEPTED
    finally:
        os.close(directory)


def _parts(argv: list[str]) -> list[bytes]:
    words = [os.fsencode(word) for word in (sys.argv[0], *argv)]
    return [
        request.identity(),
        b"%d" % _mask(),
        b"%s %s" % (_encoding(sys.stdout), _encoding(sys.stderr)),
        b" ".join(b"%d %d" % resource.getrlimit(kind) for kind in range(_LIMITS)),
        b"%d" % len(words),
        *words,
        *(b"%s=%s" % pair for pair in os.environb.items()),
    ]


def _encoding(stream: "TextIO | None") -> bytes:
    """The encoding of a standard stream; empty if it is closed, for which Python has no stream."""
    return b"" if stream is None else stream.encoding.encode()


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _wait(connection: socket.socket) -> int:
    """Let the child begin, pass signals on to it, and return its exit code."""
    signals = ending_signals()
    connection.settimeout(None)

    def forward(number: int, frame: object) -> None:
        try:
            connection.send(request.SIGNAL + bytes([number]))
        except OSError:
            return  # the service is gone, which is found below: the child may have begun

    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        connection.sendall(request.GO)
        for number in signals:
            signal.signal(number, forward)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    told = b""
    while len(told) < 2:
        try:
            piece = connection.recv(2 - len(told))
        except OSError:
            piece = b""
        if not piece:
            return _lost()
        told += piece
    if told[:1] == request.KILLED:
        signal.signal(told[1], signal.SIG_DFL)
        os.kill(os.getpid(), told[1])
    return told[1]


def _lost() -> int:
    from batten.serve.output import say

    say("batten: the service ended while it worked on this run; `batten runs` shows its state")
    return 1
