"""Worker ids, and whether the worker of an id is gone.

An id names the machine's boot, the process namespace, the process and its start time, so
that a dead process of this machine is known at once. A living one is gone when its lease has
expired by the clock since boot: a jump of the wall clock takes no run from it. For a worker
elsewhere the wall clock decides.
"""

import os
import time
from collections.abc import Mapping
from typing import Protocol

from batten.contract.envelope import timestamp
from batten.contract.numbers import seconds_of
from batten.journal.contract import RunRow

LEASE_S = 30.0
_PREFIX = "worker-"


def this_worker() -> str:
    """The id of this process as a worker, constant for its lifetime."""
    pid = os.getpid()
    if pid not in _ids:
        _ids.clear()  # those of the processes that forked us
        _ids[pid] = f"{_PREFIX}{_machine()}-{pid}-{_started(pid) or 0}"
    return _ids[pid]


def lease_seconds(environ: Mapping[str, str]) -> float:
    """How long a lease lasts without renewal: `BATTEN_LEASE_S`."""
    return seconds_of(environ, "BATTEN_LEASE_S", LEASE_S)


class Leased(Protocol):
    """What is known of a lease."""

    @property
    def worker_id(self) -> str: ...
    @property
    def lease_until(self) -> str: ...
    @property
    def lease_boot_ms(self) -> int: ...


def is_gone(run: Leased) -> bool:
    """Whether the worker is gone: its process died, or its lease expired.

    On this machine the clock since boot decides, which nobody sets.
    """
    if is_dead(run.worker_id):
        return True
    if run.lease_boot_ms and _process(run.worker_id) is not None:
        return run.lease_boot_ms <= boot_ms()
    return run.lease_until <= timestamp()


def boot_ms() -> int:
    """Milliseconds since this machine started, its sleep included where that is counted."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


def is_abandoned(run: RunRow) -> bool:
    """Whether an unfinished run's worker is gone. Computed, never written."""
    if run.ended_at is not None:
        return False
    if not run.worker_id:  # queued or parked, unless its status is `running`
        return run.status == "running"
    return is_gone(run)


def has_exited(run: RunRow) -> bool:
    """Whether the process of an abandoned run's worker is known to be dead; else it was not heard
    of.
    """
    return not run.worker_id or is_dead(run.worker_id)


def process_of(worker_id: str) -> int | None:
    """The process of a worker on this machine; None for one elsewhere."""
    process = _process(worker_id)
    return None if process is None else process[0]


def is_dead(worker_id: str) -> bool:
    """Whether the process is known to be dead; False for a worker on another machine."""
    process = _process(worker_id)
    if process is None:
        return False
    pid, started = process
    now = _started(pid)
    if now is None:
        return not _exists(pid)
    return started not in ("0", str(now))


def _process(worker_id: str) -> tuple[int, str] | None:
    """The worker's process and its start since boot; None if it is not of this boot and machine."""
    machine, _, process = worker_id.removeprefix(_PREFIX).partition("-")
    pid, _, started = process.partition("-")
    if machine != _machine() or not (pid.isdecimal() and pid.isascii()):
        return None
    return int(pid), started


def _exists(pid: int) -> bool:
    if os.path.isdir("/proc/self"):
        return False  # /proc knows no such process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> int | None:
    """When a living process started, in ticks since boot; None if it is gone or unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command, in parentheses, may itself contain spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


_ids: dict[int, str] = {}
_machines: dict[int, str] = {}


def _machine() -> str:
    """This boot of this machine, as seen from this process namespace."""
    known = _machines.get(0)
    if known is None:
        from hashlib import sha256

        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                boot = file.read().strip()
            namespace = os.readlink("/proc/self/ns/pid")
        except OSError:
            boot, namespace = os.uname().nodename, ""
        known = _machines[0] = sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]
    return known
