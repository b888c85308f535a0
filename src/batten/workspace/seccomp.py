"""A system-call filter: removes the network, and what reaches beyond a command's own processes.

Applied once, in the keeper, and inherited by every command. It blocks what Landlock misses: UDP,
multipath TCP, TCP fast open, vsock, packet sockets, extended attributes and flags of any file, and
io_uring as a way around it. In a network namespace of its own (bubblewrap) internet sockets stay
allowed: they reach no other namespace, and a command can talk to itself. vsock has no namespaces
and stays blocked. So do, in every sandbox, the user's keyring and the limits of other processes.
Local sockets are blocked where nothing else decides which of them may be reached; pairs are not.
"""

import ctypes
import os
import struct

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

_LOAD, _JUMP_EQUAL, _JUMP_BITS, _AND, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _EACCES, _ENOSYS, _EOPNOTSUPP = 1, 13, 38, 95
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
"""Offsets in struct seccomp_data; both machines are little-endian."""
_X32_BIT = 0x40000000
_IO_URING_SETUP, _SETXATTRAT, _REMOVEXATTRAT, _FILE_SETATTR = 425, 463, 466, 469

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_SOCKET_PAIR = {"x86_64": 53, "aarch64": 199}
_STREAM, _SEQUENCED = 1, 5
_TYPE_BITS = 0xF
_IOCTL = {"x86_64": 16, "aarch64": 29}
_SET_FLAGS = (0x40086602, 0x40046602, 0x401C5820)
"""FS_IOC_SETFLAGS, its form for 32 bits, and FS_IOC_FSSETXATTR."""
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
_KEYRING = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}
"""add_key, request_key, keyctl."""
_ATTRIBUTES = {"x86_64": (188, 189, 190, 197, 198, 199), "aarch64": (5, 6, 7, 14, 15, 16)}
"""setxattr, removexattr and their forms for links and descriptors."""
_MODES = {
    "x86_64": (90, 91, 92, 93, 94, 132, 235, 260, 261, 268, 280),
    "aarch64": (52, 53, 54, 55, 88),
}
"""chmod, chown, utime and their forms: what Landlock cannot refuse of a file."""
_FCHMODAT2 = 452

_Step = tuple[int, int, int, int]


def program(
    machine: str,
    *,
    network: bool = False,
    internet: bool = False,
    attributes: bool = False,
    modes: bool = True,
    unix: bool = True,
) -> bytes | None:
    """The filter for a machine; None if its system-call numbers are not known.

    `network` allows sockets of every family, `internet` those of the internet; `attributes` allows
    setting extended attributes and flags of files, `modes` setting their mode, owner and times;
    `unix` local sockets.
    """
    if machine not in _ARCHITECTURES:
        return None
    refused = {_IO_URING_SETUP: _ENOSYS, **dict.fromkeys(_KEYRING[machine], _ENOSYS)}
    if not attributes:
        for number in (*_ATTRIBUTES[machine], _SETXATTRAT, _REMOVEXATTRAT, _FILE_SETATTR):
            refused[number] = _EOPNOTSUPP
    if not modes:
        refused |= dict.fromkeys((*_MODES[machine], _FCHMODAT2), _EPERM)
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        # The x32 numbers of the same machine would bypass the checks below.
        (_JUMP_BITS, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
    ]
    for number, error in refused.items():
        steps += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    # A process may change its own limits, which it names by pid 0.
    steps += [
        (_JUMP_EQUAL, 0, 4, _PRLIMIT[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
    ]
    if not attributes:
        steps += _flag_steps(_IOCTL[machine])
    if not unix:
        steps += _pair_steps(_SOCKET_PAIR[machine])
    if not network:
        steps += _socket_steps(_SOCKET[machine], internet=internet, unix=unix)
    elif not unix:
        steps += [
            (_JUMP_EQUAL, 0, 3, _SOCKET[machine]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_JUMP_EQUAL, 0, 1, _AF_UNIX),
            (_RETURN, 0, 0, _ERRNO | _EACCES),
        ]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _flag_steps(number: int) -> list[_Step]:
    """Refuse to set the flags of a file by ioctl; every other ioctl is allowed here."""
    refused: list[_Step] = []
    for request in _SET_FLAGS:
        refused += [(_JUMP_EQUAL, 0, 1, request), (_RETURN, 0, 0, _ERRNO | _EOPNOTSUPP)]
    return [
        (_JUMP_EQUAL, 0, len(refused) + 2, number),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        *refused,
        (_RETURN, 0, 0, _ALLOW),
    ]


def _pair_steps(number: int) -> list[_Step]:
    """Refuse pairs of sockets that one could connect elsewhere, or send from elsewhere: all but
    streams.
    """
    return [
        (_JUMP_EQUAL, 0, 6, number),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_AND, 0, 0, _TYPE_BITS),
        (_JUMP_EQUAL, 1, 0, _STREAM),
        (_JUMP_EQUAL, 0, 1, _SEQUENCED),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | _EACCES),
    ]


def _socket_steps(number: int, *, internet: bool, unix: bool) -> list[_Step]:
    """Refuse sockets of other families; the step that follows these allows the call."""
    families = [_AF_NETLINK] + ([_AF_UNIX] if unix else [])
    families += [_AF_INET, _AF_INET6] if internet else []
    return [
        (_JUMP_EQUAL, 0, len(families) + 2, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *((_JUMP_EQUAL, len(families) - at, 0, one) for at, one in enumerate(families)),
        (_RETURN, 0, 0, _ERRNO | _EACCES),
    ]


def confine(
    *,
    network: bool,
    internet: bool = False,
    attributes: bool = False,
    modes: bool = True,
    unix: bool = True,
) -> bool:
    """Put the filter in force for this process and its children; False if that is impossible.

    `internet`: allow internet sockets, for a process in a network namespace of its own.
    """
    machine = os.uname().machine
    code = program(
        machine,
        network=network,
        internet=internet,
        attributes=attributes,
        modes=modes,
        unix=unix,
    )
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if code is None or prctl is None:
        return False
    body = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(code) // 8, ctypes.addressof(body))
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0)
