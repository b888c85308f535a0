"""The sandbox of commands: its policy and its layer (bubblewrap, Landlock or none).

A command can read what the user can, but for the policy's hidden paths. Writing is confined to the
workspace, a private temporary directory and the policy's paths.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from batten.workspace.programs import find_program

Mode = Literal["auto", "bwrap", "landlock", "none"]
Layer = Literal["bwrap", "landlock", "none"]
_READING = "reading every file that you can read"
_LOCKS = "locks on files that you can read"
_LEADING = "new files right in the folders that lead to Batten's home, which are in the workspace"
_EXPOSED = "Batten's own files, which are in the workspace"
_RUN_LATER = "files that other programs execute later, such as .git/hooks (each change is recorded)"
_NEW_RUN_LATER = (
    "files that other programs execute later and that are new, or deep in a large workspace (each"
    " change is recorded)"
)
_LATER_SOCKETS = "local sockets outside /run and /tmp that are made later"
_PIPES = "named pipes (FIFOs) outside the workspace"
_SECOND_NAMES = "files with a second name outside the workspace (hard links)"


REFUSES_SOCKETS = 9
_REFUSES_SIGNALS = 6
"""The version of Landlock that refuses to connect to sockets by their path."""
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
    hidden: tuple[str, ...] = ()
    """Absolute paths of folders that do not exist for commands, even inside the workspace."""
    readable: tuple[str, ...] = ()
    """Absolute paths that commands may read, also where they are in a hidden folder."""
    editable: tuple[str, ...] = ()
    """Globs of absolute paths: what commands may write although it runs later."""
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
    """Absolute paths of sockets, or of folders with sockets, that commands may connect to."""


class Sandbox(Struct, frozen=True, omit_defaults=True):
    """The layer in force, in words: the accesses that it restricts, and those that it does not."""

    layer: Layer
    uncovered: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    """Paths that other programs execute: in the workspace, or absolute in another directory."""


def layers_to_try(mode: Mode, bwrap: str | None) -> tuple[Layer, ...]:
    """The strongest first; `bwrap` is the program's path, if there is one. Whether a layer works
    shows when the keeper starts in it.
    """
    if mode == "auto":
        return ("bwrap", "landlock") if bwrap else ("landlock",)
    return (mode,)


def find_bwrap(search_path: str, writable: Sequence[str] = ()) -> str | None:
    return find_program("bwrap", search_path, writable)


def describe(
    layer: Layer,
    policy: Policy,
    *,
    landlock_version: int,
    filtered: bool,
    exposes: bool = False,
    holds_home: bool = False,
    holds_batten: bool = False,
    holds_system: bool = False,
    read_only: tuple[str, ...] = (),
) -> Sandbox:
    """The sandbox as reported by the keeper.

    `filtered`: the filter of system calls is in force. `exposes`: hidden paths lie below
    writable ones, and this layer cannot hide them. `holds_home`: it can, and they do.
    `holds_batten`, `holds_system`: so do Batten itself and the programs of the system.
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
    closed = [*_closed(layer, policy, landlock_version, filtered=filtered, exposes=exposes)]
    if layer == "landlock" and holds_home:
        closed.append(_LEADING)
    return Sandbox(layer, tuple(gaps), tuple(closed), read_only)


def _closed(
    layer: Layer, policy: Policy, landlock_version: int, *, filtered: bool, exposes: bool
) -> Iterator[str]:
    if layer == "none":
        return
    if policy.read_only:
        yield "writing, but for a private temporary directory"
    else:
        yield "writing outside the workspace, the added directories and a temporary directory"
    if policy.hidden and not exposes:
        yield "Batten's home and your settings of Batten: commands find nothing there"
    but = f", but for {', '.join(policy.sockets)}" if policy.sockets else ""
    if layer == "bwrap":
        yield f"/run and /tmp, which are empty, and the sockets of other programs there{but}"
        yield f"sockets elsewhere that programs listen on now{but}"
        yield "other processes: commands see and trace only their own, and not Batten's"
    elif landlock_version >= REFUSES_SOCKETS or (filtered and not policy.sockets):
        yield f"local sockets of other programs{but}"
    if layer == "landlock" and landlock_version >= _REFUSES_SIGNALS:
        yield "signals to other processes, their memory and their descriptors"
    if not policy.network:
        yield "the network"
    if filtered:
        yield "keyring, io_uring, vsock and the limits of other processes"
    yield "mounts, devices, kernel settings and what else root may do"


def _gaps(layer: Layer, policy: Policy, landlock_version: int, *, filtered: bool) -> list[str]:
    if layer == "bwrap":
        gaps = [_LATER_SOCKETS, _PIPES, _LOCKS]
        if not policy.read_only:
            gaps += [_NEW_RUN_LATER, _SECOND_NAMES]
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
        if landlock_version < REFUSES_SOCKETS and (policy.sockets or not filtered):
            gaps.append("named local sockets")
        if not policy.read_only:
            gaps += [_RUN_LATER, _SECOND_NAMES]
    if policy.network:
        gaps.append("network")
    elif not filtered:
        gaps.append("network other than TCP" if landlock_version >= 4 else "network")
    return gaps


def _landlock_gaps(version: int, *, filtered: bool) -> list[str]:
    """Accesses that a kernel of this Landlock version cannot forbid, in words."""
    gaps = [
        "chmod, chown and timestamps outside",
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
