"""One keeper process per workspace and sandbox, shared by all that use both in one event loop."""

import asyncio
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from batten.workspace.keeper_channel import KeeperChannel, open_link
from batten.workspace.sandbox import Policy

_shared: "WeakKeyDictionary[asyncio.AbstractEventLoop, list[SharedKeeper]]" = WeakKeyDictionary()
_PLACES = ("PATH", "TMPDIR", "HOME")
"""Variables that decide how a keeper starts; the environment of commands is sent with each."""


class SharedKeeper:
    """Starts the process when it is first needed, and again after it was lost."""

    def __init__(self, root: str, policy: Policy, environ: Mapping[str, str]) -> None:
        self._identity = _identity(root, policy, environ)
        self._root, self._policy, self._environ = root, policy, dict(environ)
        self._opening: asyncio.Task[KeeperChannel] | None = None
        self._users = 0

    @classmethod
    def join(cls, root: str, policy: Policy, environ: Mapping[str, str]) -> "SharedKeeper":
        """The keeper for this workspace and policy; each `join` is undone by one `leave`."""
        here = _shared.setdefault(asyncio.get_running_loop(), [])
        identity = _identity(root, policy, environ)
        found = next((one for one in here if one._identity == identity), None)
        if found is None:
            found = cls(root, policy, environ)
            here.append(found)
        found._users += 1
        return found

    async def leave(self) -> None:
        """End the process with its last user."""
        self._users -= 1
        if self._users:
            return
        _shared[asyncio.get_running_loop()].remove(self)
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()

    def start(self) -> None:
        """Begin starting the process. Returns at once; does nothing while it runs."""
        lost: KeeperChannel | None = None
        if self._opening is not None:
            if not self._opening.done():
                return
            if not self._opening.cancelled() and self._opening.exception() is None:
                lost = self._opening.result()
                if not lost.is_lost():
                    return
        self._opening = asyncio.create_task(self._open(lost))

    async def channel(self) -> KeeperChannel:
        """The way to the process, once it runs."""
        self.start()
        assert self._opening is not None
        # Shielded: a caller that gives up waiting does not stop it for the others.
        return await asyncio.shield(self._opening)

    async def _open(self, lost: KeeperChannel | None) -> KeeperChannel:
        if lost is not None:
            await lost.close()
        return await open_link(self._root, self._policy, self._environ)


def _identity(root: str, policy: Policy, environ: Mapping[str, str]) -> object:
    """Two users with equal values can share a process."""
    sandbox = replace(policy, inherit=(), added={})
    return root, sandbox, [environ.get(name) for name in _PLACES]
