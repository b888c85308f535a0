"""A run with hooks in a process of its own, which something in it kills."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from batten.agent.hooks.hooks import Hooks
from batten.settings.contract import HookEvent

from .hooking import deciding, hook, hooks_of, saying
from .stage import Stage, bash, say

ROOT = Path(__file__).parents[2]


def model_of(stage: Stage) -> str:
    return stage.scenario([bash("echo proposed >> log", "c1")], [say("done")])


def dies_in(event: HookEvent) -> Callable[[Stage, int], Hooks]:
    """A hook that kills us the first time, and then says no to a prompt and yes to a tool."""

    def hooks(stage: Stage, pid: int) -> Hooks:
        once = stage.directory / "once"
        kill = f"[ -e {once} ] || {{ touch {once}; kill -9 {pid}; sleep 600; }}"
        then = "exit 2" if event == "UserPromptSubmit" else "exit 0"
        return hooks_of(stage, hook(event, f"{kill}; {then}"))

    return hooks


def dies_in_the_call(stage: Stage, pid: int) -> Hooks:
    """A hook that has another command run, in which we are killed."""
    command = f"echo changed >> log; kill -9 {pid}; sleep 600"
    changed = saying(deciding("allow", updatedInput={"command": command}))
    return hooks_of(stage, hook("PreToolUse", changed))


WAYS: dict[str, Callable[[Stage, int], Hooks]] = {
    "prompt": dies_in("UserPromptSubmit"),
    "before": dies_in("PreToolUse"),
    "after": dies_in("PostToolUse"),
    "call": dies_in_the_call,
}


def die(stage: Stage, way: str) -> None:
    """Run until killed."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.agent.dying", str(stage.directory), way],
        cwd=ROOT,
        timeout=30,
        check=False,
    )
    assert ended.returncode == -9


async def _run(directory: str, way: str) -> None:
    stage = Stage(Path(directory))
    hooks = WAYS[way](stage, os.getpid())
    await stage.run("--model", model_of(stage), "--allow", "bash", hooks=hooks)


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:]))
