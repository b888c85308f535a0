"""Files that other programs execute or believe later, because a person opens, enters or lists a
folder, commits in it, or starts a shell, a debugger or an agent there.

One table. Commands may only read those that are there when their sandbox starts; what a layer
cannot keep, and what is new, is named after the command (`changes.py`). File tools ask before they
write one. Files that a build, a test or a linter loads are not among these: writing them is work.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from batten.settings.regular import read_regular
from batten.workspace.programs import is_below
from batten.workspace.repository import find_repository

TABLE: dict[str, str] = {
    # Everything in a folder of this name.
    "git/": ".git .husky .githooks .lefthook",
    "the editor/": ".vscode .idea .zed .fleet .devcontainer",
    "the agent/": ".claude .cursor .codex .gemini .opencode .windsurf .kiro .roo .amp .continue",
    "Batten/": ".batten",
    "direnv/": ".direnv",
    "ssh/": ".ssh",
    "gpg/": ".gnupg",
    # A file of this name in any folder.
    "git": ".gitconfig .gitmodules .pre-commit-config.yaml .pre-commit-config.yml lefthook.yml "
    "lefthook.yaml .lefthook.yml .lefthook.yaml .hg/hgrc .hg/hgrc-not-shared .jj/repo/config.toml",
    "the editor": ".vimrc .gvimrc .exrc .nvimrc .nvim.lua .lvimrc .lazy.lua .dir-locals.el "
    ".dir-locals-2.el *.code-workspace",
    "the agent": ".mcp.json .claude.json opencode.json opencode.jsonc",
    "direnv": ".envrc",
    "mise": "mise.toml .mise.toml mise.local.toml .mise.local.toml .rtx.toml .tool-versions "
    ".mise/config.toml mise/config.toml .config/mise.toml .config/mise/config.toml",
    "cargo": ".cargo/config .cargo/config.toml",
    "npm": ".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs",
    "the debugger": ".gdbinit .lldbinit .pdbrc",
    "the interpreter": ".irbrc .pryrc .rprofile .iex.exs .ghci .ocamlinit",
    "rg": ".ripgreprc",
    "the shell": ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc "
    ".zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login .inputrc",
}
"""By the program that executes or believes them; with a slash, all that is in such a folder. The
page on security shows it."""

_FOLDERS = {name: by[:-1] for by, names in TABLE.items() if by[-1] == "/" for name in names.split()}
_NAMES = {name: by for by, names in TABLE.items() if by[-1] != "/" for name in names.split()}
_BESIDE = {name: by for name, by in _NAMES.items() if "/" in name}
"""Those that count only in a folder of a certain name."""
_FILES = {name: by for name, by in _NAMES.items() if "/" not in name and "*" not in name}
_ENDINGS = {name[1:]: by for name, by in _NAMES.items() if name[0] == "*"}
_ENDINGS_ALL = tuple(_ENDINGS)
_LAST = frozenset(name.rsplit("/", 1)[-1] for name in _BESIDE)
_ABOVE = frozenset(name.split("/")[-2] for name in _BESIDE)
TEXTS = frozenset((*_FOLDERS, *_FILES, *_ENDINGS, *_BESIDE))
"""A path to such a file has one of these in it, in lower case."""

_OF_GIT = ("config", "config.worktree", "commondir", "info/attributes")
"""What decides which programs git starts, beside its hooks."""
_OF_TREES = ("commondir", "config.worktree")
_NOT_EXECUTED = ".sample"
_CONFIGURED = (
    rb"^[ \t]*\[[ \t]*([\w.-]+)[^\]\n]*\]"
    rb"|\b(hookspath|fsmonitor|path)[ \t]*=[ \t]*\"?([^\"#;\r\n]+)"
)
"""Sections of git's configuration, and keys that name a program, a folder of them or more
configuration."""
_SECTIONS = {
    b"hookspath": (b"core",),
    b"fsmonitor": (b"core",),
    b"path": (b"include", b"includeif"),
}
_CONFIG_BYTES = 64 * 1024
_DEEPEST_MODULE = 3
_LEFT_OUT = frozenset({"node_modules", "__pycache__", ".venv", "venv"})
_MOST_ENTRIES = 256
"""Of the walk for what is there: it takes less than a millisecond."""
_MOST_MOUNTS = 48
"""One for each of them, and one for each folder above."""


def executed_by(path: str) -> str:
    """The program that executes or believes a file, by its name; empty if none does."""
    return _known(path)[1]


def may_be_later(name: str) -> bool:
    """Whether a file of this name can be one, in whatever folder: a quick look."""
    lower = name.lower()
    return lower in _FILES or lower in _FOLDERS or lower in _LAST or lower.endswith(_ENDINGS_ALL)


def part_that_counts(path: str) -> str:
    """The name in a path that makes it such a file; empty if it is none."""
    return _known(path)[0]


def _known(path: str) -> tuple[str, str]:
    parts = path.split("/")
    for part in parts:
        if by := _FOLDERS.get(part.lower()):
            return part, by
    last = parts[-1].lower()
    if by := _FILES.get(last):
        return parts[-1], by
    for ending, by in _ENDINGS.items():
        if last.endswith(ending):
            return parts[-1], by
    if len(parts) > 1 and parts[-2].lower() in _ABOVE:
        tail = "/" + path.lower()
        for name, by in _BESIDE.items():
            if tail.endswith("/" + name):
                return name, by
    return "", ""


def is_git_folder(names: Iterable[str]) -> bool:
    """Whether git takes a folder with these names for a repository, bare or not."""
    return {"HEAD", "objects", "refs"} <= set(names)


def files_of_git(folder: str, top: str) -> Iterator[str]:
    """The files that decide which programs git starts: in its folder, and in the working tree at
    `top` those that its configuration names.
    """
    for named in _configured(os.path.join(folder, "config"), top):
        inner = [os.path.join(named, name) for name in _listed(named)]
        yield from (path for path in inner or [named] if not os.path.isdir(path))
    for repository in _repositories(folder):
        yield from _beside_hooks(repository)
        hooks = os.path.join(repository, "hooks")
        names = _listed(hooks)
        yield from (os.path.join(hooks, name) for name in names if not name.endswith(_NOT_EXECUTED))


def files_of_tree(top: str) -> Iterator[str]:
    """What decides it for a linked working tree, whose folder of git's is elsewhere."""
    try:
        found = find_repository(top) if os.path.isfile(os.path.join(top, ".git")) else None
    except OSError:
        return
    if found is not None:
        yield from _beside_hooks(found.own)


