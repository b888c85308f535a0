"""`batten sandbox`: shows the layer that confines commands here, and what it leaves open."""

import os
from argparse import Namespace

import msgspec
from msgspec.structs import replace

from batten.agent.rules.rule import Rule, editable_by
from batten.cli import current_directory
from batten.cli.parsing import UsageError
from batten.contract.marks import one_line
from batten.serve.output import put
from batten.settings.folders import config_folder
from batten.settings.reader import read_settings
from batten.wiring.files import PARTS
from batten.wiring.home import absolute, batten_home
from batten.workspace.keeper import Keeper
from batten.workspace.run_later import executed_by
from batten.workspace.sandbox import Mode, Policy, Sandbox


async def show_sandbox(options: Namespace) -> int:
    """Start a keeper as a session would; raises `CallerError` if no sandbox can be started."""
    if not os.path.isdir(absolute(options.directory or ".", current_directory())):
        raise UsageError(f"{options.directory} is not a directory")
    keeper = _keeper(
        options.directory or ".",
        mode=options.sandbox,
        network=options.sandbox_network == "allow",
        with_settings=True,
    )
    found = await _ask_keeper(keeper)
    if options.json:
        put(msgspec.json.encode(found).decode())
        return 0
    put(f"commands in {one_line(keeper.root)} run in the layer {found.layer}")
    for one in found.closed:
        put(f"  closed: {one}")
    for path in found.read_only:
        put(f"  only read: {one_line(path)} ({executed_by(path) or 'git'} executes it)")
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


def _keeper(directory: str, *, mode: Mode, network: bool, with_settings: bool = False) -> Keeper:
    here = current_directory()
    root = absolute(directory, here)
    policy = Policy(
        hidden=(batten_home(os.environ, here), config_folder(os.environ)),
        network=network,
        mode=mode,
    )
    if with_settings:
        policy = _as_set(policy, os.path.realpath(root), batten_home(os.environ, here))
    return Keeper(root, policy, os.environ)


def _as_set(policy: Policy, workspace: str, home: str) -> Policy:
    """With what the settings of files open to commands in this workspace."""
    found = read_settings(
        workspace=workspace, home=home, environ=os.environ, without=frozenset(PARTS)
    )
    rules = [Rule(rule.action, rule.pattern, rule.scope) for rule in found.rules]
    return replace(
        policy,
        writable=found.directories,
        sockets=found.sandbox.sockets or (),
        editable=editable_by(rules, workspace),
    )
