"""Tasks that were created here and not started yet: clients mostly start them soon."""

from batten.contract.facts import TaskCreated
from batten.journal.contract import SessionRow

_MOST = 1024


class FreshTasks:
    """The last ones, with nothing to read back."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[SessionRow, TaskCreated]] = {}

    def keep(self, session: SessionRow, task: TaskCreated) -> None:
        while len(self._tasks) >= _MOST:
            del self._tasks[next(iter(self._tasks))]
        self._tasks[session.task_id] = session, task

    def take(self, task_id: str) -> tuple[SessionRow, TaskCreated] | None:
        """Once: a task that was started is not fresh."""
        return self._tasks.pop(task_id, None)
