"""Runs a client's hook commands like the agent's own: in the workspace, in the sandbox, and no
longer than the session.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from batten.agent.hooks.dispatch import ClientHook, Reply
from batten.contract.errors import BattenError
from batten.protocols.heddle import hooks
from batten.protocols.heddle.hooks import Hook
from batten.serve.output import say

if TYPE_CHECKING:
    from batten.serve.heddle.opening import Opening
    from batten.wiring.opening import OpenedSession
    from batten.workspace.commands import Command

_MOST_KEPT = 64 * 1024
"""Bytes kept of each output stream of a hook."""


class ClientHooks:
    """Runs a client's hooks on the events of one session."""

    def __init__(
        self, opening: "Opening", opened: "OpenedSession", group: asyncio.TaskGroup
    ) -> None:
        self._opening = opening
        self._opened = opened
        self._group = group
        self._aside: set[asyncio.Task[None]] = set()
        """Asynchronous hooks, which run in the background."""
        for event, named in (opening.later.hooks or {}).items():
            for hook in named:
                if hook.mode != "interactive":
                    self._register(event, hook)

    def close(self) -> None:
        for task in self._aside:
            task.cancel()

    def _register(self, event: str, hook: Hook) -> None:
        for ours in hooks.ours(event):
            client_hook = ClientHook(
                event=ours,
                callback_id=hook.command,
                call=self._teller(event, hook),
                matcher=hook.tools,
                timeout_s=hook.timeout_s,
                on_failure="allow",  # a timeout does not deny
            )
            self._opened.session.deps.hooks.register(client_hook)

    def _teller(self, event: str, hook: Hook) -> Reply:
        async def tell(payload: dict[str, Any], tool_call_id: str | None) -> dict[str, Any]:
            if not hook.fits(payload):
                return {}
            if not hook.is_async:
                return await self._run(event, hook, payload)
            task = self._group.create_task(self._run_aside(event, hook, payload))
            self._aside.add(task)
            task.add_done_callback(self._aside.discard)
            return {}

        return tell

    async def _run_aside(self, event: str, hook: Hook, payload: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(hook.timeout_s):
                await self._run(event, hook, payload)
        except (TimeoutError, BattenError) as error:
            say(f"batten: the hook {hook.command} failed: {error or 'it took too long'}")

    async def _run(self, event: str, hook: Hook, payload: dict[str, Any]) -> dict[str, Any]:
        session_id = self._opening.correlation.session_id
        env = hooks.variables(event, payload, session_id, self._opening.shown_model)
        command = await self._opened.keeper.spawn(
            hook.command, cwd=self._opened.session.deps.workspace_path, env=env, stdin="open"
        )
        async with command, asyncio.TaskGroup() as group:
            telling = group.create_task(_tell(command, hooks.told(payload)))
            printed = await _hear(command)
            ended = await command.wait()
            telling.cancel()
        return hooks.answer(event, ended.exit_code, *printed)


async def _tell(command: "Command", payload: bytes) -> None:
    """Write the payload to the hook; one that closes its input without reading is fine."""
    with suppress(BattenError):
        await command.write_stdin(payload)
        await command.close_stdin()


async def _hear(command: "Command") -> tuple[str, str]:
    """The first `_MOST_KEPT` bytes of stdout and stderr; the rest is read and dropped."""
    kept = {"stdout": bytearray(), "stderr": bytearray()}
    async for stream, chunk in command.output():
        kept[stream] += chunk[: max(0, _MOST_KEPT - len(kept[stream]))]
    return kept["stdout"].decode(errors="replace"), kept["stderr"].decode(errors="replace")
