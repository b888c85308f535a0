"""Runs the hooks before a run's first turn: `SessionStart` and `UserPromptSubmit`."""

from batten.agent.conversation import Conversation
from batten.agent.halt import Halt
from batten.agent.hooks.hooks import Hooks
from batten.agent.hooks.points import HookPoints
from batten.agent.progress import Progress


async def run_start_hooks(
    hooks: Hooks, points: HookPoints, conversation: Conversation, progress: Progress, model: str
) -> str:
    """Run the hooks; returns the text they add to the system prompt.

    Raises `Halt` if a hook refuses the prompt. The hooks run again for a run claimed from a dead
    worker before its first turn: the journal does not say whether they ran before.
    """
    if points.in_child:
        return ""
    if hooks.greeting is None:
        hooks.greeting = await points.session_started(hooks.source, model)
    if not progress.begun and progress.refused is None:
        await points.prompt_submitted(conversation.messages[-1].text())
    if progress.refused is not None:
        raise Halt("hook_denied", progress.refused or "a hook refused the prompt")
    return hooks.greeting
