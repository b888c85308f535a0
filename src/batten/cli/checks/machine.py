"""Checks of the machine: versions, disk, clock, programs."""

import os
import tempfile
import time
from datetime import UTC, datetime

from batten.cli.checks import Finding, Status, Surroundings
from batten.cli.versions import versions
from batten.contract.errors import BattenError
from batten.models.pricing import prices_as_of
from batten.workspace.environment import DEFAULT_PATH
from batten.workspace.programs import find_program
from batten.workspace.ripgrep import executable

_MIB = 1 << 20
_LITTLE = 1024 * _MIB
_TOO_LITTLE = 64 * _MIB
"""Less room than the ballast and a few endings need."""
_FEW_INODES = 1000
_SKEW_S = 30.0
"""The length of a lease: with more, workers of two machines take runs from each other."""


def check_versions() -> list[Finding]:
    found = versions()
    return [
        Finding(
            "versions",
            "ok",
            f"Batten {found['batten']}, Python {found['python']}, SQLite {found['sqlite']}, "
            f"{found['system']}",
        )
    ]


async def check_disk(around: Surroundings) -> list[Finding]:
    """Room for the store, for temporary files and in the workspace, once for each file system."""
    places = {"the store": around.home, "temporary files": tempfile.gettempdir()}
    places["the workspace"] = around.workspace
    names: dict[int, list[str]] = {}
    paths: dict[int, str] = {}
    for name, path in places.items():
        existing = _existing(path)
        device = os.stat(existing).st_dev
        names.setdefault(device, []).append(name)
        paths.setdefault(device, existing)
    return [_room(path, " and ".join(names[device])) for device, path in paths.items()]


def _room(path: str, what: str) -> Finding:
    state = os.statvfs(path)
    free = state.f_bavail * state.f_frsize
    status: Status = "ok"
    if free < _LITTLE or (state.f_files and state.f_favail < _FEW_INODES):
        status = "problem" if free < _TOO_LITTLE else "warning"
    files = "" if not state.f_files else f", {state.f_favail:,} files"
    message = f"{free / (1 << 30):.1f} GiB{files} free for {what} ({path})"
    return Finding("disk", status, message, "" if status == "ok" else "make room")


def _existing(path: str) -> str:
    """The path, or the nearest folder above it that exists."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def check_clock(around: Surroundings, findings: list[Finding]) -> list[Finding]:
    """Compare our clock with the servers that answered, and with the date of our own data."""
    now = datetime.now(UTC)
    local = now.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    if now.date().isoformat() < prices_as_of(around.environ):
        message = f"the clock shows {local}, before this version was made"
        return [Finding("clock", "problem", message, "set the clock: certificates will be refused")]
    ahead = [finding.clock_s for finding in findings if finding.clock_s is not None]
    if not ahead:
        return [Finding("clock", "ok", f"{local}; no server to compare it with")]
    skew = min(ahead, key=abs)
    if abs(skew) > _SKEW_S:
        side = "ahead of" if skew > 0 else "behind"
        message = f"the clock shows {local}: {abs(skew):.0f} s {side} the servers that answered"
        return [Finding("clock", "warning", message, "set the clock; leases depend on it")]
    return [Finding("clock", "ok", f"{local}, as the servers that answered")]


async def check_programs(around: Surroundings) -> list[Finding]:
    """Programs that tools use."""
    findings: list[Finding] = []
    try:
        findings.append(Finding("programs", "ok", f"ripgrep: {executable(around.workspace)}"))
    except BattenError as error:
        findings.append(Finding("programs", "warning", str(error)))
    path = around.environ.get("PATH", DEFAULT_PATH)
    for name, use in (("bash", "the bash tool"), ("git", "the diff of a repository")):
        found = find_program(name, path, [around.workspace])
        if found is None:
            message = f"{name} is not installed: {use} will fail"
            findings.append(Finding("programs", "warning", message, f"install {name}"))
        else:
            findings.append(Finding("programs", "ok", f"{name}: {found}"))
    return findings


def seconds_ahead(date: str) -> float | None:
    """How far our clock is ahead of this header; None if it has no date."""
    from email.utils import parsedate_to_datetime

    try:
        return time.time() - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
