"""Permissions: rules with patterns, modes, and the one verdict on a tool call.

A rule is `Tool`, `Tool(glob)` or `Tool:glob` on the call's subject (a command, a path, a
URL), `Bash:~glob` anywhere in a command, or `Tool:key=glob[,key=glob]` on named arguments.
The first rule that matches decides; a mode then changes verdicts left at `ask`. No classifier
judges calls in `auto`: it allows calls that change nothing and edits in the workspace, and asks
about the rest.
"""

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError
from batten.contract.facts.policy import Verdict
from batten.tools.aliases import arguments as canonical_arguments
from batten.tools.aliases import canonical
from batten.tools.contract import Tool

Mode = Literal["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions", "disabled"]
MODES: tuple[Mode, ...] = (
    "default",
    "acceptEdits",
    "plan",
    "auto",
    "dontAsk",
    "bypassPermissions",
)
"""The modes to choose from. `disabled` applies where permissions are switched off altogether."""
GRANTED = ("grant", "session", "client")
"""Sources of rules that a client granted during a session. Any deny rule overrides their allow."""

_JOINED = re.compile(r"[;&|\n`<>]|\$\(")
"""Separators of commands in one line, and redirections."""
_BEFORE = re.compile(r"^(?:\s+|[({!]\s*|(?:then|do|else|elif|if|while|time)\s+|\w+=\S*\s+)+")
_FILES = frozenset({"file_read", "file_write", "edit"})
_EDITS = frozenset({"file_write", "edit", "multi_edit"})
_UNCHANGING = frozenset({"read", "none"})
_READING_METHODS = ("GET", "HEAD")


class Rule(Struct, frozen=True):
    action: Verdict
    pattern: str
    source: str = "cli"

    def __str__(self) -> str:
        return f"{self.action} {self.pattern}"


class Decision(Struct, frozen=True):
    verdict: Verdict
    reason: str
    decided_by: str


# `agent` is allowed: a child run obeys the same rules, mode and budget as its parent.
_DEFAULTS = (
    *(Rule("allow", name, "default") for name in ("read_file", "glob", "grep", "todo_write")),
    *(Rule("allow", name, "default") for name in ("ask_user", "agent", "skill")),
    Rule("ask", "*", "default"),
)


def parse_rule(action: Verdict, text: str, source: str = "cli") -> Rule:
    """Parse a rule. Raises `CallerError` with the mistake."""
    text = text.strip()
    name = re.split("[:(]", text, maxsplit=1)[0].strip()
    if not name:
        raise CallerError(f"permission rule {text!r} names no tool; write Tool or Tool(pattern)")
    if text[len(name) :].strip() in (":", "()", ":~"):
        raise CallerError(
            f"permission rule {text!r} matches nothing; write {name} for every call, "
            f"or {name}(pattern)"
        )
    if not _split(text)[0]:
        raise CallerError(
            f"permission rule {text!r} is not closed by a parenthesis; write {name}(pattern)"
        )
    return Rule(action, text, source)


def decide(
    tool: Tool,
    arguments: dict[str, Any],
    *,
    rules: Sequence[Rule],
    mode: Mode,
    workspace: str = "",
) -> Decision:
    """The verdict on one call. Explicit allow and deny rules hold in every mode but bypass."""
    name = tool.spec.name
    if mode == "bypassPermissions":
        return Decision("allow", "all permissions are bypassed", "mode:bypassPermissions")
    if mode == "disabled":
        return Decision("allow", "permissions are disabled", "mode:disabled")
    rule = _deciding(tool, arguments, rules, workspace)
    author = f"rule:{rule.source}:{rule.pattern}"
    explicit = rule.source != "default"
    if mode == "plan" and _changes(tool, arguments) and rule.action != "deny":
        return Decision("deny", f"{name} changes things; the mode is plan", "mode:plan")
    if rule.action == "allow":
        return Decision("allow", f"allowed by {rule.pattern}", author)
    if rule.action == "deny":
        return Decision("deny", f"denied by {rule.pattern}", author)
    if mode == "dontAsk":
        return Decision("allow", "nothing is asked in this mode", "mode:dontAsk")
    if mode in ("acceptEdits", "auto") and tool.kind in _EDITS and not explicit:
        return Decision("allow", "edits are accepted in this mode", f"mode:{mode}")
    if mode == "auto" and tool.effect in _UNCHANGING and not explicit:
        return Decision("allow", f"{name} changes nothing", "mode:auto")
    return Decision("ask", f"{name} needs approval", author)


