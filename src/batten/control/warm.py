"""Keeps the keepers of recent workspaces running, so that the next run there need not start one."""

import asyncio
from collections import OrderedDict

from batten.workspace.keeper import Keeper

_MOST = 8
_IDLE_S = 60.0


class WarmKeepers:
    """Holds one keeper for each of the last workspaces; each ends after a minute without a run."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[Keeper, float]] = OrderedDict()

    async def hold(self, keeper: Keeper) -> None:
        """Hold the process of this keeper beyond its session."""
        key = repr((keeper.root, keeper.policy))
        now = asyncio.get_running_loop().time()
        known = self._held.pop(key, None)
        self._held[key] = (keeper.twin() if known is None else known[0], now)
        await self._drop(now - _IDLE_S)

    async def _drop(self, before: float) -> None:
        while self._held:
            key, (keeper, used_at) = next(iter(self._held.items()))
            if used_at > before and len(self._held) <= _MOST:
                return
            del self._held[key]
            await keeper.close()

    async def run(self) -> None:
        """End idle keepers, until cancelled; then all of them."""
        try:
            while True:
                await asyncio.sleep(_IDLE_S / 4)
                await self._drop(asyncio.get_running_loop().time() - _IDLE_S)
        finally:
            await asyncio.shield(self._drop(float("inf")))
