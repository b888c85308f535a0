"""Tries to get out, as this user: LAYER USER DIRECTORY; tells who got out as lines of JSON."""

import asyncio
import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from batten.contract.errors import BattenError
from batten.workspace.environment import outside_sandbox
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Limits, Mode, Policy

from .attempt import PRELUDE, Attempt, User
from .corpus import ATTEMPTS
from .world import SECRET, World

_PATIENCE_S = 20
_LIMITS = Limits(
    processes=100, memory_bytes=512 * 1024 * 1024, open_files=256, file_bytes=8_000_000
)


async def attempted(attempt: Attempt, world: World, mode: Mode, python: str) -> str:
    """What an attempt printed, once everything it started must have ended."""
    policy = Policy(
        mode=mode,
        added=world.environ,
        hidden=(str(world.state_folder),),
        limits=Limits() if mode == "none" else _LIMITS,
    )
    keeper = Keeper(str(world.workspace), policy, os.environ)
    said = bytearray()
    command = attempt.script if attempt.shell else [python, "-c", PRELUDE + attempt.script]
    try:
        with suppress(TimeoutError, BattenError):
            async with asyncio.timeout(_PATIENCE_S):
                async with await keeper.spawn(command) as started:
                    async for _, chunk in started.output():
                        said += chunk
                    await started.wait()
    finally:
        await keeper.close()
    return said.decode(errors="replace")


async def start_again(world: World, mode: Mode) -> None:
    """What Batten starts later must not be what a command left in the workspace."""
    bins = f"{world.workspace}/bin:bin:.:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": bins}
    keeper = Keeper(str(world.workspace), Policy(mode=mode), environ)
    with suppress(BattenError):
        await keeper.ready()
    await keeper.close()
    outside = Keeper(
        str(world.workspace), Policy(mode="none"), outside_sandbox(environ, str(world.workspace))
    )
    for program in ("git", "sh", "python3", "rg"):
        with suppress(BattenError):
            async with await outside.spawn([program, "--version"]) as started:
                await started.wait()
    await outside.close()


async def gets_out(attempt: Attempt, mode: Mode, directory: Path, python: str) -> str:
    """Why an attempt counts as an escape; empty if it does not."""
    world = World(directory, python)
    try:
        before = world.state()
        said = await attempted(attempt, world, mode, python)
        if (world.workspace / "bin").exists():
            await start_again(world, mode)
        if "ESCAPED" in said or SECRET in said:
            return "told"
        after = world.state()
        return ", ".join(key for key in before if before[key] != after[key])
    finally:
        world.close()
        shutil.rmtree(directory, ignore_errors=True)


async def main(mode: Mode, user: User, directory: Path) -> None:
    python = os.path.realpath(sys.executable)
    for number, attempt in enumerate(ATTEMPTS):
        tries = attempt.control if mode == "none" else attempt.users
        if user not in tries or user not in attempt.users:
            continue
        how = await gets_out(attempt, mode, directory / str(number), python)
        sys.stdout.write(json.dumps({"name": attempt.name, "how": how}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    layer, who, where = sys.argv[1:]
    asyncio.run(main(layer, who, Path(where)))  # type: ignore[arg-type]
