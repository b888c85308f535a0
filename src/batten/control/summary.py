"""What a run left changed in a git workspace of its own, as an artifact."""

import asyncio
import os
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from batten.journal.recorder import Recorder
from batten.workspace.git import STATUS, find_git, open_git
from batten.workspace.repository import Repository, find_repository

NAME = "git-changes.json"
_WITHIN_S = 2.0
_MOST_FILES = 500


class ChangedFile(Struct, frozen=True):
    path: str
    status: str
    """The two letters of git's porcelain format."""


class Changes(Struct, frozen=True):
    """The body of the artifact."""

    files: list[ChangedFile]
    file_count: int
    diff_stat: str
    """What `git diff --stat` says of tracked files."""


async def keep_changes(recorder: Recorder, workspace: str, environ: Mapping[str, str]) -> None:
    """Store the changes of a workspace, if it is a repository that has any and git is quick."""
    changes = await asyncio.to_thread(_changes, workspace, environ)
    if changes is None or not changes.files:
        return
    data, _ = recorder.redactor.value(msgspec.to_builtins(changes))
    count = changes.file_count
    recorder.artifact(
        "tool_result_blob",
        msgspec.json.encode(data),
        mime_type="application/json",
        summary=f"{NAME}: {count} changed file{'' if count == 1 else 's'}",
        metadata={"name": NAME, "file_count": count},
    )


def _changes(workspace: str, environ: Mapping[str, str]) -> Changes | None:
    """None if there is no repository, or git does not answer in time."""
    try:
        found = find_repository(os.path.realpath(workspace))
        program = None if found is None else find_git(found, workspace, environ)
        return None if found is None or program is None else _asked(found, program, environ)
    except OSError:
        return None


def _asked(found: Repository, program: str, environ: Mapping[str, str]) -> Changes | None:
    with open_git(found, program, environ, seconds=_WITHIN_S) as git:
        status = git.answer(*STATUS, "--no-renames")
        if status is None:
            return None
        stat = git.answer("diff", "--stat=100", "--no-ext-diff", "--no-textconv", "HEAD")
    entries = [entry.decode(errors="replace") for entry in status.split(b"\0") if entry]
    files = [ChangedFile(entry[3:], entry[:2]) for entry in entries[:_MOST_FILES]]
    return Changes(files, len(entries), (stat or b"").decode(errors="replace"))
