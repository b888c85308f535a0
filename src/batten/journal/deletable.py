"""What keeps a session from being deleted: the same for every store."""

from collections.abc import Iterable
from typing import Protocol

from batten.contract.errors import Conflict
from batten.journal.workers import Leased, is_gone


class LeasedRun(Leased, Protocol):
    """What decides whether a run can be removed."""

    @property
    def run_id(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def ended_at(self) -> str | None: ...


def why_kept(
    name: str,
    runs: Iterable[LeasedRun],
    pinned: Iterable[str],
    forks: Iterable[str],
    *,
    only_ended: bool,
) -> Conflict | None:
    """Why a session cannot be deleted: a living process holds it, something of it is pinned, or a
    fork continues it; with `only_ended`, also a run that has not ended.
    """
    for run in runs:
        is_session, ended = run.kind == "session", run.ended_at is not None
        if run.worker_id and not ended and not is_gone(run):
            # A session's stream is no run to look at.
            what = "it" if is_session else run.run_id
            return Conflict(
                f"{name} is in use: {run.worker_id} holds {what}; end that process first",
                code="session_held",
            )
        if only_ended and not is_session and not ended:
            return Conflict(f"its run {run.run_id} is unfinished", code="run_unfinished")
    for artifact_id in pinned:
        return Conflict(f"its artifact {artifact_id} is pinned", code="artifact_pinned")
    for fork in forks:
        return Conflict(
            f"session {fork} was forked from {name} and reads its facts; delete that one first",
            code="session_forked",
        )
    return None
