"""Whether a caller may have a process of ours: the same user, and nothing confines it more.

A command of an agent runs as the same user and may reach the socket from its sandbox; a process
outside of it would be a way out.
"""

import os
import socket
import struct
from typing import BinaryIO

from batten.cli.local import request

_SPACES = ("mnt", "user", "pid", "net", "cgroup", "ipc", "uts")
_MARKS = (b"NoNewPrivs:", b"Seccomp:", b"CapBnd:", b"CapEff:", b"Uid:", b"Gid:")


def why_refused(connection: socket.socket, identity: bytes) -> str:
    """Why this caller runs in its own process; empty if it may have one of ours."""
    if identity != request.identity():
        return "another version of Batten"
    pid, uid = peer_of(connection)
    if uid != os.getuid():
        return "another user"
    try:
        if not pid or _confinement(str(pid)) != _confinement("self"):
            return "another confinement"
    except OSError:
        return "unknown confinement"
    return ""


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("3i", peer)
    return pid, uid


def _confinement(pid: str) -> list[object]:
    """All that decides what a process may do, as far as the kernel shows it."""
    found: list[object] = [os.readlink(f"/proc/{pid}/ns/{name}") for name in _SPACES]
    found.append(os.stat(f"/proc/{pid}/root")[:3])
    with open(f"/proc/{pid}/status", "rb") as file:
        found += [line for line in file if line.startswith(_MARKS)]
    with open(f"/proc/{pid}/attr/current", "rb") as file:
        found.append(_label(file))
    return found


def _label(file: BinaryIO) -> bytes:
    try:
        return file.read()
    except OSError:  # no such module is loaded
        return b""
