"""`batten sandbox`: shows the layer that confines commands here, and what it leaves open."""

import os
from argparse import Namespace

import msgspec

from batten.cli import current_directory
from batten.serve.words import one_line
from batten.settings.reader import config_folder
from batten.wiring.home import absolute, batten_home
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Policy


async def show_sandbox(options: Namespace) -> int:
    """Start a keeper as a session would; raises `CallerError` if no sandbox can be started."""
    here = current_directory()
    policy = Policy(
        protected=(batten_home(os.environ, here), config_folder(os.environ)),
        network=options.sandbox_network == "allow",
        mode=options.sandbox,
    )
    keeper = Keeper(absolute(options.directory or ".", here), policy, os.environ)
    try:
        found = await keeper.ready()
    finally:
        await keeper.close()
    if options.json:
        print(msgspec.json.encode(found).decode())
        return 0
    print(f"commands in {one_line(keeper.root)} run in the layer {found.layer}")
    for gap in found.uncovered:
        print(f"  not covered: {gap}")
    return 0
