"""Settings files of workspaces, read again only when one of them has changed."""

import os
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from batten.settings.contract import Settings
from batten.settings.reader import layer_files
from batten.wiring.files import PARTS, settings_of_files
from batten.wiring.home import absolute
from batten.wiring.spec import SessionSpec

_KEPT = 1024
_Folders = Mapping[str, list[str]]
"""Files by their folder."""
_Stamp = tuple[tuple[int, int, int, int] | None, ...]


class LayersOfWorkspaces:
    """What settings files say, without the hooks, skills, servers and plugins that they name."""

    def __init__(self, spec: SessionSpec, home: str) -> None:
        self._spec = replace(
            spec, without=frozenset(PARTS), mcp_servers=(), plugin_dirs=(), warn=_tell_nobody
        )
        self._home = home
        self._flag: str | None = None
        if spec.settings is not None and spec.settings.lstrip()[:1] != "{":
            self._flag = absolute(spec.settings, spec.cwd)
        self._known: dict[str, tuple[_Folders, _Stamp, Settings]] = {}

    def of(self, workspace: str) -> Settings:
        """The settings of a workspace. Raises `CallerError` for a file that cannot be read."""
        known = self._known.pop(workspace, None)
        folders = self._folders(workspace) if known is None else known[0]
        stamp = tuple(_stamps(folders))
        if known is None or known[1] != stamp:
            known = folders, stamp, settings_of_files(self._spec, workspace, self._home)
        self._known[workspace] = known
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return known[2]

    def _folders(self, workspace: str) -> _Folders:
        found: dict[str, list[str]] = {}
        for path in (*layer_files(workspace, self._home, self._spec.environ), self._flag):
            if path:
                found.setdefault(os.path.dirname(path), []).append(path)
        return found


def _stamps(folders: _Folders) -> Iterable[tuple[int, int, int, int] | None]:
    """What tells whether a file has changed. Most folders do not exist: one look serves for all
    their files.
    """
    for folder, files in folders.items():
        if len(files) > 1 and not os.path.isdir(folder):
            yield None
            continue
        for path in files:
            try:
                found = os.stat(path)
            except OSError:
                yield None
            else:
                yield found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _tell_nobody(problem: str) -> None:
    """The worker that opens the session tells it."""
