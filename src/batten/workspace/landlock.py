"""Landlock by system call: restricts what this process and its children write and read.

Commands may write to given paths, and read all files but those of hidden folders; a search may
read the given paths only. Rights that an older kernel lacks are left out.
"""

import ctypes
import os
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_QUERY, _RULE_PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_WRITE_FILE, _TRUNCATE, _IOCTL_DEVICE = 1 << 1, 1 << 14, 1 << 15
_CHANGE_DIRECTORY = sum(1 << bit for bit in range(4, 13))
_READ_FILE = 1 << 2
_READ = _READ_FILE | 1 << 3
_MAKE_DEVICE = 1 << 6 | 1 << 11
"""Forbidden everywhere: root could create the disk's device node inside the workspace."""
_REFER = 1 << 13
_CONNECT = 1 << 16
"""To a socket by its path, if a process outside this domain made it."""
_TCP = 1 << 0 | 1 << 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1
_SCOPES_SINCE = 6
REFUSES_SOCKETS = 9

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")


def abi() -> int:
    """The kernel's Landlock version; 0 if it has none."""
    version = _syscall(_CREATE_RULESET, None, 0, _VERSION_QUERY)
    return max(version, 0)


def restrict_files(
    writable: list[str],
    *,
    network: bool,
    hidden: list[str] | None = None,
    seen: list[str] | None = None,
    sockets: list[str] | None = None,
) -> int:
    """Put the restriction in force; returns the version used, or 0 if nothing was restricted.

    Files of `hidden` folders cannot be read, those of `seen` can. `sockets`: where commands may
    connect to sockets that others made; an older kernel cannot refuse that.
    """
    version = abi()
    if version == 0:
        return 0
    rights = _file_rights(version)
    reading = _READ_FILE if hidden else 0
    connecting = _CONNECT if version >= REFUSES_SOCKETS else 0
    tcp = _TCP if version >= 4 and not network else 0
    scope = _SCOPE_SIGNALS | _SCOPE_ABSTRACT_SOCKETS if version >= _SCOPES_SINCE else 0
    attributes = struct.pack("=QQQ", rights | reading | connecting, tcp, scope)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _syscall(_CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        return 0
    try:
        devices = [f"/dev/{name}" for name in _DEVICES]
        for path in [*writable, *devices]:
            for part in _parts(path, hidden or []):
                _allow(ruleset, part, (rights & ~_MAKE_DEVICE) | reading)
        if hidden:
            for path in [*_all_but(hidden), *(seen or ())]:
                _allow(ruleset, path, reading)
        if connecting:
            for path in sockets or ():
                _allow(ruleset, path, connecting)
        return version if restrict_to(ruleset) else 0
    finally:
        os.close(ruleset)


def _parts(path: str, hidden: list[str]) -> list[str]:
    """A path, or what is in it now without hidden paths: a right holds for all that is below. In
    the folders that lead to a hidden path nothing new can then be made.
    """
    start = path.rstrip("/") + "/"
    inside = [one for one in hidden if one.startswith(start)]
    return [one for one in _all_but(inside) if one.startswith(start)] if inside else [path]


def _all_but(hidden: list[str]) -> list[str]:
    """The entries beside each hidden path and beside each folder above it: together everything
    else. Links are left out, since a rule would be about what they lead to.
    """
    above = {path[:at] or "/" for path in hidden for at, each in enumerate(path) if each == "/"}
    found: list[str] = []
    for folder in above:
        try:
            with os.scandir(folder) as entries:
                found += [
                    entry.path
                    for entry in entries
                    if entry.path not in above
                    and entry.path not in hidden
                    and not entry.is_symlink()
                ]
        except OSError:
            continue
    return found


def reading_rules(readable: list[str]) -> int | None:
    """A descriptor for `restrict_to`: read these paths, write nothing; None without Landlock."""
    version = abi()
    if version == 0:
        return None
    rights = _READ | _file_rights(version)
    ruleset = _syscall(_CREATE_RULESET, struct.pack("=Q", rights), 8, 0)
    if ruleset < 0:
        return None
    for path in readable:
        _allow(ruleset, path, _READ)
    return ruleset


def restrict_to(ruleset: int) -> bool:
    """Put rules in force for this process and its children."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None or prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return _syscall(_RESTRICT_SELF, ruleset, 0) == 0


def scope_signals() -> bool:
    """Add a nested domain: from here on, signals reach only processes started in it."""
    return _scope(_SCOPE_SIGNALS)


def scope_sockets() -> bool:
    """Add a domain: sockets without a path are reached only if a process in it made them. Like
    every domain it also refuses mounts.
    """
    return _scope(_SCOPE_ABSTRACT_SOCKETS)


def _scope(scope: int) -> bool:
    if abi() < _SCOPES_SINCE:
        return False
    ruleset = _syscall(_CREATE_RULESET, struct.pack("=QQQ", _REFER, 0, scope), 24, 0)
    if ruleset < 0:
        return False
    try:
        # Every domain forbids moving files between directories unless a rule allows it.
        _allow(ruleset, "/", _REFER)
        return restrict_to(ruleset)
    finally:
        os.close(ruleset)


def _file_rights(version: int) -> int:
    rights = _WRITE_FILE | _CHANGE_DIRECTORY
    if version >= 2:
        rights |= _REFER
    if version >= 3:
        rights |= _TRUNCATE
    if version >= 5:
        rights |= _IOCTL_DEVICE
    return rights


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Grant rights below a path. A missing path grants nothing."""
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_directory = os.fstat(parent).st_mode & 0o170000 == 0o040000
        if not is_directory:
            rights &= _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE | _READ_FILE | _CONNECT
        _syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, parent), 0)
    finally:
        os.close(parent)


_opened: list[ctypes.CDLL] = []
"""The C library, once it was needed: a keeper adds a rule for each entry beside a hidden path."""


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    if sys.platform != "linux":
        return -1
    if not _opened:
        _opened.append(ctypes.CDLL(None))
        _opened[0].syscall.restype = ctypes.c_long
    values = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return int(_opened[0].syscall(ctypes.c_long(number), *values))
