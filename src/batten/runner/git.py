"""The git state of a workspace: commit, branch, and whether it is dirty."""

import asyncio
import os
from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType

from batten.workspace.git import STATUS, find_git, open_git
from batten.workspace.repository import find_repository

FOLDER = ".maestro"
"""The folder of a workspace that holds manifests and session files."""
DEADLINE_S = 1.0
"""For all git commands together."""


class GitState(Struct, frozen=True, kw_only=True):
    commit: str | UnsetType = UNSET
    branch: str | UnsetType = UNSET
    """Absent on a detached HEAD."""
    dirty: bool
    """Whether files of the workspace differ, those that runners leave in it apart. Also true if git
    did not answer in time: files not known to be clean may need keeping."""


async def state_of(directory: str, environ: Mapping[str, str]) -> GitState | UnsetType:
    """UNSET without git or without a repository."""
    return await asyncio.to_thread(_state_of, os.path.realpath(directory), environ)


def _state_of(directory: str, environ: Mapping[str, str]) -> GitState | UnsetType:
    try:
        found = find_repository(directory)
        program = None if found is None else find_git(found, directory, environ)
        if found is None or program is None:
            return UNSET
        with open_git(found, program, environ, seconds=DEADLINE_S) as git:
            commit = git.line("rev-parse", "--verify", "-q", "HEAD")
            branch = git.line("symbolic-ref", "--short", "-q", "HEAD")
            left = os.path.relpath(os.path.join(directory, FOLDER), found.top)
            but = ("--", ".", f":(exclude,literal){left}")
            dirty = git.answer(*STATUS, *but, enough=1) if git.has_format else None
    except OSError:
        return UNSET
    if commit is None and branch is None and dirty is None:
        return UNSET
    return GitState(commit=commit or UNSET, branch=branch or UNSET, dirty=dirty != b"")
