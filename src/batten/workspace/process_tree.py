"""The processes below this one: finds them in /proc, names them, kills them all.

Runs inside the keeper, so it imports little; a run needs no `ctypes` of it. Needs /proc: that it
cannot be read is an error, not the absence of processes.
"""

import os
import select
import struct

SIGKILL, SIGTERM, SIGCONT = 9, 15, 18
_SIGCHLD = 17
_PR_SET_CHILD_SUBREAPER = 36
_SIG_BLOCK = 0
_NAME_LIMIT = 120
_PASSES = 50
_SACRIFICE = 500
"""As much as half of the memory counts as used by each process."""


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent exits."""
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def go_first_without_memory() -> None:
    """If memory runs out, the kernel kills the largest of this process and what it starts, before
    all other processes.
    """
    path = "/proc/self/oom_score_adj"
    try:
        if int(_read(path, 16)) < _SACRIFICE:
            descriptor = os.open(path, os.O_WRONLY)
            try:
                os.write(descriptor, b"%d" % _SACRIFICE)
            finally:
                os.close(descriptor)
    except (OSError, ValueError):
        return  # then the kernel chooses as ever


def open_child_events() -> int | None:
    """A descriptor that is readable when a child has ended; None without signalfd.

    signalfd rather than the signal module, whose import costs a third of the keeper's start. The
    descriptor and the blocked mask also work in forked processes.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "signalfd"):
        return None
    mask = struct.pack("=Q", 1 << (_SIGCHLD - 1)).ljust(128, b"\0")
    libc.signal(_SIGCHLD, None)  # if our parent had it ignored, the signal would never come
    libc.sigprocmask(_SIG_BLOCK, mask, None)
    events: int = libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
    return events if events >= 0 else None


def drain(events: int | None) -> None:
    if events is not None:
        try:
            while os.read(events, 4096):
                pass
        except BlockingIOError:
            pass


def processes() -> list[tuple[int, int, int]]:
    """Every process: pid, parent, process group. Raises `OSError` if /proc cannot be read."""
    found: list[tuple[int, int, int]] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = _read(f"/proc/{name}/stat", 1024)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            except PermissionError:
                continue  # another user's, where /proc hides those
            # The name in parentheses can itself contain spaces and parentheses.
            _, parent, group = text[text.rfind(b")") + 2 :].split(b" ", 3)[:3]
            found.append((int(name), int(parent), int(group)))
    return found


def check_visible() -> None:
    """Raise `OSError` unless /proc shows processes: without it no tree can be ended."""
    if str(os.getpid()) not in os.listdir("/proc"):
        raise FileNotFoundError(2, "/proc does not show this process")
    _read("/proc/self/stat", 1)


def descendants(spare: set[int] | None = None, *, of: int = 0) -> list[tuple[int, int]]:
    """Every process below this one (or below `of`) with its group, without subtrees of `spare`.

    Includes zombies: other threads of one may still run.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, group in processes():
        if spare is None or pid not in spare:
            children.setdefault(parent, []).append((pid, group))
    found = list(children.get(of or os.getpid(), ()))
    for pid, _ in found:
        found.extend(children.get(pid, ()))
    return found


def seen_from_here(pid: int, keeper: int) -> int | None:
    """Our own number of a process that a sandbox below `keeper` knows as `pid`; None if it has
    ended, or if the kernel does not list children.
    """
    number = str(pid).encode()
    found = [keeper]
    for one in found:  # level by level: commands come before what they started
        try:
            status = _read(f"/proc/{one}/status", 4096)
            children = _read(f"/proc/{one}/task/{one}/children", 65536)
        except OSError:
            continue
        # The number in each namespace, from that of /proc down to the process's own.
        numbers = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
        if numbers[1:2] == [number]:
            return one
        found.extend(map(int, children.split()))
    return None


def name_of(pid: int) -> bytes:
    """The command line as a user would type it, truncated; empty if the process has ended."""
    try:
        return _read(f"/proc/{pid}/cmdline", _NAME_LIMIT).replace(b"\0", b" ").strip()
    except OSError:
        return b""


def _read(path: str, limit: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def signal_tree(signal: int, found: list[tuple[int, int]]) -> None:
    """Signal each process and each group: a group signal also reaches children forked meanwhile.

    Every command is a session of its own, so its groups contain no other processes.
    """
    # Our own group is not a command's. It reads as 0 when its leader is outside the namespace.
    for group in {group for _, group in found} - {os.getpgrp(), 0}:
        _kill(-group, signal)
    signal_each(signal, found)


def signal_each(signal: int, found: list[tuple[int, int]]) -> None:
    """Signal each process once, as for a handler that must not run twice."""
    for pid, _ in found:
        _kill(pid, signal)


def _kill(target: int, signal: int) -> None:
    try:
        os.kill(target, signal)
    except (ProcessLookupError, PermissionError):
        return


def reap() -> tuple[dict[int, int], bool]:
    """Reap ended children: statuses by pid, and whether any child is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def kill_below(keeper: int) -> None:
    """Kill everything below a keeper that fails to do so itself, then the keeper.

    Until then it adopts processes that escape a pass by forking, so the next pass finds them.
    """
    seen: set[int] = set()
    for _ in range(_PASSES):
        found = descendants(of=keeper)
        if seen.issuperset(pid for pid, _ in found):
            break
        seen.update(pid for pid, _ in found)
        # Shims belong to the keeper's own group.
        signal_tree(SIGKILL, [(pid, 0 if group == keeper else group) for pid, group in found])
    _kill(keeper, SIGKILL)


def kill_all(
    events: int | None, spare: set[int] | None = None, known: tuple[int, ...] = ()
) -> dict[int, int]:
    """Kill everything below this process and wait until it is gone; returns the statuses.

    Processes that escape a pass by forking are adopted by this process and found by the next.
    While /proc cannot be read, the `known` leaders and their groups are killed, and the next pass
    looks again: it returns only when no child is left. With `spare` that cannot be told apart, so
    it raises `OSError`.
    """
    statuses: dict[int, int] = {}
    while True:
        try:
            found = descendants(spare)
        except OSError:
            if spare is not None:
                raise
            found = [(pid, pid) for pid in known if pid not in statuses]
        else:
            if not found:
                break
        signal_tree(SIGKILL, found)
        ended, children_left = reap()
        statuses.update(ended)
        if not children_left:
            break
        if set(ended).isdisjoint(pid for pid, _ in found):
            select.select([] if events is None else [events], [], [], 0.005)
            drain(events)
    return statuses
