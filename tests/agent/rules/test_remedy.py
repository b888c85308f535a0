"""Which flags a refused call is told to need: exactly those that would have allowed it."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.agent.rules.remedy import allowing_flags
from batten.agent.rules.rule import Rule, parse_rule
from batten.agent.rules.verdict import Decision, Mode, decide
from tests.agent.rules.tools import Named, shell, writer

WORKSPACE = "/srv/place"
POLICY = Decision("deny", "nobody", "resolver:policy")


def flags_for(
    tool: Named,
    *rules: Rule,
    mode: Mode = "default",
    decision: Decision = POLICY,
    **arguments: object,
) -> str:
    return allowing_flags(
        tool, dict(arguments), decision, rules=rules, mode=mode, workspace=WORKSPACE
    )


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("git push", "--allow 'bash(git push *)'"),
        ("git push origin main", "--allow 'bash(git push *)'"),
        ("git -C x push", "--allow 'bash(git *)'"),
        ("touch made", "--allow 'bash(touch *)'"),
        ("npm test", "--allow 'bash(npm test *)'"),
        ("python tools/fix.py --all", "--allow 'bash(python tools/fix.py *)'"),
        ("python -c 'print(1)'", "--allow 'bash(python *)'"),
        ("npm ci && npm test", "--allow 'bash(npm ci *)' --allow 'bash(npm test *)'"),
        ("ls | make", "--allow 'bash(make *)'"),
        ("echo hi > out.txt", "--allow 'bash(echo hi > out.txt)'"),
        ("echo 'unclosed", "--allow bash"),
        ("$PROGRAM x", "--allow 'bash($PROGRAM x)'"),
    ],
)
def test_a_command_is_allowed_by_its_program_and_subcommand(command: str, flags: str) -> None:
    assert flags_for(shell(command), command=command) == flags


COMMANDS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            ["git", "push", "&&", "|", ";", "rm", "-rf", ">", "x", "$(id)", "'a b'", "*", "`w`",
             "sudo", "bash", "-c", "<<E", "\n", "E", "~", "env", "A=1", "xargs"]
        ),
        max_size=8,
    ).map(" ".join),
)  # fmt: skip


@given(COMMANDS)
def test_the_flags_that_are_told_allow_the_call(command: str) -> None:
    tool = shell(command)
    told = flags_for(tool, command=command)
    words = shlex.split(told)
    assert words[::2] == ["--allow"] * (len(words) // 2)
    rules = [parse_rule("allow", pattern) for pattern in words[1::2]]
    judged = decide(tool, {"command": command}, rules=rules, mode="default", workspace=WORKSPACE)
    assert rules
    assert judged.verdict == "allow"


def test_a_file_is_allowed_by_its_path_and_an_address_by_its_host() -> None:
    assert flags_for(writer("src/a.py")) == "--allow 'write_file(src/a.py)'"
    assert flags_for(writer(".envrc")) == "--allow 'write_file(.envrc)'"
    assert flags_for(writer("a b.txt")) == "--allow write_file"
    fetcher = Named("web_fetch", "network", "https://example.com/a", "url", kind="web_fetch")
    assert flags_for(fetcher) == "--allow 'web_fetch(domain:example.com)'"
    server = Named("mcp__tracker__close", "write", "", kind="mcp")
    assert flags_for(server) == "--allow mcp__tracker__close"


def test_a_call_that_something_denies_has_no_flag() -> None:
    push = shell("git push")
    denied = Rule("deny", "bash(git push*)")
    assert flags_for(push, denied) == ""
    for author in ("hook:guard", "bounds:outside_workspace", "resolver:operator"):
        assert flags_for(push, decision=Decision("deny", "no", author)) == ""


def test_a_rule_that_asks_needs_somebody_to_ask() -> None:
    assert flags_for(shell("git push"), Rule("ask", "bash(git push*)")) == "--ask-operator"


def test_the_plan_mode_is_named_with_all_that_another_mode_needs() -> None:
    push = shell("git push")
    assert flags_for(push, mode="plan") == "--permission-mode default --allow 'bash(git push *)'"
    allowed = Rule("allow", "bash")
    assert flags_for(push, allowed, mode="plan") == "--permission-mode default"
    assert flags_for(push, Rule("deny", "bash"), mode="plan") == ""