def _repositories(folder: str) -> Iterator[str]:
    """This folder of git's, and those of its submodules."""
    yield folder
    yield from _modules(os.path.join(folder, "modules"), _DEEPEST_MODULE)


def _beside_hooks(folder: str) -> Iterator[str]:
    for name in _OF_GIT:
        yield from _existing(os.path.join(folder, name))
    trees = os.path.join(folder, "worktrees")
    for tree in _listed(trees):
        for name in _OF_TREES:
            yield from _existing(os.path.join(trees, tree, name))


def _modules(folder: str, depth: int) -> Iterator[str]:
    """The repositories of submodules, whose names may have slashes."""
    for name in _listed(folder) if depth else ():
        module = os.path.join(folder, name)
        if is_git_folder(_listed(module)):
            yield from _repositories(module)
        else:
            yield from _modules(module, depth - 1)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _existing(path: str) -> Iterator[str]:
    if os.path.lexists(path):
        yield path


def found_in(tops: Sequence[str], editable: Sequence[str] = ()) -> list[str]:
    """The real paths of those that are in these folders now, as far as a short walk from the top
    downwards gets; without those that globs of absolute paths open. What links lead to counts, the
    links do not: a mount cannot keep them.
    """
    found: dict[str, None] = {}
    waiting = [(top, "") for top in dict.fromkeys(tops)]
    left = _MOST_ENTRIES
    for folder, below in waiting:
        if left <= 0 and below:
            break
        try:
            with os.scandir(folder) as entries:
                inner = list(islice(entries, max(0, left) + 1))
        except OSError:
            continue
        if len(inner) > left and not below:
            found |= dict.fromkeys(_by_name(folder))
        left -= len(inner)
        names = {entry.name for entry in inner}
        if is_git_folder(names) or (not below and "commondir" in names):
            found |= dict.fromkeys(_of_repository(folder, folder))
        for entry in inner:
            if entry.name.lower() == ".git":
                found |= dict.fromkeys(_of_repository(entry.path, folder))
            elif part_that_counts(below + entry.name):
                found[entry.path] = None
            elif entry.name not in _LEFT_OUT and entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, f"{below}{entry.name}/"))
    real = dict.fromkeys(map(os.path.realpath, found))
    kept = [path for path in real if is_below(path, tops) and path not in tops]
    if editable:
        kept = [inner for path in kept for inner in _closed(path, editable)]
    # A link that leads nowhere, or to itself, is its own real path.
    there = [path for path in kept if os.path.lexists(path) and not os.path.islink(path)]
    return list(_as_mounts_allow(there, tops))


