"""`workspace.*`: files that changed in the workspace without a patch of ours."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract.facts.base import Fact

ChangeKind = Literal["created", "modified", "deleted"]


class ChangedFile(Struct, frozen=True):
    path: str
    """As file tools name it: relative to the workspace, absolute in another directory. A new
    folder of a cache or of installed packages ends in `/`; the files in it are not listed."""
    change: str
    """`created`, `modified` or `deleted`."""
    size_bytes: int | UnsetType = UNSET
    """After the command; absent for a deleted file and for a folder."""
    executed_by: str | UnsetType = UNSET
    """What executes or believes the file merely because a person opens, enters or lists its folder:
    `git`, `the editor`, `direnv`. Look at it before you do."""
    other_names: int | UnsetType = UNSET
    """How many more names the file has that were not looked at (hard links), perhaps outside the
    workspace: it changed under these too."""


class WorkspaceChangedByCommand(Fact, frozen=True):
    """Files that changed while a command ran. Their earlier content is not kept: they can be
    named, not reverted."""

    TYPE = "workspace.changed_by_command"
    tool_call_id: str
    tool_name: str
    files: list[ChangedFile]
    """Those that other programs execute come first."""
    file_count: int
    """All changed files, also those left out of a long list."""
    incomplete: str | UnsetType = UNSET
    """Why files may be missing: the workspace is too large to look at, or could not be read."""
