"""Whether a home belongs to the user alone: its files are believed, and hold keys.

Looked at once a command; loads nothing, and takes some 50 microseconds.
"""

import os
import stat

from batten.contract.errors import CallerError

_MOST_LINKS = 40


def refuse_shared(home: str) -> None:
    """Raise `CallerError` if another user could write in the home, or put another in its place."""
    fault = fault_of(home)
    if fault is not None:
        what, remedy = fault
        raise CallerError(
            f"{what}, so the state of Batten is not safe in {home}: {remedy}", code="config"
        )


def fault_of(home: str) -> tuple[str, str] | None:
    """What is wrong and the remedy, about the way to the home, the home and its files; else None.

    A home that is not there yet is made for its owner alone.
    """
    reached = _Way(home)
    if reached.fault is not None or reached.status is None:
        return reached.fault
    if not stat.S_ISDIR(reached.status.st_mode):
        return None  # opening it fails with its own words
    # Of a mounted file system, sticky as /tmp: others cannot change what is there, and must not
    # have put anything there.
    is_sticky = reached.status.st_mode & stat.S_ISVTX and reached.status.st_uid == os.geteuid()
    if not is_sticky and (fault := _fault(reached.path, reached.status, "chmod 700")):
        return fault
    try:
        with os.scandir(reached.path) as entries:
            found = [(entry.path, entry.is_symlink()) for entry in entries]
    except OSError:
        return None
    for path, is_link in found:
        if fault := _fault_of_file(path, is_link):
            return fault
    return None


def _fault_of_file(path: str, is_link: bool) -> tuple[str, str] | None:
    if is_link:
        reached = _Way(path)
        if reached.fault is not None or reached.status is None:
            return reached.fault
        path, status = reached.path, reached.status
    else:
        try:
            status = os.lstat(path)
        except OSError:  # gone meanwhile
            return None
    return _fault(path, status, "chmod go-w")


def _fault(path: str, status: os.stat_result, remedy: str) -> tuple[str, str] | None:
    """`remedy` is a command for an open mode. Those of sockets mean nothing in a closed folder."""
    if status.st_uid != (ours := os.geteuid()):
        what, others = _of_another(path, status.st_uid)
        return what, f"chown -R {ours} {_quoted(path)}{' as root' if ours else ''}, {others}"
    if _others_write(status) and not stat.S_ISSOCK(status.st_mode):
        mode = f"{stat.S_IMODE(status.st_mode):o}"
        return f"other users can write {path} (mode {mode})", f"{remedy} {_quoted(path)}"
    return None


def _others_write(status: os.stat_result) -> bool:
    return bool(
        status.st_mode & stat.S_IWOTH
        or (status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid))
    )


def _of_another(path: str, owner: int) -> tuple[str, str]:
    remedy = f"run as the user {owner}, or set BATTEN_HOME"
    return f"{path} belongs to the user {owner}, not to {os.geteuid()}", remedy


def _quoted(path: str) -> str:
    """For a shell."""
    import shlex  # only for a refusal

    return shlex.quote(path)


class _Way:
    """Follows a path as the kernel does, links too, up to the first name that does not exist."""

    def __init__(self, path: str) -> None:
        self.path = "/"
        self.status: os.stat_result | None = os.stat("/")
        """That of the place reached; None if it does not exist."""
        self.fault: tuple[str, str] | None = None
        names = path.split("/")[::-1]
        links = 0
        while names and self.status is not None and self.fault is None:
            name = names.pop()
            if name in ("", "."):
                continue
            inner = os.path.dirname(self.path) if name == ".." else os.path.join(self.path, name)
            try:
                status = os.lstat(inner)
            except OSError:
                status = None
            self.fault = _fault_of_folder(self.path, self.status, status)
            if status is not None and stat.S_ISLNK(status.st_mode):
                links += 1
                target = _target(inner) if links <= _MOST_LINKS else ""
                names += target.split("/")[::-1]
                if target.startswith("/"):
                    self.path, self.status = "/", os.stat("/")
                if target:
                    continue
                status = None
            self.path, self.status = inner, status


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _fault_of_folder(
    path: str, status: os.stat_result, entry: os.stat_result | None
) -> tuple[str, str] | None:
    """Whether another user may rename, remove or replace an entry of a folder."""
    trusted = (0, os.geteuid())
    if status.st_uid not in trusted and not _is_root_from_outside(status.st_uid):
        return _of_another(path, status.st_uid)  # a folder of theirs is not taken from them
    if not _others_write(status):
        return None
    if status.st_mode & stat.S_ISVTX and (entry is None or entry.st_uid in trusted):
        return None  # as in /tmp: only its owner may rename it
    mode = f"{stat.S_IMODE(status.st_mode):o}"
    what = f"other users can replace what is in {path} (mode {mode})"
    return what, f"chmod go-w {_quoted(path)}, or set BATTEN_HOME"


def _is_private(group: int) -> bool:
    """Whether a group is root's, or that of the same name which many systems give each user."""
    if group == 0:
        return True
    import grp
    import pwd

    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


def _is_root_from_outside(owner: int) -> bool:
    """Whether this is how root looks in a user namespace that does not map it."""
    try:
        with open("/proc/sys/kernel/overflowuid") as file:
            if int(file.read()) != owner:
                return False
        with open("/proc/self/uid_map") as file:
            return all(int(line.split()[1]) != 0 for line in file)
    except (OSError, ValueError):
        return False
