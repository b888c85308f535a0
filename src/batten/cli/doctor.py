"""`batten doctor`: checks what a run needs on this machine, all at once, each check bounded."""

import asyncio
import os
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from textwrap import wrap

import msgspec

from batten.cli import current_directory
from batten.cli.checks import Finding, Surroundings
from batten.cli.checks.bus import check_event_bus
from batten.cli.checks.machine import check_clock, check_disk, check_programs, check_versions
from batten.cli.checks.servers import check_providers, check_tool_servers
from batten.cli.checks.state import check_sandbox, check_settings, check_store
from batten.cli.parsing import UsageError, columns
from batten.cli.versions import versions
from batten.contract.errors import BattenError
from batten.serve.output import put
from batten.serve.terminal.measures import counted
from batten.wiring.home import absolute, home_path

Check = Callable[[Surroundings], Awaitable[list[Finding]]]

_MARKS = {"ok": "ok", "warning": "warning", "problem": "PROBLEM"}


async def examine(options: Namespace) -> int:
    """Print all findings; 1 if one of them is a problem."""
    here = current_directory()
    workspace = os.path.realpath(absolute(options.directory or ".", here))
    if not os.path.isdir(workspace):
        raise UsageError(f"{options.directory} is not a directory")
    environ = dict(os.environ)
    settings, found = check_settings(workspace, environ)
    around = Surroundings(
        environ={**environ, **settings.env},
        workspace=workspace,
        home=home_path(environ, here),
        settings=settings,
        timeout_s=options.timeout,
        offline=options.offline,
    )
    findings = [*check_versions(), *found, *await _all(around)]
    is_fine = all(finding.status != "problem" for finding in findings)
    if options.json:
        shown = {"ok": is_fine, "versions": versions(), "findings": findings}
        put(msgspec.json.encode(shown).decode())
    else:
        _print(findings, is_fine=is_fine)
    return 0 if is_fine else 1


async def _all(around: Surroundings) -> list[Finding]:
    """The findings of all checks in order; the slow ones run side by side."""
    asked: list[Awaitable[list[Finding]]] = [
        _guarded("model", check_providers, around),
        _guarded("mcp", check_tool_servers, around),
        _guarded("sandbox", check_sandbox, around),
        _guarded("store", check_store, around),
        _guarded("event bus", check_event_bus, around),
    ]
    findings = [finding for one in await asyncio.gather(*asked) for finding in one]

    async def clock(around: Surroundings) -> list[Finding]:
        return check_clock(around, findings)

    disk = await _guarded("disk", check_disk, around)
    programs = await _guarded("programs", check_programs, around)
    return [*findings, *disk, *await _guarded("clock", clock, around), *programs]


async def _guarded(subject: str, check: Check, around: Surroundings) -> list[Finding]:
    """A check that fails is a finding: the others are still told."""
    try:
        return await check(around)
    except (BattenError, OSError) as error:
        return [Finding(subject, "problem", str(error))]


def _print(findings: Sequence[Finding], *, is_fine: bool) -> None:
    indent = " " * 19
    for finding in findings:
        head = f"{_MARKS[finding.status]:<8} {finding.subject:<9} "
        put(_wrapped(finding.message, head, indent))
        if finding.remedy:
            put(_wrapped(finding.remedy, f"{indent}→ ", f"{indent}  "))
    told = ", ".join(
        counted(sum(finding.status == word for finding in findings), word)
        for word in ("problem", "warning")
    )
    verdict = "nothing stands in the way of a run" if is_fine else "a run cannot work like this"
    put(f"\n{told}: {verdict}")


def _wrapped(text: str, first: str, rest: str) -> str:
    return "\n".join(wrap(text, max(columns(), 60), initial_indent=first, subsequent_indent=rest))
