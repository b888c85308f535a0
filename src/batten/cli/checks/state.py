"""Checks of what Batten keeps and reads here: settings, the store, the sandbox."""

import asyncio
import os
import stat
from collections.abc import Mapping
from contextlib import closing

from batten.cli.checks import Finding, Surroundings
from batten.cli.sandbox import usual_sandbox
from batten.contract.errors import CallerError, NotFound
from batten.journal.contract import Journal
from batten.journal.opening import open_store
from batten.journal.workers import is_abandoned
from batten.settings.contract import EntryPoints, Settings
from batten.wiring.files import settings_of_files
from batten.wiring.home import home_path
from batten.wiring.ownership import fault_of
from batten.wiring.spec import SessionSpec
from batten.workspace.environment import DEFAULT_PATH
from batten.workspace.keeper_channel import unusable_layers
from batten.workspace.sandbox import find_bwrap

_NEWEST = 50
_VERIFY_S = 5.0
"""How long the newest runs are verified; the rest is left to `batten verify`."""


def check_settings(workspace: str, environ: Mapping[str, str]) -> tuple[Settings, list[Finding]]:
    """The settings of a run in this workspace, and what is wrong with them."""
    spec = SessionSpec(environ=environ, cwd=workspace)
    try:
        found = settings_of_files(spec, workspace, home_path(environ, workspace))
    except CallerError as error:
        return Settings(), [Finding("settings", "problem", str(error), "correct the file")]
    if found.entry_points != EntryPoints():
        from batten.wiring.entry_points import Extensions

        try:
            Extensions(found.entry_points, workspace, environ)
        except CallerError as error:
            remedy = "install the package, or correct the settings"
            return found, [Finding("settings", "problem", str(error), remedy)]
    sources = ", ".join(found.sources) or "no file"
    findings = [Finding("settings", "ok", f"read from {sources}")]
    return found, [*findings, *(Finding("settings", "warning", one) for one in found.problems)]


async def check_sandbox(around: Surroundings) -> list[Finding]:
    """The layer that confines commands here, and why it is not a stronger one."""
    try:
        found = await usual_sandbox(around.workspace)
    except CallerError as error:
        remedy = "install bubblewrap, or use a kernel with Landlock (5.13 or newer)"
        return [Finding("sandbox", "problem", str(error), remedy)]
    gaps = ", ".join(found.uncovered)
    covered = f"commands run in the layer {found.layer}; not covered: {gaps}"
    if found.layer == "bwrap":
        return [Finding("sandbox", "ok", covered)]
    if find_bwrap(around.environ.get("PATH", DEFAULT_PATH), [around.workspace]) is None:
        why = "bubblewrap, the stronger layer, is not installed"
        return [Finding("sandbox", "ok", f"{covered}; {why}", "install bubblewrap to close more")]
    reason = unusable_layers().get("bwrap", "it did not start")
    return [Finding("sandbox", "ok", f"{covered}; bubblewrap does not work here: {reason}")]


async def check_store(around: Surroundings) -> list[Finding]:
    """Whether the store can be read and written, and whether its newest runs are sound."""
    findings = _access(around.home)
    if any(finding.status == "problem" for finding in findings):
        return findings
    try:
        journal = open_store(around.home, read_only=True)
    except NotFound:
        return [*findings, Finding("store", "ok", f"no run yet; {around.home} will hold them")]
    with closing(journal):
        return [*findings, *await _contents(journal, around.home)]


def _access(home: str) -> list[Finding]:
    existing = home
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        return [Finding("store", "problem", f"{existing} is not a directory", "set BATTEN_HOME")]
    if not os.access(existing, os.W_OK | os.X_OK):
        message = f"{existing} cannot be written, so no run can be kept"
        return [Finding("store", "problem", message, "set BATTEN_HOME, or use --no-save")]
    path = os.path.join(home, "journal.db")
    if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
        return [Finding("store", "problem", f"{path} cannot be written", "change its owner")]
    if fault := fault_of(home):
        return [Finding("store", "problem", *fault)]
    if existing == home and stat.S_IMODE(os.stat(home).st_mode) & 0o077:
        message = f"others can read {home}"
        return [Finding("store", "warning", message, f"chmod 700 {home}")]
    return []


async def _contents(journal: Journal, home: str) -> list[Finding]:
    rows = await journal.runs(limit=_NEWEST)
    verified, has_sealed, until = 0, False, asyncio.get_running_loop().time() + _VERIFY_S
    for row in rows:
        damages = await journal.verify(row.run_id)
        if damages:
            message = f"{row.run_id}: {damages[0].message}"
            return [Finding("store", "problem", message, "`batten verify` finds all damage")]
        verified += 1
        has_sealed = has_sealed or bool(await journal.artifacts(row.run_id, kind="sealed"))
        if asyncio.get_running_loop().time() > until:
            break
    size = sum(
        os.path.getsize(path)
        for name in ("journal.db", "journal.db-wal")
        if os.path.exists(path := os.path.join(home, name))
    )
    message = f"{home}: {size / (1 << 20):.1f} MiB, the newest {verified} runs are sound"
    findings = [Finding("store", "ok", message)]
    if has_sealed and not os.path.exists(os.path.join(home, "seal.key")):
        lost = "seal.key is missing: reverts and some resumes will be refused"
        findings.append(Finding("store", "warning", lost, "restore it from a backup"))
    abandoned = [row.run_id for row in rows if is_abandoned(row)]
    if abandoned:
        message = f"{len(abandoned)} of the newest runs lost their process: {abandoned[0]}"
        remedy = f"`batten -p --resume {abandoned[0]}` goes on with it"
        findings.append(Finding("store", "warning", message, remedy))
    return findings
