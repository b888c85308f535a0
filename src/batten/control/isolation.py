"""Finds out what confines commands on this machine, as the service tells its clients."""

import os

from batten.contract.errors import BattenError
from batten.protocols.hecate.system import OsIsolation
from batten.wiring.spec import SessionSpec
from batten.workspace.environment import DEFAULT_PATH
from batten.workspace.keeper import Keeper
from batten.workspace.keeper_channel import unusable_layers
from batten.workspace.sandbox import Policy, find_bwrap, layers_to_try

_BY_FLAG = OsIsolation(kind="none", reason="the service was started with --sandbox none")


def expected_isolation(base: SessionSpec, home: str) -> OsIsolation:
    """The layer that is tried first: it takes a moment to find out whether it works."""
    if base.sandbox == "none":
        return _BY_FLAG
    path = _bwrap(base, home)
    layer = layers_to_try(base.sandbox, path)[0]
    path = path if layer == "bwrap" else ""
    return OsIsolation(kind=layer, path=path or "", reason="it has not been tried yet")


def _bwrap(base: SessionSpec, home: str) -> str | None:
    return find_bwrap(base.environ.get("PATH", DEFAULT_PATH), [os.path.realpath(home)])


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
        return OsIsolation(kind="bwrap", path=_bwrap(base, home) or "")
    if base.sandbox == "none":
        return _BY_FLAG
    if base.sandbox == "landlock":
        weaker = "the service was started with --sandbox landlock"
    return OsIsolation(kind=layer, reason=weaker or "there is no bwrap on PATH")