def _as_mounts_allow(paths: list[str], tops: Sequence[str]) -> Iterator[str]:
    mounts: set[str] = set()
    for path in paths:
        needed = {path}
        folder = os.path.dirname(path)
        while folder not in tops:
            needed.add(folder)
            folder = os.path.dirname(folder)
        if len(mounts | needed) <= _MOST_MOUNTS:
            mounts |= needed
            yield path


def _closed(path: str, editable: Sequence[str]) -> list[str]:
    """What of a path no glob opens: of a folder in which one opens a part, the rest."""
    from batten.workspace.globs import path_glob

    parts = path.split("/")
    above = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
    globs = [path_glob(each) for each in editable]
    if any(each.fullmatch(one) for each in globs for one in (*above, f"{path}/x")):
        return []
    if not any(each.startswith(f"{escaped(path)}/") for each in editable):
        return [path]
    return [one for name in _listed(path) for one in _closed(os.path.join(path, name), editable)]


def escaped(path: str) -> str:
    """The glob for just this path."""
    return re.sub(r"([*?[])", r"[\1]", path)


def _by_name(folder: str) -> Iterator[str]:
    for name in (*_FOLDERS, *_FILES, *_BESIDE):
        for path in _existing(os.path.join(folder, name)):
            yield from _of_repository(path, folder) if name == ".git" else (path,)


def _of_repository(own: str, top: str) -> Iterator[str]:
    """Of a repository with this working tree; its hooks as one folder, so that none can be added.
    A file in the place of its folder names another one.
    """
    if not os.path.isdir(own):
        yield own
        return
    for folder in _repositories(own):
        yield from _existing(os.path.join(folder, "hooks"))
        yield from _beside_hooks(folder)
    yield from _configured(os.path.join(own, "config"), top)


def _configured(config: str, top: str) -> Iterator[str]:
    """What git's configuration names: hooks elsewhere, a monitor of files, more configuration."""
    try:
        text = read_regular(config, _CONFIG_BYTES)
    except OSError:
        return
    section, lower = b"", text.lower()
    if not any(word in lower for word in (b"hookspath", b"fsmonitor", b"include")):
        return  # without the pattern, which takes long to compile
    for header, key, value in re.findall(_CONFIGURED, text, re.IGNORECASE | re.MULTILINE):
        if header:
            section = header.lower()
        elif section in _SECTIONS[key.lower()]:
            named = os.path.expanduser(os.fsdecode(value).strip())
            if key.lower() == b"fsmonitor":
                named = named.split(" ")[0]
            folder = os.path.dirname(config) if key.lower() == b"path" else top
            yield from _existing(os.path.normpath(os.path.join(folder, named)))
