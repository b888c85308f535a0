"""Claude Code's modes and rules in our words."""

from typing import Any

import pytest

from batten.agent.rules.rule import Rule, check_tools, matches, parse_rule
from batten.agent.rules.verdict import MODES as OURS
from batten.contract.errors import CallerError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.protocols.claude.names import claude_name, our_name
from batten.protocols.claude.permissions import (
    MODES,
    RuleText,
    Update,
    asks,
    listed,
    our_mode,
    pattern,
    read_update,
)
from batten.tools.aliases import canonical
from tests.agent.acting import Acting


class Shell(Acting):
    """A tool with the name and the subject of the shell."""

    kind: ToolKind = "shell"
    spec = ToolSpec("bash", "", {"type": "object", "properties": {"command": {}}})

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments["command"])


def test_every_mode_of_theirs_is_one_of_ours_and_only_one_asks_nobody() -> None:
    assert {our_mode(mode) for mode in MODES} <= set(OURS)
    assert [mode for mode in MODES if not asks(mode)] == ["dontAsk"]
    assert our_mode("dontAsk") == "default"  # where nobody is asked, what would be is denied
    with pytest.raises(CallerError, match="brave"):
        our_mode("brave")


def test_names_of_tools_agree_with_the_aliases_that_models_may_use() -> None:
    for ours in ("read_file", "write_file", "edit_file", "bash", "grep", "glob", "agent"):
        assert canonical(claude_name(ours)) == ours == our_name(claude_name(ours))
    assert claude_name("mcp__calc__add") == our_name("mcp__calc__add") == "mcp__calc__add"
    assert our_name("NotebookEdit") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bash,Read", ["Bash", "Read"]),
        ("Bash(git log:*), Read  Write", ["Bash(git log:*)", "Read", "Write"]),
        ("Bash(a, b c),Read", ["Bash(a, b c)", "Read"]),
        ("", []),
    ],
)
def test_a_list_of_tools_is_split_outside_of_parentheses(text: str, expected: list[str]) -> None:
    assert listed(text) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("Bash", "bash"),
        ("Bash(*)", "bash"),
        ("Bash(git:*)", "bash(git:*)"),
        ("Read(//etc/hosts)", "read_file(//etc/hosts)"),
        ("Edit(/src/**)", "edit_file(./src/**)"),
        ("Read(~/.zshrc)", "read_file(~/.zshrc)"),
        ("mcp__calc", "mcp__calc"),
        ("mcp__calc__add", "mcp__calc__add"),
        ("WebFetch(domain:a.org)", "web_fetch(domain:a.org)"),
        ("NotebookEdit", "NotebookEdit"),
    ],
)
def test_a_rule_of_theirs_in_our_spelling(entry: str, expected: str) -> None:
    assert pattern(entry) == expected
    parse_rule("allow", expected)


def test_a_rule_about_a_tool_that_there_is_not_is_refused() -> None:
    with pytest.raises(CallerError, match="names no tool"):
        check_tools([parse_rule("deny", pattern("Nobody(x)"))])


@pytest.mark.parametrize(
    ("command", "allowed"),
    [("git", True), ("git status", True), ("gitk", False), ("git status; rm -r .", False)],
)
def test_a_prefix_is_a_whole_word_and_one_command(command: str, allowed: bool) -> None:
    rule = Rule("allow", pattern("Bash(git:*)"))
    assert matches(rule, Shell(), {"command": command}) is allowed


def update(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "destination": "session", **more}


def test_updates_are_read_into_our_rules() -> None:
    rules = [{"toolName": "Bash", "ruleContent": "git:*"}, {"toolName": "Read"}]
    added = read_update(update("addRules", rules=rules, behavior="allow"))
    assert added == Update(
        "add", (RuleText("allow", "bash(git:*)"), RuleText("allow", "read_file")), "allow"
    )
    assert read_update(update("setMode", mode="plan")) == Update("mode", mode="plan")


@pytest.mark.parametrize(
    "given",
    [
        update("addDirectories", directories=["/"]),
        update("addRules", rules=[{"toolName": "Bash"}], behavior="perhaps"),
        update("addRules", rules=[{}], behavior="allow"),
        update("addRules", rules=7, behavior="allow"),
        update("addRules", rules=True, behavior="deny"),
        update("removeRules", rules={"toolName": "Bash"}, behavior="allow"),
        update("setMode", mode="brave"),
        {},
    ],
)
def test_an_update_that_cannot_be_carried_out_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(CallerError):
        read_update(given)
