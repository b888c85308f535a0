"""The sandbox of commands: its policy and its layer (bubblewrap, Landlock or none).

No layer restricts reading: a command can read every file the user can. Writing is confined to the
workspace, a private temporary directory and the policy's paths.
"""

import os
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from batten.workspace.programs import find_program, is_below
from batten.workspace.protection import Protection

Mode = Literal["auto", "bwrap", "landlock", "none"]
Layer = Literal["bwrap", "landlock", "none"]
_READING = "reading every file that you can read"
_LOCKS = "locks on files that you can read"
_EXPOSED = "protected paths inside the workspace"
_SOCKETS = (
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/snapd.socket",
    "/run/libvirt/libvirt-sock",
)
"""Sockets of services that act for the user, or for root, outside the sandbox."""
_USER_SOCKETS = "/run/user"
"""The sockets of the user's own services: message bus, agents of keys, containers."""


HALF_OF_FREE = -1


class Limits(Struct, frozen=True):
    """Limits of each command; 0 sets none. Root's number of processes is not limited."""

    processes: int = 0
    """Beside those that the user has when the keeper starts: the kernel counts all together."""
    memory_bytes: int = 0
    """Data of each process: memory of its own that it can write."""
    open_files: int = 0
    """Of each process."""
    file_bytes: int = 0
    """Size of each file that is written. `HALF_OF_FREE`: of the space in the workspace when the
    keeper starts."""

    def encoded(self) -> str:
        """As one argument of the keeper."""
        return f"{self.processes}:{self.memory_bytes}:{self.open_files}:{self.file_bytes}"


class Policy(Struct, frozen=True):
    writable: tuple[str, ...] = ()
    """Absolute paths besides the workspace and the private temporary directory."""
    protected: tuple[str, ...] = ()
    """Absolute paths that commands may not write even inside the workspace."""
    read_only: bool = False
    """Whether commands may write nowhere but in their private temporary directory."""
    network: bool = False
    mode: Mode = "auto"
    """`auto` takes the strongest layer that works here. A named one is used or refused."""
    inherit: tuple[str, ...] = ()
    """Further environment names or patterns that commands inherit; secrets are always left out."""
    added: dict[str, str] = {}
    """Variables set for every command."""
    limits: Limits = Limits()
    sockets: tuple[str, ...] = ()
    """Absolute paths of sockets, or of folders with sockets, that bubblewrap need not hide."""


class Sandbox(Struct, frozen=True):
    """The layer in force, and the accesses it does not restrict."""

    layer: Layer
    uncovered: tuple[str, ...] = ()


def layers_to_try(mode: Mode, bwrap: str | None) -> tuple[Layer, ...]:
    """The strongest first; `bwrap` is the program's path, if there is one. Whether a layer works
    shows when the keeper starts in it.
    """
    if mode == "auto":
        return ("bwrap", "landlock") if bwrap else ("landlock",)
    return (mode,)


def find_bwrap(search_path: str, writable: Sequence[str] = ()) -> str | None:
    return find_program("bwrap", search_path, writable)


def bwrap_argv(
    program: str, writable: list[str], protected: Protection, policy: Policy
) -> list[str]:
    """The `bwrap` command line, to which the program to run is appended."""
    argv = [program, "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--as-pid-1"]
    if not policy.network:
        argv.append("--unshare-net")
    mounts: list[tuple[str, ...]] = [
        ("/", "--ro-bind", "/"),
        ("/dev", "--dev"),
        ("/proc", "--proc"),
    ]
    mounts += [(path, "--bind-try", path) for path in writable]
    mounts += _hidden_sockets(policy.sockets)
    if os.geteuid() == 0:
        from batten.workspace.capabilities import KEPT

        # Started by root, bubblewrap keeps every capability and a writable /proc/sys.
        argv += ["--cap-drop", "ALL"]
        for name in KEPT:
            argv += ["--cap-add", f"CAP_{name}"]
        for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"):
            mounts.append((path, "--ro-bind-try", path))
    mounts += [(path, "--bind", path) for path in protected.ways if os.path.exists(path)]
    mounts += [(path, "--ro-bind", path) for path in protected.paths if os.path.exists(path)]
    # Mounted later, the deeper path wins, of every kind; of one path, the last of these.
    for path, *bind in sorted(mounts, key=lambda one: len(one[0])):
        argv += [*bind, path]
    return argv


def _hidden_sockets(allowed: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Mounts over the sockets, except allowed ones."""
    mounts: list[tuple[str, ...]] = []
    real = [os.path.realpath(path) for path in allowed]
    if os.path.isdir(_USER_SOCKETS) and _USER_SOCKETS not in real:
        mounts.append((_USER_SOCKETS, "--tmpfs"))
        kept = (path for path in real if is_below(path, [_USER_SOCKETS]))
        mounts += [(path, "--bind-try", path) for path in kept]
    both = (spelled for path in _SOCKETS for spelled in (path, f"/var{path}"))
    there = dict.fromkeys(os.path.realpath(path) for path in both if os.path.exists(path))
    mounts += [(path, "--ro-bind", "/dev/null") for path in there if not is_below(path, real)]
    return mounts


def describe(
    layer: Layer,
    policy: Policy,
    *,
    landlock_version: int,
    filtered: bool,
    exposes: bool = False,
    holds_batten: bool = False,
    holds_system: bool = False,
) -> Sandbox:
    """The sandbox as reported by the keeper.

    `filtered`: the filter of system calls is in force. `exposes`: protected paths lie below
    writable ones, and this layer cannot protect them. `holds_batten`, `holds_system`: so do Batten
    itself and the programs of the system.
    """
    gaps = [_READING, *_gaps(layer, policy, landlock_version, filtered=filtered)]
    if exposes:
        gaps.append(_EXPOSED)
    if holds_batten:
        gaps.append("Batten's own program, installed in the workspace")
    if holds_system:
        gaps.append("the system's own programs, which are in the workspace")
    if layer != "bwrap":
        layer = "landlock" if landlock_version else "none"
    return Sandbox(layer, tuple(gaps))


def _gaps(layer: Layer, policy: Policy, landlock_version: int, *, filtered: bool) -> list[str]:
    if layer == "bwrap":
        gaps = ["named local sockets", _LOCKS]
        if policy.network:
            gaps.append("network")
        elif not filtered:
            gaps.append("vsock")
        if not filtered:
            gaps.append("keyring")
        return gaps
    if landlock_version == 0:
        gaps = ["writing outside the workspace"]
    else:
        gaps = _landlock_gaps(landlock_version, filtered=filtered)
    if policy.network:
        gaps.append("network")
    elif not filtered:
        gaps.append("network other than TCP" if landlock_version >= 4 else "network")
    return gaps


def _landlock_gaps(version: int, *, filtered: bool) -> list[str]:
    """Accesses that a kernel of this Landlock version cannot forbid, in words."""
    gaps = [
        "chmod, chown and timestamps outside",
        "named local sockets",
        _LOCKS,
        "shared memory files",
        "System V shared memory, semaphores and queues",
        "the user's other terminals",
        "priority and processors of other processes",
    ]
    if not filtered:
        gaps += ["keyring", "limits of other processes", "extended attributes and flags outside"]
    if version < 3:
        gaps.append("truncating files outside")
    if version < 5:
        gaps.append("device controls")
    if version < 6:
        gaps += ["signals to other processes", "commands that kill their keeper to live on"]
    return gaps
