"""Finds out what confines commands on this machine, as the service tells its clients."""

import os

from batten.contract.errors import BattenError
from batten.protocols.hecate.system import OsIsolation
from batten.wiring.spec import SessionSpec
from batten.workspace.environment import DEFAULT_PATH
from batten.workspace.keeper import Keeper
from batten.workspace.keeper_channel import unusable_layers
from batten.workspace.sandbox import Policy, find_bwrap


async def os_isolation(base: SessionSpec, home: str) -> OsIsolation:
    """Start a keeper as a run would, and ask it. The strongest layer that works is in force."""
    keeper = Keeper(home, Policy(mode=base.sandbox, network=base.network), base.environ)
    try:
        layer = (await keeper.ready()).layer
        weaker = "; ".join(f"{name}: {why}" for name, why in unusable_layers().items())
    except BattenError as error:
        return OsIsolation(kind="none", reason=f"commands are refused: {error}")
    finally:
        await keeper.close()
    if layer == "bwrap":
        path = find_bwrap(base.environ.get("PATH", DEFAULT_PATH), [os.path.realpath(home)])
        return OsIsolation(kind="bwrap", path=path or "")
    if base.sandbox == "none":
        return OsIsolation(kind="none", reason="the service was started with --sandbox none")
    if base.sandbox == "landlock":
        weaker = "the service was started with --sandbox landlock"
    return OsIsolation(kind=layer, reason=weaker or "there is no bwrap on PATH")
