"""What rules say of a command line.

Commands that only read are allowed beside those that a pattern allows: without any such pattern
commands are asked about, or allowed, as a whole.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from batten.agent.rules import commands
from batten.agent.rules.file_rules import is_reader, matches_file, touches
from batten.agent.rules.rule import GRANT, Rule, is_about, matches, pattern_of
from batten.contract.facts.policy import Verdict
from batten.tools.contract import JudgedTool

_USUAL = Rule("ask", "*", "default")


class ShellVerdict(Struct, frozen=True):
    verdict: Verdict
    rule: Rule | None
    reason: str = ""
    is_certain: bool = True


def shell_verdict(
    tool: JudgedTool, arguments: dict[str, Any], rules: Sequence[Rule], workspace: str
) -> ShellVerdict | None:
    """What rules say of a command line; None if none has a pattern, and it need not be read."""
    own = [rule for rule in rules if is_about(rule, tool.spec.name)]
    with_pattern = [rule for rule in own if _pattern(rule, tool, arguments) is not None]
    paths = [rule for rule in rules if pattern_of(rule).subject == "path"]
    if not with_pattern and not paths:
        return None
    line = commands.command_line(tool.subject(arguments))
    unsure: Rule | None = None
    for action in ("deny", "ask"):
        for rule in own:
            if rule.action != action:
                continue
            pattern = _pattern(rule, tool, arguments)
            if pattern is None:
                if matches(rule, tool, arguments, workspace):
                    return ShellVerdict(action, rule)
                continue
            chance = commands.concerns(pattern, line)
            if chance == "yes":
                return ShellVerdict(action, rule)
            if chance == "maybe" and unsure is None:
                unsure = rule
        for rule in paths:
            chance = touches(rule, line, workspace) if rule.action == action else "no"
            if chance == "yes":
                return ShellVerdict(action, rule)
            if chance == "maybe" and unsure is None:
                unsure = rule
    if unsure is not None:
        reason = f"it cannot be seen whether this is {unsure.pattern}; write the command plainly"
        return ShellVerdict("ask", unsure, reason, unsure.action != "deny")
    return _allowed(tool, arguments, own, paths, line, workspace)


def _pattern(rule: Rule, tool: JudgedTool, arguments: dict[str, Any]) -> str | None:
    """The pattern of a rule about commands; None if it has none, or is about other arguments."""
    read = pattern_of(rule)
    if read.subject == "none" or not is_about(rule, tool.spec.name):
        return None
    rest = read.rest
    if rest.startswith("~"):
        return f"*{rest[1:]}*"
    properties = tool.spec.parameters.get("properties", {})
    key, equals, value = rest.partition("=")
    if equals and key in ("command", "cmd", "script") and "," not in value:
        return value
    return None if equals and key in properties else rest


def _allowed(
    tool: JudgedTool,
    arguments: dict[str, Any],
    own: Sequence[Rule],
    paths: Sequence[Rule],
    line: commands.CommandLine,
    workspace: str,
) -> ShellVerdict:
    patterns: dict[str, Rule] = {}
    for rule in own:
        if rule.action == "allow":
            pattern = _pattern(rule, tool, arguments)
            if pattern is not None:
                patterns.setdefault(pattern, rule)
            elif matches(rule, tool, arguments, workspace):
                return ShellVerdict("allow", rule)

    def may_read(path: str, below: bool) -> bool:
        denying = [rule for rule in paths if rule.action != "allow" and is_reader(rule)]
        return not denying or not (
            below or any(matches_file(rule, path, workspace) for rule in denying)
        )

    def may_write(path: str) -> bool:
        return any(
            rule.action == "allow" and not is_reader(rule) and matches_file(rule, path, workspace)
            for rule in paths
        )

    if not patterns:
        return ShellVerdict("ask", _USUAL)
    reads = any(rule.source != GRANT for rule in patterns.values())
    allowance = commands.Allowance(tuple(patterns), workspace, reads, may_read, may_write)
    used = commands.allowing(allowance, line)
    if used is None:
        return ShellVerdict("ask", _USUAL)
    return ShellVerdict("allow", patterns[used[0]] if used else None)
