"""The limits of a command's resources, as the keeper finds and sets them.

Loaded in the keeper, after it has reported: no command waits for it.
"""

import os
import resource

_KINDS = (
    resource.RLIMIT_NPROC,
    # Not the address space, of which Go, Java and Node reserve far more than they use.
    resource.RLIMIT_DATA,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_FSIZE,
)
_SMALLEST_FILE = 1 << 30
"""Bytes that a file may have however full the disk is: a full disk is an error of its own."""


def find_limits(encoded: str, workspace: str) -> tuple[int, ...]:
    """The limits of `Limits.encoded` on this machine; 0 sets none."""
    processes, memory, files, size = map(int, encoded.split(":"))
    if processes and os.geteuid() != 0:
        # The kernel counts all of the user's together.
        processes += _threads()
    if size < 0:
        size = max(_free_bytes(workspace) // 2, _SMALLEST_FILE)
    return processes, memory, files, size


def set_limits(limits: tuple[int, ...]) -> None:
    """Limit this process and what it starts."""
    for kind, limit in zip(_KINDS, limits, strict=True):
        soft, hard = resource.getrlimit(kind)
        if limit and (hard == resource.RLIM_INFINITY or limit < hard):
            is_lower = soft == resource.RLIM_INFINITY or limit < soft
            # A lower soft limit is what programs expect: they raise it if they need more.
            resource.setrlimit(kind, (limit if is_lower else soft, limit))


def _free_bytes(path: str) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _threads() -> int:
    """Processes of this user, each thread counted, as the kernel does."""
    ours, count = os.geteuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == ours:
                    with open(f"/proc/{name}/stat", "rb") as file:
                        count += int(file.read().rpartition(b")")[2].split()[17])
            except OSError:
                continue  # it has just ended
    return count
