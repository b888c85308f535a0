"""Feeds the facts of a run, as they are recorded, to its folds and to its observer."""

from collections.abc import Callable

from batten.agent.conversation import Conversation
from batten.agent.deps import Observer
from batten.agent.progress import Progress
from batten.contract import facts
from batten.journal.recorder import Content


def observer_of(
    conversation: Conversation, progress: Progress, observer: Observer | None
) -> Callable[[facts.Fact, Content], None]:
    """The function that a `Recorder` calls with each fact; folds come before the observer."""

    def observe(fact: facts.Fact, content: Content) -> None:
        conversation.observe(fact, content)
        progress.observe(fact)

    def show(fact: facts.Fact, content: Content) -> None:
        observe(fact, content)
        assert observer is not None
        observer.take(fact)

    return observe if observer is None else show
