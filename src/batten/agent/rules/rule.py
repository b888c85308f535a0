"""A permission rule: its text, what is wrong with it, and which calls it is about.

`Tool`, `Tool(pattern)`, `Tool:pattern`, `Bash:~text`, `Tool:key=glob[,key=glob]`. What a pattern
means depends on the tool: a command, a path, an address, a name. Spellings of Claude Code are
understood: `Bash(make:*)`, `Read(./.env)`, `WebFetch(domain:example.com)`, `mcp__server`.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.agent.rules import globs
from batten.agent.rules.shell import NAMES
from batten.contract.errors import CallerError
from batten.contract.facts.policy import Verdict
from batten.tools.aliases import arguments as canonical_arguments
from batten.tools.aliases import canonical
from batten.tools.contract import JudgedTool

GRANT = "grant"
"""The source of rules that an answer made: they allow what was asked, and nothing beside it."""
Subject = Literal["none", "command", "path", "address", "text"]
"""What the pattern of a rule is about; `none`: the rule has no pattern."""

_READERS = frozenset(("read_file", "grep", "glob", "edit_file", "multi_edit"))
"""Tools that show what is in files. Editors do so when a text to replace is not found."""
_EDITORS = frozenset(("write_file", "edit_file", "multi_edit"))
_SEARCHES = frozenset(("grep", "glob"))
_PATHS = _READERS | _EDITORS
_ADDRESSES = frozenset(("web_fetch", "http_request"))
_NAMES = frozenset(
    ("todo_write", "web_search", "ask_user", "save_memory", "agent", "skill", "bash")
)
_ELSEWHERE: dict[str, str] = {
    "NotebookEdit": "edit_file",
    "NotebookRead": "read_file",
    "LS": "glob",
    **dict.fromkeys(("TaskOutput", "TaskStop", "ExitPlanMode", "EnterPlanMode"), ""),
    **dict.fromkeys(("BashOutput", "KillShell", "KillBash", "SlashCommand", "LSP", "Cd"), ""),
    "ReadMemoryTopic": "",
    **dict.fromkeys(("ListMcpResourcesTool", "ReadMcpResourceTool", "ToolSearch"), ""),
    **dict.fromkeys(("TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "StructuredOutput"), ""),
    **dict.fromkeys(("PowerShell", "EnterWorktree", "ExitWorktree", "Monitor", "CronCreate"), ""),
}
"""Tools of other agents, with ours that does the same, if any. A rule about them holds:
there is nothing that it could be held against."""


class Rule(Struct, frozen=True):
    action: Verdict
    pattern: str
    source: str = "cli"
    panel: str | UnsetType = UNSET
    """The panel that answers in place of the resolvers, if the rule asks."""
    reason: str | UnsetType = UNSET
    """What a denied or asked call is told, in place of the pattern."""

    def __str__(self) -> str:
        return f"{self.action} {self.pattern}"


class RulePattern(Struct, frozen=True):
    """The text of a rule, read."""

    tool: str
    """Our name of a tool, or a glob of names."""
    subject: Subject
    rest: str = ""


def parse_rule(action: Verdict, text: str, source: str = "cli") -> Rule:
    """A rule from its text; `CallerError` says why it could never match."""
    text = text.strip()
    read_pattern(text)
    return Rule(action, text, source)


def check_tools(rules: Iterable[Rule], also: Iterable[str] = ()) -> None:
    """Raises `CallerError` for a rule that could never match, or is about a tool that there is not;
    `also` are names of tools beside our own. Tools of servers are not known before they connect."""
    known = {*_PATHS, *_ADDRESSES, *_NAMES, *also}
    for rule in rules:
        code = "usage" if rule.source == "cli" else "config"
        try:
            name = read_pattern(rule.pattern).tool
        except CallerError as error:
            raise CallerError(f"{error} ({rule.source})", code=code) from None
        if re.match("mcp__[^_]", name) or name in _ELSEWHERE:
            continue
        if not any(globs.matches(name, each) for each in known):
            raise CallerError(
                f"permission rule {rule.pattern!r} ({rule.source}) names no tool that there is; "
                f"write one of: {', '.join(sorted(known))}, or mcp__server__tool",
                code=code,
            )


@lru_cache(maxsize=1024)
def read_pattern(text: str) -> RulePattern:
    """The parts of a rule; `CallerError` if it could never match anything."""
    found = re.fullmatch(r"\s*([^:(]*)(?::(.*)|\((.*)\))?\s*", text, re.DOTALL)
    if found is None:
        name = re.split("[:(]", text, maxsplit=1)[0].strip()
        raise CallerError(
            f"permission rule {text!r} is not closed by a parenthesis; write {name}(pattern)"
        )
    name, after_colon, inside = found.groups()
    name = name.strip()
    rest = after_colon if after_colon is not None else inside
    if not name:
        raise CallerError(f"permission rule {text!r} names no tool; write Tool or Tool(pattern)")
    if rest is not None and rest.strip() in ("", "~", ":*"):
        raise CallerError(
            f"permission rule {text!r} matches nothing; write {name} for every call, "
            f"or {name}(pattern)"
        )
    tool = _ELSEWHERE.get(name) or canonical(name)
    if re.fullmatch(r"mcp__[^_]+(?:_[^_]+)*", tool):
        tool += "__*"
    if rest is None or set(rest.strip()) == {"*"}:
        return RulePattern(tool, "none")
    subject = _subject(tool)
    if not re.match(r"\w+(?:\.\w+)*=", rest):
        if tool == "todo_write" or tool.startswith("mcp__"):
            raise CallerError(
                f"permission rule {text!r} matches nothing; write {name} for every call, "
                f"or {name}:argument=pattern"
            )
        _check(text, subject, rest.strip())
    return RulePattern(tool, subject, rest)


def _check(text: str, subject: Subject, pattern: str) -> None:
    try:
        if subject == "path":
            from batten.agent.rules.paths import check_path_pattern

            check_path_pattern(pattern)
        elif subject == "address":
            from batten.agent.rules.hosts import check_url_pattern

            check_url_pattern(pattern)
    except CallerError as error:
        raise CallerError(f"permission rule {text!r} matches nothing: {error}") from None


def _subject(tool: str) -> Subject:
    if tool == "bash":
        return "command"
    if tool in _PATHS:
        return "path"
    if tool in _ADDRESSES:
        return "address"
    return "text"


def editable_by(rules: Iterable[Rule], workspace: str) -> tuple[str, ...]:
    """Globs of absolute paths that rules let tools edit by name, though other programs execute what
    is there: commands may write them too.
    """
    found: list[str] = []
    for rule in rules:
        read = pattern_of(rule)
        if rule.action == "allow" and read.subject == "path" and read.tool in _EDITORS:
            from batten.agent.rules.paths import editable_globs

            found += editable_globs(read.rest.strip(), workspace)
    return tuple(found)


def pattern_of(rule: Rule) -> RulePattern:
    """The pattern of a rule that was parsed before; one that cannot be read is about no tool."""
    try:
        return read_pattern(rule.pattern)
    except CallerError:
        return RulePattern("", "text")


def is_about(rule: Rule, tool: str) -> bool:
    """Whether a rule is about calls of this tool. A rule with a path is about every reader or
    editor of files, one with a domain that forbids about every way to fetch it."""
    read = pattern_of(rule)
    if globs.matches(read.tool, tool):
        return True
    if read.subject == "path":
        return (read.tool == "read_file" and tool in _READERS) or (
            read.tool in _EDITORS and tool in _EDITORS
        )
    forbids = rule.action != "allow"
    return forbids and read.subject == "address" and {read.tool, tool} <= _ADDRESSES


def may_match(rule: Rule, tool: JudgedTool, arguments: dict[str, Any], workspace: str = "") -> bool:
    """Whether a rule is about this call, or about a command that cannot be seen for certain."""
    read = pattern_of(rule)
    if tool.kind == "shell" and read.subject == "command" and not _named(read.rest, tool):
        from batten.agent.rules.commands import command_line, concerns

        return concerns(_contained(read.rest), command_line(tool.subject(arguments))) != "no"
    return matches(rule, tool, arguments, workspace)


def _contained(pattern: str) -> str:
    """`~text` is a text anywhere in a command."""
    return f"*{pattern[1:]}*" if pattern.startswith("~") else pattern


def matches(rule: Rule, tool: JudgedTool, arguments: dict[str, Any], workspace: str = "") -> bool:
    """Whether a rule is about this call for certain.

    Of several files or commands all must be allowed, and one is enough to be denied.
    """
    if not is_about(rule, tool.spec.name):
        return False
    read = pattern_of(rule)
    if read.subject == "none":
        return True
    named = _named(read.rest, tool)
    if named:
        return all(
            _matches_value(rule, tool, arguments, key, glob, workspace) for key, glob in named
        )
    if tool.kind == "shell":
        return matches_command(rule, read.rest, tool.subject(arguments), workspace)
    subject = tool.subject(arguments)
    return _matches_subject(rule, tool, read, subject, workspace)


def matches_command(rule: Rule, pattern: str, line: str, workspace: str) -> bool:
    """Whether a rule with this pattern is about a command line for certain."""
    from batten.agent.rules.commands import Allowance, allowing, command_line, concerns

    pattern = _contained(pattern)
    if rule.action != "allow":
        return concerns(pattern, command_line(line)) == "yes"
    allowance = Allowance((pattern,), workspace, rule.source != GRANT, _always, _never)
    return bool(allowing(allowance, command_line(line)))


def _always(path: str, below: bool) -> bool:
    return True


def _never(path: str) -> bool:
    return False


def _matches_subject(
    rule: Rule, tool: JudgedTool, read: RulePattern, subject: str, workspace: str
) -> bool:
    forbids = rule.action != "allow"
    pattern = read.rest.strip()
    if read.subject == "address" and tool.spec.name in _ADDRESSES:
        from batten.agent.rules.hosts import matches_url

        return matches_url(pattern, subject, widely=forbids)
    if read.subject == "path" and tool.spec.name in _PATHS:
        return _matches_paths(pattern, tool, subject, workspace, forbids=forbids)
    if read.rest.startswith("~"):
        return globs.matches(_contained(read.rest), subject)
    return globs.matches(_worded(read.rest), subject) or globs.matches(read.rest, subject)


def _matches_paths(
    pattern: str, tool: JudgedTool, subject: str, workspace: str, *, forbids: bool
) -> bool:
    from batten.agent.rules.paths import matches_path

    paths = subject.split("\n") if tool.kind == "multi_edit" else [subject]
    if tool.spec.name in _SEARCHES:
        # A folder is searched: what is in it counts.
        paths = [path for each in paths for path in (each, f"{each}/{NAMES}")]
    enough = any if forbids or tool.spec.name in _SEARCHES else all
    return enough(matches_path(pattern, path, workspace, widely=forbids) for path in paths)


def _worded(pattern: str) -> str:
    """`name:*` of a skill or an agent is the name and whatever follows."""
    return pattern[:-2] + "*" if pattern.endswith(":*") else pattern


def _named(rest: str, tool: JudgedTool) -> list[tuple[str, str]]:
    """`key=glob` pairs, if every key is an argument of the tool; keys may have other names."""
    known = tool.spec.parameters.get("properties", {})
    named: list[tuple[str, str]] = []
    for part in rest.split(","):
        key, equals, glob = part.partition("=")
        head, dot, inner = key.partition(".")
        (ours,) = canonical_arguments(tool.spec.name, {head: ""})
        if not equals or ours not in known:
            return []
        named.append((f"{ours}{dot}{inner}", glob))
    return named


def _matches_value(
    rule: Rule, tool: JudgedTool, arguments: dict[str, Any], dotted: str, glob: str, workspace: str
) -> bool:
    """An argument as a rule sees it. A file is what it resolves to, however it was spelled."""
    if dotted == "command" and tool.kind == "shell":
        return matches_command(rule, glob, tool.subject(arguments), workspace)
    name = tool.spec.name
    if dotted in ("file_path", "url") and name in _PATHS | _ADDRESSES:
        read = RulePattern(name, "path" if name in _PATHS else "address", glob)
        return _matches_subject(rule, tool, read, tool.subject(arguments), workspace)
    value = _lookup(arguments, dotted)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return globs.matches(glob, text)


def _lookup(arguments: Any, dotted: str) -> Any:
    found = arguments
    for key in dotted.split("."):
        found = cast("dict[str, Any]", found).get(key, "") if isinstance(found, dict) else ""
    return found
