"""What commands may touch, and which layer sees to it: bubblewrap, Landlock, or nothing.

Every layer leaves reading as it is: what the user can read, a command can read. Writing is
confined to the workspace, a private temporary directory and the paths of the policy.
"""

import os
from typing import Literal

from msgspec import Struct

from batten.workspace.protection import Protection

Mode = Literal["auto", "bwrap", "landlock", "none"]
Layer = Literal["bwrap", "landlock", "none"]
_EXPOSED = "protected paths inside the workspace"


class Policy(Struct, frozen=True):
    writable: tuple[str, ...] = ()
    """Absolute paths beside the workspace and the private temporary directory."""
    protected: tuple[str, ...] = ()
    """Absolute paths that commands may not write even where the workspace holds them."""
    network: bool = False
    mode: Mode = "auto"
    """`auto` takes the strongest layer that works here. A named one is used or refused."""
    inherit: tuple[str, ...] = ()
    """Further environment names or patterns that commands inherit; never those of secrets."""
    added: dict[str, str] = {}
    """Variables given to every command on purpose."""


class Sandbox(Struct, frozen=True):
    """The layer in force, and what it leaves open."""

    layer: Layer
    uncovered: tuple[str, ...] = ()


def layers_to_try(mode: Mode, path: str) -> tuple[Layer, ...]:
    """From the strongest; `path` is searched for `bwrap`. Whether one works shows when the keeper
    starts in it.
    """
    if mode == "auto":
        return ("bwrap", "landlock") if find_bwrap(path) else ("landlock",)
    return (mode,)


def find_bwrap(search_path: str) -> str | None:
    for folder in search_path.split(":"):
        path = os.path.join(folder, "bwrap")
        if os.path.isabs(path) and os.access(path, os.X_OK):
            return path
    return None


def bwrap_argv(
    program: str, writable: list[str], protected: Protection, *, network: bool
) -> list[str]:
    """The command line that runs what follows it inside bubblewrap."""
    argv = [program, "--unshare-pid", "--unshare-ipc", "--die-with-parent"]
    if not network:
        argv.append("--unshare-net")
    argv += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    if os.geteuid() == 0:
        from batten.workspace.capabilities import KEPT

        # Started by root, bubblewrap keeps every capability and a writable /proc/sys.
        argv += ["--cap-drop", "ALL"]
        for name in KEPT:
            argv += ["--cap-add", f"CAP_{name}"]
        for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"):
            argv += ["--ro-bind-try", path, path]
    binds = [(path, "--bind-try") for path in writable]
    binds += [(path, "--bind") for path in protected.ways if os.path.exists(path)]
    binds += [(path, "--ro-bind") for path in protected.paths if os.path.exists(path)]
    # The deeper path has the last word, whichever kind it is.
    for path, bind in sorted(binds, key=lambda one: len(one[0])):
        argv += [bind, path, path]
    return argv


def describe(
    layer: Layer,
    policy: Policy,
    *,
    landlock_version: int,
    network_filtered: bool,
    exposes: bool = False,
) -> Sandbox:
    """The sandbox as it turned out, from what the keeper reported.

    `exposes`: there are protected paths below writable ones, and this layer cannot keep them.
    """
    if layer == "bwrap":
        gaps = ["named local sockets"]
        if policy.network:
            gaps.append("network")
        elif not network_filtered:
            gaps.append("vsock")
        if exposes:
            gaps.append(_EXPOSED)
        return Sandbox("bwrap", tuple(gaps))
    if landlock_version == 0:
        gaps = ["writing outside the workspace"]
    else:
        gaps = _landlock_gaps(landlock_version)
    if exposes:
        gaps.append(_EXPOSED)
    if policy.network:
        gaps.append("network")
    elif not network_filtered:
        gaps.append("network other than TCP" if landlock_version >= 4 else "network")
    return Sandbox("landlock" if landlock_version else "none", tuple(gaps))


def _landlock_gaps(version: int) -> list[str]:
    """What a kernel of this version cannot forbid, in words."""
    gaps = ["chmod, chown and timestamps outside", "named local sockets", "shared memory files"]
    if version < 3:
        gaps.append("truncating files outside")
    if version < 5:
        gaps.append("device controls")
    if version < 6:
        gaps += ["signals to other processes", "commands that kill their keeper to live on"]
    return gaps
