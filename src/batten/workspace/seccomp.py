"""A system-call filter that removes the network: only local and netlink sockets open.

Applied once, in the keeper, and inherited by every command. It blocks what Landlock misses: UDP,
multipath TCP, TCP fast open, vsock, packet sockets, and io_uring as a way around it. In a network
namespace of its own (bubblewrap) internet sockets stay allowed: they reach no other namespace,
and a command can talk to itself. vsock has no namespaces and stays blocked.
"""

import ctypes
import os
import struct

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

_LOAD, _JUMP_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EACCES, _ENOSYS = 13, 38
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in struct seccomp_data; both machines are little-endian."""
_X32_BIT = 0x40000000
_IO_URING_SETUP = 425

_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""Audit architecture and the number of socket()."""


def program(machine: str, *, internet: bool = False) -> bytes | None:
    """The filter for a machine; None if its system-call numbers are not known."""
    if machine not in _MACHINES:
        return None
    architecture, socket_number = _MACHINES[machine]
    families = [_AF_UNIX, _AF_NETLINK] + ([_AF_INET, _AF_INET6] if internet else [])
    steps: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        # The x32 numbers of the same machine would bypass the checks below.
        (_JUMP_BITS, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_JUMP_EQUAL, 0, 1, _IO_URING_SETUP),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_JUMP_EQUAL, 1, 0, socket_number),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *((_JUMP_EQUAL, len(families) - at, 0, one) for at, one in enumerate(families)),
        (_RETURN, 0, 0, _ERRNO | _EACCES),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def forbid_network(*, internet: bool = False) -> bool:
    """Put the filter in force for this process and its children; False if that is impossible.

    `internet`: allow internet sockets, for a process in a network namespace of its own.
    """
    code = program(os.uname().machine, internet=internet)
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if code is None or prctl is None:
        return False
    body = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(code) // 8, ctypes.addressof(body))
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0)
