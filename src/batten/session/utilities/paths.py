"""Paths of a client's own work: inside the workspace, and inside the directory it names."""

import os

from batten.contract.errors import NotFound, Refused
from batten.workspace.root import ResolvedPath, Root


def working_directory(root: Root, cwd: str | None) -> ResolvedPath:
    """The directory to work in; the root if none is named."""
    place = root.resolve(cwd or ".")
    if not os.path.isdir(place.path):
        raise NotFound(f"Working directory not found: {cwd}", code="no_directory")
    return place


def file_below(root: Root, cwd: ResolvedPath, path: str) -> tuple[ResolvedPath, str]:
    """A file by its path from a directory, and its normalized path; never above the directory."""
    place = root.resolve(os.path.join(cwd.path, path))
    relative = os.path.relpath(place.path, cwd.path)
    if relative == ".." or relative.startswith("../"):
        raise Refused(
            f"Path traversal detected: {path} is outside {cwd.path}", code="workspace_violation"
        )
    return place, relative
