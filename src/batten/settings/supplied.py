"""Settings, MCP servers, skills and plugins that a workspace supplies; a judge decides on trust.

Untrusted content keeps only its restrictions, and skills that consist of text alone.
"""

import os
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from batten.contract.errors import CallerError
from batten.settings.brought import by_layer, by_plugin, by_servers
from batten.settings.contract import Scope, Skill
from batten.settings.files import LeadsOut, find, is_inside, read, shown, wrong
from batten.settings.folders import at_home
from batten.settings.keys import read_layer, read_servers
from batten.settings.layer import Layer, restrained
from batten.settings.plugins import PluginContent, read_plugin
from batten.settings.problems import bounded, named
from batten.settings.skills import find_skills, is_only_text
from batten.settings.table import Table
from batten.settings.tree import Tree, private_copy, read_tree, tree_digest
from batten.settings.trust import Brought, Content, trusted_in

FOLDER = ".batten"
SERVERS = ".mcp.json"
MOST_RULES = 500
"""Limit of rules in an untrusted file: each is matched against every call."""
STEMS: dict[Scope, str] = {"project": "settings", "local": "settings.local"}


class Judge(Protocol):
    def trusts(self, content: Content) -> bool: ...

    def copy(self, name: str, tree: Tree) -> str | None:
        """The path of a private copy of content that may be trusted; None if it may not."""
        ...

    @property
    def only_lists(self) -> bool:
        """Whether content is shown to the user only, and nothing of it runs."""
        ...


class Supplied:
    """The content of one workspace, as far as the judge trusts it."""

    def __init__(self, workspace: str, judge: Judge, problems: list[str]) -> None:
        self._root = os.path.realpath(workspace)
        self._judge = judge
        self._problems = problems

    def layer(self, scope: Literal["project", "local"]) -> Layer | None:
        """The workspace's settings of a scope; if untrusted, only their restrictions."""
        try:
            document = find(os.path.join(self._root, FOLDER, STEMS[scope]), within=self._root)
        except LeadsOut as error:
            self._problems.append(f"settings are left out: {error}")
            return None
        if document is None:
            return None
        layer = read_layer(document, scope, self._root, self._problems)
        kept = restrained(layer)
        brings = by_layer(layer)
        if len(kept.rules) > MOST_RULES:
            brings += (Brought("list", f"{len(kept.rules)} rules that deny or ask"),)
        content = Content(name=document.shown, digest=document.digest, brings=brings)
        if brings and self._judge.trusts(content):
            return layer
        if len(kept.rules) > MOST_RULES:
            # Dropping some of them would lift restrictions.
            what = f"has {len(kept.rules)} rules that deny or ask"
            advice = f"more than {MOST_RULES} need trust; `batten trust` shows the file"
            raise wrong(f"{document.shown} {what}; {advice}")
        return replace(kept, sources=()) if brings else kept

    def servers(self) -> dict[str, dict[str, Any]]:
        """The MCP servers of the workspace's `.mcp.json`."""
        path = os.path.join(self._root, SERVERS)
        if not os.path.lexists(path):
            return {}
        try:
            document = read(path, within=self._root)
        except LeadsOut as error:
            self._problems.append(f"MCP servers are left out: {error}")
            return {}
        servers = read_servers(Table(document.content, document.shown), "mcp_servers")
        brings = by_servers(servers)
        content = Content(name=document.shown, digest=document.digest, brings=brings)
        return servers if servers and self._judge.trusts(content) else {}

    def skills(self) -> list[Skill]:
        """The workspace's skills: text alone needs no trust, further files do."""
        folder = os.path.join(self._root, FOLDER, "skills")
        found = find_skills(folder, "project", self._problems, within=self._root)
        return [skill for skill in map(self._offered, found) if skill is not None]

    def plugin(self, path: str, environ: Mapping[str, str]) -> PluginContent | None:
        """A plugin named in the workspace's settings; needs trust as a whole, wherever it is."""
        path = os.path.normpath(at_home(path, environ))
        real = os.path.realpath(path)
        within = self._root if is_inside(real, self._root) else None
        if _holds(real, self._root):
            why = "holds the workspace itself"
        elif within is None and path.startswith(os.path.join(self._root, "")):
            why = "is a link that leads out of the workspace"
        else:
            return self._trusted_plugin(real, environ, within)
        self._problems.append(f"a plugin is left out: {shown(path, self._root)} {why}")
        return None

    def _trusted_plugin(
        self, path: str, environ: Mapping[str, str], within: str | None
    ) -> PluginContent | None:
        if not os.path.isdir(path):
            return read_plugin(path, environ, self._problems, within=within)  # reports it
        name = shown(path, within)
        try:
            tree = read_tree(path, within)
            copy = self._judge.copy(name, tree)
        except (CallerError, OSError) as error:
            self._problems.append(f"a plugin is left out: {error}")
            return None
        if copy is None:
            plugin = read_plugin(path, environ, self._problems, within=within)
        else:
            root = path if self._judge.only_lists else copy
            plugin = read_plugin(copy, environ, self._problems, root=root)
        if plugin is None:
            return None
        content = Content(name=name, digest=tree.digest, brings=by_plugin(plugin))
        if not self._judge.trusts(content) or copy is None:
            return None
        skills = [self._pinned(skill) for skill in plugin.skills]
        return replace(
            plugin,
            plugin=replace(plugin.plugin, path=path),
            skills=tuple(skill for skill in skills if skill is not None),
        )

    def _offered(self, skill: Skill) -> Skill | None:
        """A skill of the workspace, if the model may see it."""
        folder = os.path.dirname(skill.path)
        if is_only_text(folder):
            return skill
        pinned = self._pinned(skill)
        if pinned is None:
            return None
        brings = (Brought("skill", f"{skill.name}, with files beside its text"),)
        content = Content(name=shown(folder, self._root), digest=pinned.digest, brings=brings)
        return pinned if self._judge.trusts(content) else None

    def _pinned(self, skill: Skill) -> Skill | None:
        """Bind a skill to the current digest of its folder."""
        try:
            digest = tree_digest(os.path.dirname(skill.path), skill.within)
        except (CallerError, OSError) as error:
            self._problems.append(f"a skill is left out: {error}")
            return None
        return replace(skill, digest=digest)


