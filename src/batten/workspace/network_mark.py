"""Whether a command in a sandbox may use the network now, as the network itself tells.

A keeper whose commands may connect holds a UDP port of loopback. Any number of processes of one
user can share it, none of another; the kernel takes it back with the last of them; and it is in the
network namespace in which the commands connect. Looking means to bind it, in 5 µs.

Keepers load this: `_socket` instead of `socket` saves 10 ms.
"""

import _socket as socket
import errno
import os
import time

_PORT = 26879
"""Below those that the kernel gives to sockets without one."""
_LOOKS = 100
_LOOK_S = 0.001


def hold_mark() -> socket.socket:
    """Mark the network until the socket is closed here and in all that inherit it.

    Raises `OSError` if another user has the port: a mark that is not ours may go at any time.
    """
    mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    mark.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    for looks_left in reversed(range(_LOOKS)):
        try:
            mark.bind(_place())
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                break  # there is no loopback, so there are no connections by it
            if not looks_left:
                raise
            time.sleep(_LOOK_S)  # a service looks at this moment
        else:
            break
    return mark


def is_marked() -> bool:
    """Whether a command of our user that is in a sandbox may connect."""
    look = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    # Two that look do not see each other, but what holds the port without this option.
    look.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        look.bind(_place())
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    finally:
        look.close()
    return False


def _place() -> tuple[str, int]:
    user = os.geteuid()
    return f"127.{64 + (user >> 16 & 63)}.{user >> 8 & 255}.{user & 255}", _PORT
