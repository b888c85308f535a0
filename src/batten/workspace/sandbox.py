"""The sandbox of commands: its policy and its layer (bubblewrap, Landlock or none).

No layer restricts reading: a command can read every file the user can. Writing is confined to the
workspace, a private temporary directory and the policy's paths.
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
    """Absolute paths besides the workspace and the private temporary directory."""
    protected: tuple[str, ...] = ()
    """Absolute paths that commands may not write even inside the workspace."""
    network: bool = False
    mode: Mode = "auto"
    """`auto` takes the strongest layer that works here. A named one is used or refused."""
    inherit: tuple[str, ...] = ()
    """Further environment names or patterns that commands inherit; secrets are always left out."""
    added: dict[str, str] = {}
    """Variables set for every command."""


class Sandbox(Struct, frozen=True):
    """The layer in force, and the accesses it does not restrict."""

    layer: Layer
    uncovered: tuple[str, ...] = ()


def layers_to_try(mode: Mode, path: str) -> tuple[Layer, ...]:
    """The strongest first; `path` is searched for `bwrap`. Whether a layer works shows when the
    keeper starts in it.
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
    """The `bwrap` command line, to which the program to run is appended."""
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
    # Mounted last, the deeper path wins, of either kind.
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
    """The sandbox as reported by the keeper.

    `exposes`: protected paths lie below writable ones, and this layer cannot protect them.
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
    """Accesses that a kernel of this Landlock version cannot forbid, in words."""
    gaps = ["chmod, chown and timestamps outside", "named local sockets", "shared memory files"]
    if version < 3:
        gaps.append("truncating files outside")
    if version < 5:
        gaps.append("device controls")
    if version < 6:
        gaps += ["signals to other processes", "commands that kill their keeper to live on"]
    return gaps
