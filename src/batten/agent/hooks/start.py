"""What hooks are told before a run's first turn, and what they may add to it or refuse."""

from batten.agent.conversation import Conversation
from batten.agent.halt import Halt
from batten.agent.hooks.hooks import Hooks
from batten.agent.hooks.points import HookPoints
from batten.agent.progress import Progress


async def run_start_hooks(
    hooks: Hooks, points: HookPoints, conversation: Conversation, progress: Progress, model: str
) -> str:
    """Tell of the session and of the prompt; what is added to the system prompt.

    `Halt` if a hook refuses the prompt. A run that was taken over before its first turn is told
    of again: whether hooks had heard of its prompt is not known.
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
