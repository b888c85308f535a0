"""Folders that do not exist for commands, and what commands must see of them all the same."""

import os
import sys
from collections.abc import Iterable, Mapping

from batten.workspace.programs import is_below
from batten.workspace.protection import Boundary
from batten.workspace.sandbox import Policy

_RUN = "/run"
_IN_RUN = (
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
    "/run/opengl-driver-32",
    "/run/wrappers",
)
"""Where some systems keep their programs."""
_RESOLVER = "/etc/resolv.conf"


def fresh_folders(allowed: Iterable[str] = ()) -> list[str]:
    """The folders that bubblewrap makes anew, empty: those in which services put their sockets.

    `allowed`: real paths of sockets, or of folders of them; a folder named there stays as it is.
    """
    usual = dict.fromkeys((_RUN, "/tmp", os.path.realpath("/var/run")))
    return [path for path in usual if os.path.isdir(path) and not is_below(path, allowed)]


def seen_in(folders: list[str], wanted: Iterable[str]) -> list[str]:
    """The real paths of the wanted ones that lie in these folders."""
    real = (os.path.realpath(path) for path in wanted if os.path.isabs(path))
    return [path for path in dict.fromkeys(real) if is_below(path, folders) and path not in folders]


def usual_places(
    root: str, environ: Mapping[str, str], fresh: list[str], *, network: bool
) -> list[str]:
    """What commands use wherever it is: programs, the user's files, the repository around them."""
    programs = environ.get("PATH", "").split(":")
    folders = [environ.get("HOME", ""), *_IN_RUN, *programs]
    folders += [_installation(path) for path in programs if is_below(path, fresh)]
    if network:
        folders.append(_RESOLVER)
    if is_below(root, fresh) or os.path.isfile(os.path.join(root, ".git")):
        folders += _repository(root)
    return folders


def _installation(programs: str) -> str:
    """The folder around the programs, if what they load lies there: a Python environment, `lib`."""
    folder, name = os.path.split(os.path.realpath(programs))
    if name == "bin" and any(os.path.exists(f"{folder}/{one}") for one in ("pyvenv.cfg", "lib")):
        return folder
    return programs


def visible_places(boundary: Boundary, policy: Policy) -> list[str]:
    """What commands must see also of a hidden folder: their workspace, and what a keeper is started
    from.
    """
    started_from = (boundary.package, sys.base_prefix, sys.executable)
    return [boundary.root, *policy.writable, *policy.readable, *started_from]


def _repository(root: str) -> list[str]:
    from batten.workspace.repository import find_repository

    try:
        found = find_repository(root)
    except OSError:
        return []
    return [] if found is None else [found.top, found.own, found.common]


def other_names(path: str) -> list[str]:
    """The same folder below other mounts of its file system."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            mounts = [_mount(line) for line in file]
        about = os.stat(path)
    except OSError:
        return []
    here = ("", "", "/")
    for mount in mounts:
        if is_below(path, [mount[2]]) and len(mount[2]) >= len(here[2]):
            here = mount
    device, top, point = here
    inner = _joined(top, path[len(point.rstrip("/")) :])
    found: dict[str, None] = {}
    for device_there, top_there, point_there in mounts:
        if device_there == device and is_below(inner, [top_there]):
            name = _joined(point_there, inner[len(top_there.rstrip("/")) :])
            if name != path and _is_same(name, about):
                found[name] = None
    return list(found)


def _mount(line: bytes) -> tuple[str, str, str]:
    """Its device, the folder of the device, and where it is mounted."""
    fields = line.split(b" ", 5)
    return os.fsdecode(fields[2]), _unquoted(fields[3]), _unquoted(fields[4])


def _unquoted(name: bytes) -> str:
    for code, letter in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        if b"\\" in name:
            name = name.replace(code, letter)
    return os.fsdecode(name)


def _joined(folder: str, below: str) -> str:
    return (folder.rstrip("/") + "/" + below.strip("/")).rstrip("/") or "/"


def _is_same(path: str, about: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), about)
    except OSError:
        return False