def _deciding(tool: Tool, arguments: dict[str, Any], rules: Sequence[Rule], workspace: str) -> Rule:
    """The first rule that matches; any matching deny rule overrides a granted allow."""
    first = next(rule for rule in (*rules, *_DEFAULTS) if matches(rule, tool, arguments, workspace))
    if first.action != "allow" or first.source not in GRANTED:
        return first
    denying = (rule for rule in rules if rule.action == "deny")
    return next((rule for rule in denying if matches(rule, tool, arguments, workspace)), first)


def _changes(tool: Tool, arguments: dict[str, Any]) -> bool:
    """Whether the call may change something outside the run."""
    if tool.kind == "http":
        return arguments.get("method", "GET") not in _READING_METHODS
    return tool.effect in ("write", "execute")


def matches(rule: Rule, tool: Tool, arguments: dict[str, Any], workspace: str = "") -> bool:
    """Whether the rule applies to this call."""
    name, form, rest = _split(rule.pattern)
    if name != "*" and not _glob(canonical(name), tool.spec.name):
        return False
    if form == "bare":
        return True
    named = _named(rest, tool)
    if named:
        return all(
            _matches_any(rule, glob, _values(rule, tool, arguments, key, glob), workspace)
            for key, glob in named
        )
    glob = f"*{rest[1:]}*" if rest.startswith("~") else rest
    return _matches_any(rule, glob, _subjects(rule, tool, arguments, glob), workspace)


def _matches_any(rule: Rule, glob: str, subjects: list[str], workspace: str) -> bool:
    """Of several files or commands, allow needs all to match, deny only one."""
    enough = all if rule.action == "allow" else any
    return enough(_matches_subject(glob, subject, workspace) for subject in subjects)


def _subjects(rule: Rule, tool: Tool, arguments: dict[str, Any], glob: str) -> list[str]:
    """The strings a rule is matched with: each file of a batch, each command of a command line.

    `Bash(git *)` allows `git log`, not `git log; rm -r .`: an allowed line is one command,
    unless the rule's own pattern contains a separator.
    """
    subject = tool.subject(arguments)
    if tool.kind == "multi_edit":
        return subject.splitlines()
    if tool.kind == "shell" and _JOINED.search(subject) and not _JOINED.search(glob):
        commands = [part.strip() for part in _JOINED.split(subject) if part.strip()]
        # An allow rule must not match a line without commands by having nothing to check.
        return commands or [subject] if rule.action == "allow" else _bare([subject, *commands])
    if tool.kind == "shell" and rule.action != "allow":
        return _bare([subject])
    return [subject]


def _bare(commands: list[str]) -> list[str]:
    """Commands as they are, and without leading blanks, brackets, keywords and assignments."""
    return [*commands, *(_BEFORE.sub("", command) for command in commands)]


def _matches_subject(glob: str, subject: str, workspace: str) -> bool:
    prefix = workspace.rstrip("/") + "/"
    inside = bool(workspace) and subject.startswith(prefix)
    return _glob(glob, subject) or (inside and _glob(glob, subject[len(prefix) :]))


def _split(pattern: str) -> tuple[str, Literal["bare", "subject"], str]:
    """The tool, whether a subject follows, and the subject's pattern."""
    found = re.fullmatch(r"([^:(]+)(?::(.*)|\((.+)\))?", pattern.strip(), re.DOTALL)
    if found is None:
        return "", "bare", ""
    name, after_colon, inside = found.groups()
    rest = after_colon if after_colon is not None else inside
    return name.strip(), "bare" if rest is None else "subject", rest or ""


def _named(rest: str, tool: Tool) -> list[tuple[str, str]]:
    """`key=glob` pairs, if every key is an argument of the tool or an alias of one."""
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


def _lookup(arguments: Any, dotted: str) -> Any:
    found = arguments
    for key in dotted.split("."):
        found = cast("dict[str, Any]", found).get(key, "") if isinstance(found, dict) else ""
    return found


def _values(rule: Rule, tool: Tool, arguments: dict[str, Any], dotted: str, glob: str) -> list[str]:
    """An argument as a rule sees it. A file is its resolved path, however the model spelled it."""
    is_file = dotted == "file_path" and tool.kind in _FILES
    if is_file or (dotted == "command" and tool.kind == "shell"):
        return _subjects(rule, tool, arguments, glob)
    value = _lookup(arguments, dotted)
    return [value if isinstance(value, str) else msgspec.json.encode(value).decode()]


@lru_cache(maxsize=512)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob), re.DOTALL)


def _glob(glob: str, text: str) -> bool:
    return _compiled(glob).match(text) is not None
