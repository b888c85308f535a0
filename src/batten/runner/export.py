"""Exported paths of a workspace: they exist and lie inside it."""

import os
import stat
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from batten.contract.errors import CallerError, NotFound, NotReady, Refused
from batten.workspace.root import ResolvedPath, Root

PathType = Literal["directory", "file", "other"]


class ExportedPath(Struct, frozen=True, kw_only=True):
    input: str
    """As requested."""
    path: str
    """The real path."""
    relative_path: str
    type: PathType


class WorkspaceExport(Struct, frozen=True, kw_only=True):
    mode: Literal["local_path_contract"] = "local_path_contract"
    paths: tuple[ExportedPath, ...]


def workspace(path: str) -> Root:
    """The workspace as it is now. Raises `NotReady` if it is gone."""
    try:
        return Root(path)
    except NotFound:
        raise NotReady(f"Hosted runner workspace root is unavailable: {path}") from None


def resolve(paths: Iterable[str], root: Root) -> WorkspaceExport:
    return WorkspaceExport(paths=tuple(_exported(path, root) for path in paths))


def inside(path: str, root: Root) -> ResolvedPath:
    """Where a path leads, links followed; it need not exist."""
    try:
        return root.resolve(path)
    except Refused:
        raise CallerError(
            f"Export path escapes hosted runner workspace root: {path}",
            code="export_path_escapes",
        ) from None


def _exported(path: str, root: Root) -> ExportedPath:
    place = inside(path, root)
    try:
        mode = os.lstat(place.path).st_mode
    except OSError:
        raise _unavailable(path) from None
    if stat.S_ISLNK(mode):  # links were followed: this one is a cycle, or new
        raise _unavailable(path)
    return ExportedPath(input=path, path=place.path, relative_path=place.shown, type=_type_of(mode))


def _unavailable(path: str) -> CallerError:
    return CallerError(f"Export path is unavailable: {path}", code="export_path_unavailable")


def _type_of(mode: int) -> PathType:
    if stat.S_ISDIR(mode):
        return "directory"
    return "file" if stat.S_ISREG(mode) else "other"
