"""Worker ids, and whether the worker of an id is gone.

An id names the machine's boot, the process namespace, the process, its start time, and what the
clock said when the machine's time since boot began. So a process of this machine that was killed is
known to be dead at once, and the lease of a living one is judged by the time since boot: a jump of
the clock takes no run from it. A worker elsewhere is gone when its lease has expired.
"""

import os
import time
from collections.abc import Mapping
from typing import Literal

from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError
from batten.journal.contract import RunRow

LEASE_S = 30.0
_PREFIX = "worker-"
_JUMP_S = 2
"""The clock has jumped if it differs by more from the time since boot."""
_SECOND = 1_000_000_000


def this_worker() -> str:
    """The id of this process as a worker, constant for its lifetime."""
    pid = os.getpid()
    if pid not in _clocks:
        _clocks[pid] = _clock_at_boot()
    return f"{_PREFIX}{_machine()}-{pid}-{_started(pid) or 0}-{_clocks[pid]}"


def lease_seconds(environ: Mapping[str, str]) -> float:
    """How long a lease lasts without renewal: `BATTEN_LEASE_S`."""
    given = environ.get("BATTEN_LEASE_S", str(LEASE_S))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise CallerError(f"BATTEN_LEASE_S is {given!r}; it is seconds", code="config")
    return seconds


def is_gone(worker_id: str, lease_until: str) -> bool:
    """Whether the worker is gone: its process died, or its lease expired."""
    lives = _lives(worker_id)
    if lives is False:
        return True
    jumped_s = _jumped_s(worker_id) if lives else 0
    return lease_until <= timestamp(time.time_ns() - jumped_s * _SECOND)


def is_abandoned(run: RunRow) -> bool:
    """Whether an unfinished run's worker is gone. Computed, never written."""
    if run.ended_at is not None:
        return False
    if not run.worker_id:  # queued or parked, unless its status is `running`
        return run.status == "running"
    return is_gone(run.worker_id, run.lease_until)


def disconnection(run: RunRow) -> Literal["worker_lost", "worker_lease_expired"]:
    """Why an abandoned run has no worker: its process is known to be dead, or was not heard of."""
    if not run.worker_id or _lives(run.worker_id) is False:
        return "worker_lost"
    return "worker_lease_expired"


def _lives(worker_id: str) -> bool | None:
    """Whether the process lives, by its start since boot; None if that cannot be known here."""
    machine, _, process = worker_id.removeprefix(_PREFIX).partition("-")
    pid, _, rest = process.partition("-")
    started = rest.partition("-")[0]
    if machine != _machine() or not (pid.isdecimal() and pid.isascii()):
        return None
    now = _started(int(pid))
    if now is None:
        return None if _exists(int(pid)) else False
    if started == "0" or (started == str(now) and int(pid) == os.getpid()):
        # A run that this process itself lost hold of is its own to claim again.
        return None
    return started == str(now)


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


def _jumped_s(worker_id: str) -> int:
    """How far the clock has jumped since the worker started. It may have renewed its lease by
    either clock: it keeps its run for as much longer.
    """
    before = worker_id.rpartition("-")[2]
    if not (before.isdecimal() and before.isascii()):
        return 0
    jumped_s = abs(_clock_at_boot() - int(before))
    return jumped_s if jumped_s > _JUMP_S else 0


def _clock_at_boot() -> int:
    """What the clock said when the machine's time since boot began; the same until it is set."""
    return round(time.time() - time.monotonic())


_clocks: dict[int, int] = {}
"""By process: a forked one has its own."""
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
