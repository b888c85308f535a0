"""A hook that is a command: reads its event on standard input, replies by exit code and output.

It is the user's own program and runs outside the sandbox. A keeper starts it, so the command and
its children end with this process, however that ends.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from batten.agent.hooks.reply import LARGEST_ANSWER, LONGEST_REASON, HookReply, of_command
from batten.contract.errors import BattenError
from batten.settings.contract import HandlerConfig
from batten.workspace.commands import Command
from batten.workspace.environment import outside_sandbox
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Policy


def hook_keeper(workspace: str, environ: Mapping[str, str]) -> Keeper:
    """Starts no process yet. Commands inherit `environ` except variables named like a secret.

    They run outside the sandbox, so no program is looked for where a sandboxed command can write.
    """
    return Keeper(
        workspace,
        Policy(mode="none", network=True, inherit=("*",)),
        outside_sandbox(environ, workspace),
    )


async def run_command(
    keeper: Keeper, handler: HandlerConfig, event: str, workspace: str, payload: bytes
) -> HookReply:
    """Run the command to its end. Cancelling this kills the command and its children."""
    line = handler.command if handler.args is None else [handler.command, *handler.args]
    env = {"CLAUDE_PROJECT_DIR": workspace, **handler.env}
    try:
        command = await keeper.spawn(line, cwd=workspace, env=env, stdin="open")
    except BattenError as error:
        return HookReply(failure=f"it could not be started: {error}")
    async with command, asyncio.TaskGroup() as group:
        telling = group.create_task(_tell(command, payload))
        try:
            stdout, stderr = await _hear(command)
            ended = await command.wait()
        except BattenError as error:
            return HookReply(failure=f"it was lost: {error}")
        finally:
            telling.cancel()
    if ended.exit_code is None:
        return HookReply(failure=f"it was ended by {ended.signal}")
    if len(stdout) > LARGEST_ANSWER:
        return HookReply(failure=f"it answered with more than {LARGEST_ANSWER} bytes")
    return of_command(event, ended.exit_code, bytes(stdout), bytes(stderr))


async def _tell(command: Command, payload: bytes) -> None:
    """Write the payload; a command may close its input without reading it."""
    with suppress(BattenError):
        await command.write_stdin(payload)
        await command.close_stdin()


async def _hear(command: Command) -> tuple[bytearray, bytearray]:
    """The output up to its limits. The rest is read and dropped, so that the command can finish."""
    stdout, stderr = bytearray(), bytearray()
    async for stream, chunk in command.output():
        kept, limit = (
            (stdout, LARGEST_ANSWER + 1) if stream == "stdout" else (stderr, LONGEST_REASON)
        )
        kept += chunk[: limit - len(kept)]
    return stdout, stderr
