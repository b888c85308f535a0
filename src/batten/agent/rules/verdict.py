"""The one verdict on a tool call: rules of every scope, then the mode.

Deny beats ask beats allow, in any order and from any scope. A mode changes what is left at `ask`.
In `auto`, without anything that judges a call by its sense, calls that change nothing and edits in
the workspace are allowed; the rest is asked. Files that make other programs run something need a
rule that names them, in every mode that asks.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from batten.agent.rules.rule import GRANT, Rule, is_about, matches, may_match, pattern_of
from batten.contract.facts.policy import Verdict
from batten.tools.contract import JudgedTool, judged

Mode = Literal["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions", "disabled"]
MODES: tuple[Mode, ...] = (
    "default",
    "acceptEdits",
    "plan",
    "auto",
    "dontAsk",
    "bypassPermissions",
)
"""Those to choose from. `disabled` is what is in force without any permissions at all."""
GRANTED = (GRANT, "session", "client")
"""Sources of rules that a client gave while it worked."""
AUTO_ALLOW = "auto-allow"
"""The source of the rule that allows what would be asked, guarded files included."""

_EDITS = frozenset({"file_write", "edit", "multi_edit"})
_UNCHANGING = frozenset({"read", "none"})
_READING_METHODS = ("GET", "HEAD")


class Decision(Struct, frozen=True):
    verdict: Verdict
    reason: str
    decided_by: str
    rule: str = ""
    """The rule that asks, with its source; the refusal of a call nobody approved names it."""
    panel: str = ""
    """The panel to ask, in place of the resolvers."""


# `agent` is allowed: a child run is held to the same rules, mode and budget as its parent.
_DEFAULTS = (
    *(Rule("allow", name, "default") for name in ("read_file", "glob", "grep", "todo_write")),
    *(Rule("allow", name, "default") for name in ("ask_user", "agent", "skill")),
    Rule("ask", "*", "default"),
)


class _Found(Struct, frozen=True):
    """What the rules say of a call, before the mode."""

    verdict: Verdict
    rule: Rule | None
    """None if a command only reads."""
    reason: str = ""
    """In place of the usual one."""
    is_certain: bool = True
    """False if a rule that denies may be about the call, and it cannot be seen whether it is."""


def decide(
    tool: JudgedTool,
    arguments: dict[str, Any],
    *,
    rules: Sequence[Rule],
    mode: Mode,
    workspace: str = "",
) -> Decision:
    """The verdict on one call. Explicit allow and deny rules hold in every mode but bypass."""
    called = tool.spec.name
    tool = judged(tool)
    name = tool.spec.name
    if mode == "bypassPermissions":
        return Decision("allow", "all permissions are bypassed", "mode:bypassPermissions")
    if mode == "disabled":
        return Decision("allow", "permissions are disabled", "mode:disabled")
    about = [rule for rule in rules if is_about(rule, name) or tool.kind == "shell"]
    found = _found(tool, arguments, about, workspace)
    rule = found.rule
    author = f"rule:{rule.source}:{rule.pattern}" if rule is not None else "rule:default:reads"
    explicit = rule is not None and rule.source != "default"
    shown = rule.pattern if rule is not None else "what only reads"
    why = found.reason or (rule is not None and rule.reason) or ""
    if mode == "plan" and _changes(tool, arguments) and found.verdict != "deny":
        return Decision("deny", f"{called} changes things; the mode is plan", "mode:plan")
    if found.verdict == "allow":
        if guard := _guard(tool, arguments, about, rule, mode):
            return guard
        return Decision("allow", found.reason or f"allowed by {shown}", author)
    if found.verdict == "deny" or (mode == "dontAsk" and not found.is_certain):
        return Decision("deny", why or f"denied by {shown}", author)
    if mode == "dontAsk":
        return Decision("allow", "nothing is asked in this mode", "mode:dontAsk")
    if mode in ("acceptEdits", "auto") and tool.kind in _EDITS and not explicit:
        accepted = Decision("allow", "edits are accepted in this mode", f"mode:{mode}")
        return _guard(tool, arguments, about, rule, mode) or accepted
    if mode == "auto" and tool.effect in _UNCHANGING and not explicit:
        return Decision("allow", f"{called} changes nothing", "mode:auto")
    asking = f"{rule} ({rule.source})" if rule is not None else ""
    panel = _panel(rule, about, tool, arguments, workspace)
    return Decision("ask", why or f"{called} needs approval", author, asking, panel)


def _panel(
    by: Rule | None,
    rules: Sequence[Rule],
    tool: JudgedTool,
    arguments: dict[str, Any],
    workspace: str,
) -> str:
    """The panel that answers for a person: only if every rule that asks names this one."""
    if by is None or not by.panel:
        return ""
    asking = [rule for rule in rules if rule.action == "ask"]
    others = [rule for rule in asking if rule.panel != by.panel]
    if any(may_match(rule, tool, arguments, workspace) for rule in others):
        return ""
    return by.panel


def _found(
    tool: JudgedTool, arguments: dict[str, Any], rules: Sequence[Rule], workspace: str
) -> _Found:
    if tool.kind == "shell":
        if any(_reads_commands(rule, tool) for rule in rules):
            from batten.agent.rules.shell_verdict import shell_verdict

            found = shell_verdict(tool, arguments, rules, workspace)
            if found is not None:
                return _Found(found.verdict, found.rule, found.reason, found.is_certain)
        rules = [rule for rule in rules if is_about(rule, tool.spec.name)]
    for action in ("deny", "ask", "allow"):
        for rule in rules:
            if rule.action == action and matches(rule, tool, arguments, workspace):
                return _Found(action, rule)
    usual = next(rule for rule in _DEFAULTS if matches(rule, tool, arguments, workspace))
    return _Found(usual.action, usual)


def _reads_commands(rule: Rule, tool: JudgedTool) -> bool:
    """Whether a command line must be read to know what a rule says of it."""
    subject = pattern_of(rule).subject
    return subject == "path" or (subject != "none" and is_about(rule, tool.spec.name))


def _changes(tool: JudgedTool, arguments: dict[str, Any]) -> bool:
    """Whether the call may leave something outside the run other than it was."""
    if tool.kind == "http":
        return arguments.get("method", "GET") not in _READING_METHODS
    return tool.effect in ("write", "execute")


def _guard(
    tool: JudgedTool, arguments: dict[str, Any], rules: Sequence[Rule], by: Rule | None, mode: Mode
) -> Decision | None:
    """A question, if the call writes a file that needs a rule of its own and has none."""
    if mode == "dontAsk" or (by is not None and by.source == AUTO_ALLOW):
        return None
    names = _guarded(tool, arguments)
    allowed = [rule.pattern for rule in rules if rule.action == "allow" and _may_name(rule)]
    missing = [name for name in names if not any(_is_named(name, each) for each in allowed)]
    if not missing:
        return None
    reason = f"{', '.join(missing)} can make programs run; only a rule that names it allows it"
    return Decision("ask", reason, "rule:default:guarded")


def _guarded(tool: JudgedTool, arguments: dict[str, Any]) -> list[str]:
    if tool.kind == "shell":
        from batten.agent.rules.paths import may_be_guarded

        line = tool.subject(arguments)
        if not may_be_guarded(line):
            return []
        from batten.agent.rules.commands import command_line, guarded_names

        return sorted(guarded_names(command_line(line)))
    if tool.kind not in _EDITS:
        return []
    from batten.agent.rules.paths import guarded_name

    paths = tool.subject(arguments).split("\n")
    return sorted({name for path in paths if (name := guarded_name(path))})


def _may_name(rule: Rule) -> bool:
    """Whether a rule has a pattern that can name a file to be written."""
    read = pattern_of(rule)
    return read.subject != "none" and read.tool not in ("read_file", "grep", "glob")


def _is_named(name: str, pattern: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", pattern) is not None


def may_read(rules: Sequence[Rule], path: str, workspace: str) -> bool:
    """Whether no rule denies that a file is read: for results of searches and attachments."""
    from batten.agent.rules.paths import matches_path

    return not any(
        matches_path(read.rest.strip(), path, workspace, widely=True)
        for rule in rules
        if rule.action == "deny"
        and (read := pattern_of(rule)).subject == "path"
        and read.tool == "read_file"
    )
