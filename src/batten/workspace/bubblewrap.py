"""The command line of bubblewrap: what of the machine a command sees, and what it may write."""

import os
import stat

from batten.workspace.places import fresh_folders, seen_in, usual_places, visible_places
from batten.workspace.programs import is_below
from batten.workspace.protection import Boundary
from batten.workspace.sandbox import Policy

_UNIX_SOCKETS = "/proc/net/unix"
_MOST_SOCKETS = 128
"""Limit of sockets that are covered one by one."""
_OF_THE_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
_PATH = 7
"""The column of a socket's path."""


def bwrap_argv(program: str, boundary: Boundary, policy: Policy) -> list[str]:
    """The `bwrap` command line, to which the program to run is appended.

    That program is the first process of its namespace: one of bubblewrap's own would have no
    filter of system calls, and could be traced.
    """
    argv = [program, "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--as-pid-1"]
    if not policy.network:
        argv.append("--unshare-net")
    allowed = [os.path.realpath(path) for path in policy.sockets]
    fresh = fresh_folders(allowed)
    protected = boundary.protection
    hidden = [path for path in protected.hidden if os.path.isdir(path)]
    wanted = visible_places(boundary, policy)
    seen = seen_in(hidden, wanted)
    wanted += usual_places(boundary.root, boundary.environ, fresh, network=policy.network)
    seen += seen_in(fresh, wanted)
    kept_inside = [path for path in boundary.writable if is_below(path, [*fresh, *hidden])]
    seen = [path for path in dict.fromkeys(seen) if not is_below(path, kept_inside)]
    mounts: list[tuple[str, ...]] = [
        ("/", "--ro-bind", "/"),
        ("/dev", "--dev"),
        ("/proc", "--proc"),
        *((path, "--tmpfs") for path in fresh),
        *((path, "--ro-bind-try", path) for path in seen),
        *((path, "--bind-try", path) for path in boundary.writable),
        *((path, "--bind-try", path) for path in allowed if is_below(path, fresh)),
    ]
    if os.geteuid() == 0:
        from batten.workspace.capabilities import KEPT

        # Started by root, bubblewrap keeps every capability and a writable /proc/sys.
        argv += ["--cap-drop", "ALL"]
        for name in KEPT:
            argv += ["--cap-add", f"CAP_{name}"]
        mounts += [(path, "--ro-bind-try", path) for path in _OF_THE_KERNEL]
    visible = [*seen, *boundary.writable]
    # What a command of another session removes meanwhile must not end this start.
    mounts += [(path, "--bind-try", path) for path in protected.ways]
    mounts += [(path, "--ro-bind-try", path) for path in protected.kept]
    mounts += [(path, "--tmpfs") for path in hidden]
    mounts += [
        (path, "--ro-bind", "/dev/null")
        for path in _sockets([*fresh, *hidden], visible)
        if not is_below(path, allowed)
    ]
    # Mounted later, the deeper path wins, of every kind; of one path, the last of these.
    for path, *bind in sorted(mounts, key=lambda one: len(one[0])):
        argv += [*bind, path]
    for path in (*fresh, *hidden):
        if path not in boundary.writable:
            argv += ["--remount-ro", path]
    return argv


def _sockets(hidden: list[str], visible: list[str]) -> list[str]:
    """The sockets with a path that programs listen on now, where commands would see them."""
    found: dict[str, None] = {}
    try:
        with open(_UNIX_SOCKETS, "rb") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return []
    for line in lines:
        fields = line.split(None, _PATH)
        path = os.fsdecode(fields[_PATH]) if len(fields) > _PATH else ""
        if not path.startswith("/") or path in found:
            continue
        real = os.path.realpath(path)
        if is_below(real, hidden) and not is_below(real, visible):
            continue
        if _is_socket(real):
            found[real] = None
        if len(found) == _MOST_SOCKETS:
            break
    return list(found)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
