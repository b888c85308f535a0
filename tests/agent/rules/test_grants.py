"""An "always" speaks of what was asked, and of nothing else."""

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from batten.agent.rules.grants import grant_of
from batten.agent.rules.rule import matches, parse_rule
from batten.redact.redactor import Redactor
from batten.tools.shell import Bash
from batten.tools.web import web_tools
from batten.workspace.keeper import Keeper

BASH = Bash(Keeper("/"), Redactor([]))
(FETCH,) = (tool for tool in web_tools({}) if tool.spec.name == "web_fetch")
JOINED = r"[;&|\n`<>]|\$\("
words = st.sampled_from(
    [
        *("git", "log", "*", "?", "[a-z]", "~", "~x", "=", "command=", "timeout=1", ","),
        *(";", "&&", "|", "$(rm x)", "(", ")", ":", "!", "\\", "'a b'", "\n", ">", "rm -r ."),
    ]
)
commands = st.lists(words, min_size=1, max_size=4).map(" ".join).filter(str.strip)


@given(commands)
def test_the_command_that_was_asked_about_is_allowed(command: str) -> None:
    rule = parse_rule("allow", grant_of("bash", {"command": command}), "grant")
    assert matches(rule, BASH, {"command": command})


@given(commands, commands)
def test_no_other_command_is_allowed(command: str, other: str) -> None:
    assume(command.strip() != other.strip())
    # A line of nothing but the allowed command, joined with itself or negated, is allowed too.
    parts = (re.sub(r"^(\s*!\s)*", "", part) for part in re.split(JOINED, other))
    assume({part.strip() for part in parts} - {command.strip(), ""})
    rule = parse_rule("allow", grant_of("bash", {"command": command}), "grant")
    assert not matches(rule, BASH, {"command": other})


def test_a_line_without_a_command_is_not_allowed() -> None:
    rule = parse_rule("allow", grant_of("bash", {"command": "git"}), "grant")
    assert not matches(rule, BASH, {"command": "; >"})


@given(commands)
def test_the_command_that_was_rejected_is_denied(command: str) -> None:
    rule = parse_rule("deny", grant_of("bash", {"command": command}), "grant")
    assert matches(rule, BASH, {"command": command})


def test_an_address_is_allowed_with_its_host_and_no_other() -> None:
    pattern = grant_of("web_fetch", {"url": "https://docs.example/a?b=c"})
    assert pattern == "web_fetch(https://docs.example/*)"
    rule = parse_rule("allow", pattern, "grant")
    assert matches(rule, FETCH, {"url": "https://docs.example/other"})
    for url in (
        "https://docs.example.evil/a",
        "http://docs.example/a",
        "https://evil/docs.example/",
    ):
        assert not matches(rule, FETCH, {"url": url})


def test_what_has_no_subject_is_allowed_by_its_name() -> None:
    assert grant_of("edit_file", {"file_path": "a"}) == "edit_file"
    assert grant_of("web_fetch", {"url": "https://user@host/"}) == "web_fetch"
    assert grant_of("web_fetch", {"url": "http://["}) == "web_fetch"
