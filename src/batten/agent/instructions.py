"""The system prompt: our text, the working directory, project instructions and memory."""

import os
from collections.abc import Iterator

from batten.settings.regular import read_regular
from batten.tools.memory import memory_path

_NAMES = ("AGENTS.md", "CLAUDE.md")
_MOST_BYTES = 32 * 1024

_OURS = (
    "You are an agent that works in a directory without a person watching. Use the tools to do "
    "what is asked; look before you change, and check your work by running it. Nobody can answer "
    "questions while you work unless a tool says so. When you are done, say briefly what you did "
    "and what is left."
)


def system_prompt(
    *,
    workspace: str,
    directories: tuple[str, ...] = (),
    home: str,
    own: str | None,
    appended: str,
    instructions: bool,
) -> str:
    """All parts, joined by blank lines."""
    place = f"The working directory is {workspace}."
    if directories:
        place += f" You can also read and write files in: {', '.join(directories)}."
    parts = [_OURS if own is None else own, place]
    if instructions:
        parts += project_instructions(workspace)
        parts += memories(home, workspace)
    parts.append(appended)
    return "\n\n".join(part for part in parts if part)


def project_instructions(workspace: str) -> Iterator[str]:
    """`AGENTS.md`, else `CLAUDE.md`, of each directory from the repository's root downwards."""
    directories = _from_repository(workspace)
    inside = os.path.join(os.path.realpath(directories[0]), "")
    for directory in directories:
        for name in _NAMES:
            path = os.path.join(directory, name)
            # A link in a repository must not show the model a file outside it.
            is_ours = directory == workspace or _is_ours(path)
            text = _read(path) if is_ours and os.path.realpath(path).startswith(inside) else ""
            if text:
                yield f"Instructions from {name} in {directory}:\n\n{text}"
                break


def _is_ours(path: str) -> bool:
    """Whether the file and its folder belong to our user, or to root: above the workspace, as in
    /tmp, anybody might have put a file that instructs the model.
    """
    try:
        owners = {
            os.stat(path).st_uid,
            os.lstat(path).st_uid,
            os.stat(os.path.dirname(path)).st_uid,
        }
    except OSError:
        return False
    return owners <= {0, os.geteuid()}


def memories(home: str, workspace: str) -> Iterator[str]:
    if not os.path.isdir(os.path.join(home, "memory")):
        return
    for title, path in (
        ("Memory", memory_path(home, None)),
        ("Memory of this project", memory_path(home, workspace)),
    ):
        text = _read(path)
        if text:
            yield f"{title}:\n\n{text}"


def _from_repository(workspace: str) -> list[str]:
    """The directories from the nearest one that holds `.git` down to the workspace."""
    directories = [workspace]
    while not os.path.exists(os.path.join(directories[-1], ".git")):
        parent = os.path.dirname(directories[-1])
        if parent == directories[-1]:
            return [workspace]
        directories.append(parent)
    return directories[::-1]


def _read(path: str) -> str:
    try:
        data = read_regular(path, _MOST_BYTES + 1)
    except OSError:
        return ""
    if len(data) <= _MOST_BYTES:
        return data.decode(errors="replace").strip()
    shown = data[:_MOST_BYTES].decode(errors="ignore").strip()
    return f"{shown}\n\n(cut at {_MOST_BYTES} bytes)"
