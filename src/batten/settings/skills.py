"""Skills: folders with a SKILL.md, whose front matter gives a name and a description."""

import os
import re
from collections.abc import Iterator

from batten.contract.errors import CallerError
from batten.settings.contract import Scope, Skill
from batten.settings.files import read_bytes, shown, wrong
from batten.settings.tree import read_tree

_FILE = "SKILL.md"
_MOST = 100
_LARGEST = 256 * 1024
_LONGEST_DESCRIPTION = 1024


def find_skills(
    folder: str, scope: Scope, problems: list[str], *, within: str | None = None
) -> list[Skill]:
    """The skills in a folder, by name. A broken one is reported in `problems`."""
    skills: list[Skill] = []
    for path in _candidates(folder, problems):
        try:
            skills.append(_skill(path, scope, within))
        except CallerError as error:
            problems.append(f"a skill is left out: {error}")
    return skills


def skill_body(skill: Skill) -> str:
    """The instructions for the model, without the front matter."""
    if not skill.digest:
        return _parts(_text(skill.path, skill.within), skill.path)[1]
    tree = read_tree(os.path.dirname(skill.path), skill.within)
    if tree.digest != skill.digest:
        name = shown(os.path.dirname(skill.path), skill.within)
        raise wrong(f"{name} has changed since it was trusted; `batten trust` shows it")
    (data,) = [file.data for file in tree.files if file.name == _FILE]
    return _parts(_decoded(data, skill.path), skill.path)[1]


def is_only_text(folder: str) -> bool:
    """Whether a skill's folder contains nothing executable: only Markdown, no folders."""
    try:
        with os.scandir(folder) as entries:
            return all(entry.name.endswith(".md") and entry.is_file() for entry in entries)
    except OSError:
        return False


def _candidates(folder: str, problems: list[str]) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        problems.append(f"skills are left out: {folder} cannot be read: {error.strerror}")
        return
    if len(names) > _MOST:
        problems.append(f"{folder} has {len(names)} skills; those after the first {_MOST} are out")
    for name in names[:_MOST]:
        path = os.path.join(folder, name, _FILE)
        if os.path.lexists(path):
            yield path


def _skill(path: str, scope: Scope, within: str | None) -> Skill:
    keys, _ = _parts(_text(path, within), shown(path, within))
    name = keys.get("name") or os.path.basename(os.path.dirname(path))
    description = keys.get("description", "")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        what = f"name {name!r} must be up to 64 letters, digits, - and _"
        raise wrong(f"{shown(path, within)}: {what}")
    if not description or len(description) > _LONGEST_DESCRIPTION:
        what = f"description must be a text of up to {_LONGEST_DESCRIPTION} characters"
        raise wrong(f"{shown(path, within)}: {what}")
    return Skill(name=name, description=description, path=path, scope=scope, within=within)


def _text(path: str, within: str | None) -> str:
    return _decoded(read_bytes(path, within=within, largest=_LARGEST), shown(path, within))


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise wrong(f"{name} is not UTF-8 text") from error


def _parts(text: str, name: str) -> tuple[dict[str, str], str]:
    """The keys of the front matter, and the text that follows it.

    An indented line continues the key before it, so that a long description may be folded.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise wrong(f"{name} must begin with a line ---, then name: and description:")
    keys: dict[str, list[str]] = {}
    key = ""
    for number, line in enumerate(lines[1:], 2):
        if line.rstrip() == "---":
            values = {name: _value(words) for name, words in keys.items()}
            return values, "\n".join(lines[number:]).strip()
        found = re.fullmatch(r"([A-Za-z][A-Za-z0-9_-]*):(?:\s+(.*))?", line)
        if found is not None:
            key = found[1]
            if key in keys:
                raise wrong(f"{name}: line {number} says {key} again")
            keys[key] = [found[2] or ""]
        elif key and line[:1] in (" ", "\t", "-"):
            keys[key].append(line)
        elif line.strip() and not line.startswith("#"):
            raise wrong(f"{name}: line {number} must be `key: value`")
    raise wrong(f"{name}: a line --- must end the front matter")


def _value(words: list[str]) -> str:
    """The value of a key on one line, without YAML quotes and block markers."""
    first = "" if words[0].strip() in (">", ">-", "|", "|-") else words[0]
    text = " ".join(" ".join([first, *words[1:]]).split())
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return text
