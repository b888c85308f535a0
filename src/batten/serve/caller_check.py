"""Whether the process at the other end of a Unix socket may be served: the same user, confined as
this process is.

A command of an agent runs as the same user and may reach a socket from its sandbox; whatever is
answered there would be a way out.
"""

import os
import select
import socket
import struct
from contextlib import suppress
from functools import cache
from typing import BinaryIO

_SO_PEERPIDFD = 77
_SPACES = ("mnt", "user", "pid", "net", "cgroup", "ipc", "uts")
_MARKS = (
    *(b"NoNewPrivs:", b"Seccomp:", b"Seccomp_filters:"),
    *(b"CapBnd:", b"CapEff:", b"Uid:", b"Gid:"),
)


def why_refused(connection: socket.socket) -> str:
    """What is wrong with the process that made this connection; empty if it may be served.

    That process is meant, also if another one holds its end by now. One that is gone is refused:
    nothing tells any more how it was confined.
    """
    pid, uid = peer_of(connection)
    if uid != os.getuid():
        return "it belongs to another user"
    try:
        process = _held(connection, pid)
    except OSError:
        return "it has ended"
    try:
        differing = _differing(process)
        return "it has ended" if process.is_gone() else differing
    finally:
        os.close(process.descriptor)


def why_refused_by_socket(inode: int) -> str:
    """The same of every process that has this socket of our user, which is searched for: a few ms.

    One whose descriptors cannot be read is not found.
    """
    name, reason = f"socket:[{inode}]", "the process that connected is not found"
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        for path in _descriptors(pid):
            with suppress(OSError):
                if os.readlink(path) != name:
                    continue
                process = _Process(os.pidfd_open(int(pid)), int(pid), _start_of(int(pid)))
                try:
                    # Asked again: the number may have been another's a moment ago.
                    if os.readlink(path) == name and (reason := _differing(process)):
                        return reason
                finally:
                    os.close(process.descriptor)
    return reason


def _descriptors(pid: str) -> list[str]:
    folder = f"/proc/{pid}/fd"
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return []
        return [f"{folder}/{number}" for number in os.listdir(folder)]
    except OSError:
        return []


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, when it connected."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("3i", peer)
    return pid, uid


class _Process:
    """A process that is held by a descriptor: its number is not given to another unnoticed."""

    def __init__(self, descriptor: int, pid: int, began: bytes) -> None:
        self.descriptor = descriptor
        self.pid = pid
        self._began = began

    def is_gone(self) -> bool:
        """Whether what was read about its number may be about another process."""
        ending = select.poll()
        ending.register(self.descriptor, select.POLLIN)
        try:
            return bool(ending.poll(0)) or _start_of(self.pid) != self._began
        except OSError:
            return True


def _held(connection: socket.socket, pid: int) -> _Process:
    """The process at the other end. Raises `OSError` if it has ended."""
    if pid <= 0:  # it is in no pid namespace that we see
        raise ProcessLookupError
    try:
        descriptor = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if isinstance(error, ProcessLookupError):
            raise
        # A kernel before 6.5: the number may be another's by now, if not from here on.
        descriptor = os.pidfd_open(pid)
    try:
        return _Process(descriptor, pid, _start_of(pid))
    except BaseException:
        os.close(descriptor)
        raise


def _start_of(pid: int) -> bytes:
    """When it started, in ticks since boot."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name of the program, in brackets, may hold anything.
        return file.read().rpartition(b")")[2].split()[19]


def _differing(process: _Process) -> str:
    """What the kernel shows of its confinement that is not as ours; empty for nothing."""
    try:
        theirs = _confinement(str(process.pid))
    except OSError:
        return "its confinement cannot be seen"
    found = next((name for name, value in _ours().items() if theirs.get(name) != value), "")
    return f"it is confined otherwise than Batten ({found})" if found else ""


@cache
def _ours() -> dict[str, object]:
    """This process is confined before it listens, if at all."""
    return _confinement("self")


def _confinement(pid: str) -> dict[str, object]:
    """All that decides what a process may do, as far as the kernel shows it."""
    found: dict[str, object] = {}
    with open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(_MARKS):
                name, _, value = line.partition(b":")
                found[name.decode()] = value.split()
    for space in _SPACES:
        found[f"{space} namespace"] = os.readlink(f"/proc/{pid}/ns/{space}")
    found["root directory"] = os.stat(f"/proc/{pid}/root")[:3]
    with open(f"/proc/{pid}/attr/current", "rb") as file:
        found["security label"] = _label(file)
    return found


def _label(file: BinaryIO) -> bytes:
    with suppress(OSError):  # no such module is loaded
        return file.read()
    return b""
