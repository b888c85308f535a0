"""The fact that describes a task: its secrets hidden and long texts cut, the whole sealed."""

from collections.abc import Sequence

from msgspec.structs import replace

from batten.contract.facts import Fact, TaskCreated
from batten.journal.recorder import Recorder

_CUT = 4000
"""Characters of a long text in `task.created`; all of it is in the sealed payload."""


def describe(recorder: Recorder, hidden: TaskCreated, exact: bytes) -> None:
    """Record a task with its secrets hidden and long texts cut; the whole is sealed."""
    sealed = recorder.seal(exact, summary="task")
    cut = {
        name: value[:_CUT]
        for name in ("prompt", "system_prompt", "shell_command", "file_content")
        if isinstance(value := getattr(hidden, name), str) and len(value) > _CUT
    }
    recorder.record(replace(hidden, sealed_artifact_id=sealed, **cut))


def described_in(facts: Sequence[Fact]) -> TaskCreated:
    """The fact that describes a task, as it is stored."""
    return next(fact for fact in facts if isinstance(fact, TaskCreated))
