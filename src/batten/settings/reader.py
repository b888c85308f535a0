"""Reads the settings of one invocation. If no file exists it only checks paths on disk.

`SettingsBuilder` merges them, and is imported only when needed.
"""

import os
from collections.abc import Mapping, Sequence
from typing import cast

from batten.contract.errors import CallerError
from batten.settings.contract import Scope, Settings
from batten.settings.folders import MANAGED, config_folder, has_settings

SOURCES: tuple[Scope, ...] = ("managed", "user", "project", "local")


def read_settings(
    *,
    workspace: str,
    home: str,
    environ: Mapping[str, str],
    flag: str | None = None,
    sources: tuple[str, ...] | None = None,
    plugin_dirs: Sequence[str] = (),
    without: frozenset[str] = frozenset(),
    trust_workspace: bool = False,
) -> Settings:
    """All files, flags and plugins, merged.

    `flag` is a JSON text or a file; `sources` names the scopes to read, all if None; `without`
    turns off "hooks", "skills", "mcp" or "plugins". Content of the workspace counts only as far
    as it is trusted in `home`, or all of it with `trust_workspace`. A `CallerError` of code
    `config` names the file and the key.
    """
    wanted = _wanted(sources)
    config = config_folder(environ)
    is_empty = flag is None and not plugin_dirs and not has_settings(workspace, environ)
    if is_empty:
        return Settings()
    from batten.settings.builder import SettingsBuilder

    builder = SettingsBuilder(
        workspace=workspace,
        home=home,
        config=config,
        environ=environ,
        wanted=wanted,
        without=without,
        trust_workspace=trust_workspace,
    )
    return builder.settings(MANAGED, flag, plugin_dirs)


def _wanted(sources: tuple[str, ...] | None) -> frozenset[Scope]:
    if sources is None:
        return frozenset(SOURCES)
    for name in sources:
        if name not in SOURCES:
            message = f"--setting-sources: {name!r} is not one of {', '.join(SOURCES)}"
            raise CallerError(message, code="config")
    return frozenset(cast("tuple[Scope, ...]", sources))


def layer_files(workspace: str, home: str, environ: Mapping[str, str]) -> list[str]:
    """Every file that decides about settings, whether it exists or not; without those of hooks,
    skills, servers and plugins.
    """
    from batten.settings.files import KINDS
    from batten.settings.supplied import FOLDER, STEMS
    from batten.settings.trust import book_of

    stems = [MANAGED, os.path.join(config_folder(environ), "settings")]
    stems += [os.path.join(workspace, FOLDER, stem) for stem in STEMS.values()]
    files = [stem + kind for stem in stems for kind in KINDS]
    return [*files, environ.get("BATTEN_MANAGED_SETTINGS", ""), book_of(home)]