class Recorded:
    """Judges by the trust recorded in `home`, and collects rejected content."""

    only_lists = False

    def __init__(self, home: str, workspace: str, *, trust_all: bool = False) -> None:
        """`trust_all`: the user trusts this workspace for the present invocation."""
        self._trust_all = trust_all
        self._home = home
        self._workspace = os.path.realpath(workspace)
        self._digests: dict[str, str] | None = None
        self._left_out: list[str] = []

    def copy(self, name: str, tree: Tree) -> str | None:
        if not self._trust_all and self._known(name) != tree.digest:
            return None
        from batten.settings.copies import hold_copy

        return hold_copy(tree, self._home)

    def _known(self, name: str) -> str | None:
        if self._digests is None:
            self._digests = trusted_in(self._home, self._workspace)
        return self._digests.get(name)

    def trusts(self, content: Content) -> bool:
        if self._trust_all:
            return True
        known = self._known(content.name)
        if known == content.digest:
            return True
        changed = ", changed since it was trusted" if known else ""
        self._left_out.append(f"{content.name} ({_counted(content.brings)}{changed})")
        return False

    def problem(self) -> str | None:
        if not self._left_out:
            return None
        what = named(self._left_out, longest=300)
        return f"not trusted and left out: {what}; `batten trust` shows it and turns it on"


class _Survey:
    """Trusts everything, in order to list it."""

    only_lists = True

    def __init__(self, copies: str) -> None:
        self._copies = copies
        self.contents: list[Content] = []

    def copy(self, name: str, tree: Tree) -> str | None:
        return private_copy(tree, self._copies)

    def trusts(self, content: Content) -> bool:
        self.contents.append(content)
        return True


def survey(workspace: str, environ: Mapping[str, str]) -> tuple[list[Content], list[str]]:
    """Everything in a workspace that needs trust, and its problems."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="batten-trust-") as copies:
        judge, problems = _Survey(copies), list[str]()
        supplied = Supplied(workspace, judge, problems)
        layers = [supplied.layer("project"), supplied.layer("local")]
        supplied.servers()
        supplied.skills()
        for path in dict.fromkeys(p.path for layer in layers if layer for p in layer.plugins):
            supplied.plugin(path, environ)
    return judge.contents, list(bounded(problems))


def _holds(folder: str, path: str) -> bool:
    return os.path.join(path, "").startswith(os.path.join(folder, ""))


def _counted(brings: tuple[Brought, ...]) -> str:
    kinds = [one.kind for one in brings]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts.items())
