"""`batten` as processes beside a service: asking it, or the journal of its home."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.service.serving import PATIENCE_S, Service

BATTEN = os.path.join(os.path.dirname(sys.executable), "batten")


class Printed(Struct, frozen=True):
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[Any]:
        """Each line of the output as JSON."""
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


async def batten(
    service: Service,
    *argv: str,
    server: str | None = None,
    environ: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Printed:
    """Run to the end, with `BATTEN_SERVER` if a server is given."""
    pipe = asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL
    process = await started(service, *argv, server=server, environ=environ, stdin=pipe)
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate(stdin or None)
    return Printed(process.returncode or 0, out, err.decode())


async def started(
    service: Service,
    *argv: str,
    server: str | None = None,
    environ: Mapping[str, str] | None = None,
    stdin: int = asyncio.subprocess.DEVNULL,
    cwd: Path | None = None,
) -> asyncio.subprocess.Process:
    named = {} if server is None else {"BATTEN_SERVER": server}
    return await asyncio.create_subprocess_exec(
        *(BATTEN, *argv),
        env={**service.stage.environ, **named, **(environ or {})},
        cwd=cwd or service.stage.workspace,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
