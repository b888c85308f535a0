"""Rules about files: patterns as `.gitignore` has them, and files that need a rule of their own.

A pattern without a slash is about a name in any folder, one with a slash about a path from the
workspace. `//x` begins at the root, `~/x` at home, `./x` at the workspace; `/x` is both an
absolute path and one from the workspace. A folder stands for everything in it.
"""

import os
import re
from functools import lru_cache

from batten.contract.errors import CallerError
from batten.workspace.run_later import TEXTS, escaped, part_that_counts


def guarded_name(path: str) -> str:
    """The part of a path for which a file needs a rule of its own; empty if it needs none.

    These files make other programs run something: hooks of git, tasks of editors, start files.
    """
    return part_that_counts(path)


def may_be_guarded(line: str) -> bool:
    """Whether a command line must be read to know if it writes to a file that needs a rule of its
    own.
    """
    bare = re.sub(r"[\\'\"]", "", line).lower()
    return any(text in bare for text in TEXTS) or ("git" in bare and "config" in bare)


def editable_globs(pattern: str, workspace: str) -> list[str]:
    """Globs of absolute paths for a pattern that names a file with a rule of its own; none for any
    other pattern.
    """
    if not part_that_counts(pattern):
        return []
    base = escaped(workspace.rstrip("/"))
    if pattern.startswith("//"):
        return [pattern[1:]]
    if pattern.startswith("~/"):
        return [escaped(os.path.expanduser("~")) + pattern[1:]]
    is_tied = "/" in pattern.rstrip("/")
    inside = pattern.removeprefix("./").lstrip("/")
    found = [f"{base}/{inside}" if is_tied else f"{base}/**/{inside}"]
    return [*found, pattern] if pattern.startswith("/") else found


_NOT_UNDERSTOOD = (
    (r"(^|/)\.\.(/|$)", "paths are compared without `..`; write it from the root as //path"),
    (r"^~[^/]", "only `~/` is understood; write the path from the root as //path"),
    (r"^\$\w|\$\{", "variables are not replaced; write ~/path, or //path from the root"),
    (r"""^(['"]).*\1$""", "a pattern has no quotes"),
    (r"\{[^{}]*,[^{}]*\}", "braces are not expanded; write a rule for each name"),
    (r"^\w+://", "a file is written as a path"),
)
"""Spellings that would match nothing, each with what is right."""


def check_path_pattern(pattern: str) -> None:
    """Raises `CallerError` for a pattern that is not about any file."""
    if pattern.startswith("!"):
        raise CallerError("a pattern that begins with `!` has no meaning in a rule")
    if not pattern.strip("/.") and pattern not in (".", "./", "/", "//"):
        raise CallerError("the pattern names no file")
    for spelling, problem in _NOT_UNDERSTOOD:
        if re.search(spelling, pattern):
            raise CallerError(problem)


def absolute(path: str, workspace: str) -> str:
    """A path as a tool names it, relative to the workspace or absolute, without detours."""
    if path.startswith("~/") or path == "~":
        path = os.path.expanduser("~") + path[1:]
    return os.path.normpath(os.path.join(workspace or "/", path))


def relative(path: str, workspace: str) -> str | None:
    """An absolute path as seen from the workspace; None if it is outside."""
    base = workspace.rstrip("/") or "/"
    if path == base:
        return "."
    prefix = base if base.endswith("/") else base + "/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def matches_path(pattern: str, path: str, workspace: str, *, widely: bool) -> bool:
    """Whether a pattern is about a file. `widely`: a bare name counts outside the workspace too."""
    whole = absolute(path, workspace)
    inside = relative(whole, workspace)
    if pattern.startswith("//"):
        return _matches(pattern[1:], whole[1:])
    if pattern.startswith("~/"):
        return _matches(os.path.expanduser("~") + pattern[1:], whole[1:])
    if pattern.startswith("/") and _matches(pattern, whole[1:]):
        return True
    anchored = "/" + pattern[2:] if pattern.startswith("./") else pattern
    if inside is not None:
        return _matches(anchored, inside)
    is_bare = "/" not in pattern.rstrip("/") or pattern.startswith("**/")
    return widely and is_bare and _matches(pattern, whole[1:])


def _matches(pattern: str, path: str) -> bool:
    return _compiled(pattern).fullmatch(path) is not None


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    """As in `.gitignore`: a slash at the beginning or within ties the pattern to the top."""
    body = pattern.rstrip("/")
    is_tied = "/" in body
    parts = [part for part in body.split("/") if part not in ("", ".")]
    if not parts:
        return re.compile(r".*", re.DOTALL)
    expression = "" if is_tied else r"(?:.*/)?"
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        if part == "**":
            expression += r".*" if is_last else r"(?:.*/)?"
        else:
            expression += _name(part) + ("" if is_last else "/")
    return re.compile(expression + r"(?:/.*)?", re.DOTALL)


def _name(part: str) -> str:
    found: list[str] = []
    for token in re.findall(r"\[!?\]?[^\]]*\]|\\.|\*+|.", part, re.DOTALL):
        if token.startswith("*"):
            found.append("[^/]*")
        elif token == "?":
            found.append("[^/]")
        elif len(token) > 1 and token[0] == "[":
            inner = token[1:-1].replace("\\", "\\\\")
            inner = "^" + inner[1:] if inner.startswith("!") else inner
            try:
                re.compile(f"[{inner}]")
            except re.error:
                inner = re.escape(inner)
            found.append(f"(?!/)[{inner}]")
        else:
            found.append(re.escape(token[-1]))
    return "".join(found)
