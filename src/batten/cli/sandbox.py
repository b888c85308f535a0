"""`batten sandbox`: shows the layer that confines commands here, and what it leaves open."""

import os
from argparse import Namespace

import msgspec

from batten.cli import current_directory
from batten.cli.parsing import UsageError
from batten.contract.marks import one_line
from batten.serve.output import put
from batten.settings.folders import config_folder
from batten.wiring.home import absolute, batten_home
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Mode, Policy, Sandbox


async def show_sandbox(options: Namespace) -> int:
    """Start a keeper as a session would; raises `CallerError` if no sandbox can be started."""
    if not os.path.isdir(absolute(options.directory or ".", current_directory())):
        raise UsageError(f"{options.directory} is not a directory")
    keeper = _keeper(
        options.directory or ".",
        mode=options.sandbox,
        network=options.sandbox_network == "allow",
    )
    found = await _ask_keeper(keeper)
    if options.json:
        put(msgspec.json.encode(found).decode())
        return 0
    put(f"commands in {one_line(keeper.root)} run in the layer {found.layer}")
    for gap in found.uncovered:
        put(f"  not covered: {gap}")
    return 0


async def usual_sandbox(directory: str) -> Sandbox:
    """The sandbox of a session without flags; raises `CallerError` if none can be started."""
    return await _ask_keeper(_keeper(directory, mode="auto", network=False))


async def _ask_keeper(keeper: Keeper) -> Sandbox:
    """Start a keeper, ask it, and end it."""
    try:
        return await keeper.ready()
    finally:
        await keeper.close()


def _keeper(directory: str, *, mode: Mode, network: bool) -> Keeper:
    here = current_directory()
    policy = Policy(
        hidden=(batten_home(os.environ, here), config_folder(os.environ)),
        network=network,
        mode=mode,
    )
    return Keeper(absolute(directory, here), policy, os.environ)
