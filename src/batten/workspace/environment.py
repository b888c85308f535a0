"""The environment of commands: a short list of inherited names, never a secret."""

import os
from collections.abc import Mapping

from batten.redact.names import is_secret_name
from batten.workspace.programs import safe_path

INHERITED = (
    "PATH",
    "SHELL",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "TEMP",
    "TMP",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_TIME",
    "TZ",
    "TERM",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
)

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def command_environment(
    added: Mapping[str, str] | None = None,
    *,
    inherit: tuple[str, ...] = (),
    private_directory: str | None = None,
    source: Mapping[str, str],
) -> dict[str, str]:
    """The environment of a command.

    `inherit` lists further names or patterns (`NPM_*`) to take from `source`; a name that looks
    like a secret is dropped even if a pattern matches it. `added` are explicit values and pass
    unfiltered.
    """
    values = {name: source[name] for name in INHERITED if name in source}
    if inherit:
        values |= _matching(source, inherit)
    values.setdefault("PATH", DEFAULT_PATH)
    if private_directory is not None:
        values["TMPDIR"] = private_directory
        values.update((name, private_directory) for name in ("TEMP", "TMP") if name in values)
    values.update(added or {})
    return values


def outside_sandbox(environ: Mapping[str, str], workspace: str) -> dict[str, str]:
    """The environment for programs that run outside the sandbox: a command of the workspace cannot
    have written any folder on its PATH.
    """
    path = environ.get("PATH", DEFAULT_PATH)
    return {**environ, "PATH": safe_path(path, [os.path.realpath(workspace)])}


def _matching(source: Mapping[str, str], patterns: tuple[str, ...]) -> dict[str, str]:
    from fnmatch import fnmatchcase

    return {
        name: value
        for name, value in source.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns) and not is_secret_name(name)
    }
