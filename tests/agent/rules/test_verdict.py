"""Who may do what: what patterns match, which rule decides, and what a mode makes of an `ask`."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.agent.rules.rule import Rule, matches, parse_rule
from batten.agent.rules.verdict import GRANTED, MODES, Mode, decide
from batten.contract.errors import CallerError
from batten.contract.facts.policy import Verdict
from batten.tools.aliases import aliases
from tests.agent.rules.tools import Named, shell, writer

WORKSPACE = "/srv/place"


READER = Named("read_file", "read", "notes.txt", "file_path", kind="file_read")
MEMORY = Named("save_memory", "write", "project", "content", kind="memory")
REQUESTER = Named("http_request", "network", "https://example.com", "method", "url", kind="http")
FETCHER = Named("web_fetch", "network", "https://example.com/a", "url")
TALKER = Named("ask_user", "none", "why?", "question")


def matching(pattern: str, tool: Named, **arguments: Any) -> bool:
    return matches(parse_rule("deny", pattern), tool, arguments, WORKSPACE)


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("Bash", "anything at all"),
        ("bash", "anything at all"),
        ("shell_exec", "anything at all"),
        ("*", "anything at all"),
        ("ba*", "anything at all"),
        ("Bash(git status)", "git status"),
        ("Bash(git *)", "git push --force"),
        ("Bash:git *", "git push --force"),
        ("Bash:*", ""),
        ("Bash:~rm -rf", "cd / && rm -rf ."),
        ("Bash:~rm -[rf]*", "sudo rm -rf /"),
        ("Bash(a (b) c)", "a (b) c"),
        ("Bash(git *)", "sudo git push"),
        ("Bash(make *)", "make"),
        ("Bash(make:*)", "make"),
        ("Bash(make:*)", "make test"),
        ("Bash:a (b", "a (b"),
        ("*(git *)", "git log"),
        ("Bash(FOO=1 make)", "FOO=1 make"),
        ("Bash(echo a,b)", "echo a,b"),
        ("Bash(line one\nline two)", "line one\nline two"),
        ("  Bash(git *)  ", "git log"),
    ],
)
def test_a_pattern_matches_the_command_it_is_written_for(pattern: str, command: str) -> None:
    assert matching(pattern, shell(command), command=command)


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("Read", "cat notes.txt"),
        ("Bash(git)", "git status"),
        ("Bash:~rm", "ls"),
        ("Bash(GIT *)", "git push"),
        ("Bash(make:*)", "makefile"),
        ("Bash(git *)", "echo git push"),
        ("Bash:command=git *", "ls"),
        ("Bash:command=git *,timeout=9", "git push"),
    ],
)
def test_a_pattern_does_not_match_another_command(pattern: str, command: str) -> None:
    assert not matching(pattern, shell(command), command=command)


@pytest.mark.parametrize("pattern", ["Bash(git *)", "Bash:command=git *"])
@pytest.mark.parametrize(
    "line",
    [
        "git log; rm -r .",
        "git log && rm -r .",
        "; >",
        "git log\nrm -r .",
        "git log | sh",
        "git log $(rm -r .)",
        "git log `rm -r .`",
        "git log > notes.txt",
    ],
)
def test_an_allowed_command_does_not_allow_what_is_joined_to_it(pattern: str, line: str) -> None:
    assert not matches(parse_rule("allow", pattern), shell(line), {"command": line})


def test_a_line_of_commands_is_allowed_when_each_is_or_when_the_rule_joins_them() -> None:
    line = "git log | git shortlog"
    assert matches(parse_rule("allow", "Bash(git *)"), shell(line), {"command": line})
    assert matches(parse_rule("allow", "Bash(ls | wc *)"), shell("ls | wc -l"), {})


@pytest.mark.parametrize(
    "line", ["  rm x", "\trm x", "(rm x)", "{ rm x; }", "if true; then rm x; fi", "A=1 rm x"]
)
def test_what_stands_before_a_denied_command_does_not_hide_it(line: str) -> None:
    assert matches(parse_rule("deny", "Bash(rm *)"), shell(line), {"command": line})


def test_one_denied_command_in_a_line_is_enough() -> None:
    line = "cd build && rm -rf ."
    assert matches(parse_rule("deny", "Bash(rm *)"), shell(line), {"command": line})


@pytest.mark.parametrize("alias", sorted(aliases()))
def test_a_rule_in_another_worlds_words_is_about_our_tool(alias: str) -> None:
    is_web = aliases()[alias] in ("web_fetch", "http_request")
    here, there = ("https://x/", "https://y/") if is_web else ("x", "y")
    tool = Named(aliases()[alias], "read", here)
    assert matching(alias, tool)
    if aliases()[alias] == "todo_write":
        return  # of which no call has anything that a pattern could be about
    assert matching(f"{alias}({here})", tool)
    assert not matching(f"{alias}({there})", tool)


@pytest.mark.parametrize(
    ("pattern", "arguments", "matched"),
    [
        ("Thing:place.city=Ber*", {"place": {"city": "Berlin"}}, True),
        ("Thing:place.city=Ber*", {"place": {"city": "Bonn"}}, False),
        ("Thing:place.city=Ber*", {"place": "Berlin"}, False),
        ("Thing:place.city=Ber*", {}, False),
        ("Thing:name=a,count=2", {"name": "a", "count": 2}, True),
        ("Thing:name=a,count=2", {"name": "a", "count": 3}, False),
        ("Thing:sure=true", {"sure": True}, True),
    ],
)
def test_named_arguments_must_all_match(
    pattern: str, arguments: dict[str, Any], matched: bool
) -> None:
    tool = Named("Thing", "read", "", "place", "name", "count", "sure")
    rule = parse_rule("deny", pattern)
    assert matches(rule, tool, arguments, WORKSPACE) is matched


def test_an_argument_may_go_by_its_other_name() -> None:
    assert matching("Write:path=src/*", writer("src/a.py"), file_path="src/a.py")


@pytest.mark.parametrize("pattern", ["Write(src/*)", "Write:file_path=src/*"])
def test_a_path_is_matched_from_the_workspace_or_from_the_root(pattern: str) -> None:
    assert matching(pattern, writer("src/a.py"), file_path="src/a.py")
    assert matching(pattern, writer(f"{WORKSPACE}/src/a.py"), file_path="src/a.py")
    assert not matching(pattern, writer("/elsewhere/src/a.py"), file_path="/elsewhere/src/a.py")


def test_a_path_is_what_it_resolves_to_and_not_how_it_was_spelled() -> None:
    spelled = {"file_path": "src/../secret"}
    assert matching("Write:file_path=secret", writer("secret"), **spelled)
    assert not matching("Write:file_path=src/*", writer("secret"), **spelled)


@pytest.mark.parametrize(("action", "matched"), [("allow", False), ("deny", True), ("ask", True)])
def test_of_several_files_all_must_be_allowed_and_one_is_enough_to_be_denied(
    action: Verdict, matched: bool
) -> None:
    tool = Named("multi_edit", "write", "src/a\nsecret", "edits", kind="multi_edit")
    for pattern in ("MultiEdit(secret)", "MultiEdit(src/*)"):
        assert matches(Rule(action, pattern), tool, {}, WORKSPACE) is matched
    assert matches(Rule(action, "MultiEdit(s*)"), tool, {}, WORKSPACE)


@pytest.mark.parametrize("pattern", ["", "  ", "(git *)", ":git", "Bash()", "Bash:", "Bash(git *"])
def test_a_rule_that_could_never_match_is_refused_in_words(pattern: str) -> None:
    with pytest.raises(CallerError, match=r"permission rule .* write"):
        parse_rule("allow", pattern)


@pytest.mark.parametrize("sources", [("cli", "user"), ("managed", "grant"), ("client", "project")])
def test_deny_beats_ask_and_ask_beats_allow_in_any_order(sources: tuple[str, str]) -> None:
    one, other = sources
    wide = Rule("allow", "Bash(git *)", one)
    for action in ("deny", "ask"):
        narrow = Rule(action, "Bash(git push*)", other)
        for rules in ([narrow, wide], [wide, narrow]):
            assert decide(shell("git push"), {}, rules=rules, mode="default").verdict == action
            assert decide(shell("git log"), {}, rules=rules, mode="default").verdict == "allow"
    both = [Rule("ask", "Bash(git *)", one), Rule("deny", "Bash(git push*)", other)]
    assert decide(shell("git push"), {}, rules=both, mode="default").verdict == "deny"


ALLOWED: dict[Mode, str] = {
    "default": "read none",
    "acceptEdits": "read write none",
    "plan": "read none",
    "auto": "read write none",
    "dontAsk": "read write execute network none",
    "bypassPermissions": "read write execute network none",
}
DENIED: dict[Mode, str] = {"plan": "write execute"}
TOOLS: dict[str, Named] = {
    "read": READER,
    "write": writer("a"),
    "execute": shell("ls"),
    "network": FETCHER,
    "none": TALKER,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("effect", TOOLS)
def test_a_mode_decides_what_no_rule_speaks_of(mode: Mode, effect: str) -> None:
    expected = "ask"
    if effect in ALLOWED[mode].split():
        expected = "allow"
    if effect in DENIED.get(mode, "").split():
        expected = "deny"
    assert decide(TOOLS[effect], {}, rules=[], mode=mode).verdict == expected


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "bypassPermissions"])
@pytest.mark.parametrize("effect", TOOLS)
def test_a_deny_rule_holds_in_every_mode_but_bypass(mode: Mode, effect: str) -> None:
    assert decide(TOOLS[effect], {}, rules=[Rule("deny", "*")], mode=mode).verdict == "deny"


@pytest.mark.parametrize("effect", ["write", "execute"])
def test_an_allow_rule_does_not_let_changes_into_plan_mode(effect: str) -> None:
    decision = decide(TOOLS[effect], {}, rules=[Rule("allow", "*")], mode="plan")
    assert (decision.verdict, decision.decided_by) == ("deny", "mode:plan")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("rules", [[], [Rule("allow", "http_request")]])
def test_a_request_that_may_change_something_is_denied_in_plan_mode(
    method: str, rules: list[Rule]
) -> None:
    decision = decide(REQUESTER, {"method": method}, rules=rules, mode="plan")
    assert (decision.verdict, decision.decided_by) == ("deny", "mode:plan")


@pytest.mark.parametrize("arguments", [{}, {"method": "GET"}, {"method": "HEAD"}])
def test_a_request_that_only_reads_is_allowed_by_rule_in_plan_mode(
    arguments: dict[str, str],
) -> None:
    rules = [Rule("allow", "http_request")]
    assert decide(REQUESTER, arguments, rules=rules, mode="plan").verdict == "allow"
    assert decide(REQUESTER, arguments, rules=[], mode="plan").verdict == "ask"


def test_accepting_edits_is_not_accepting_what_is_remembered() -> None:
    assert decide(MEMORY, {}, rules=[], mode="acceptEdits").verdict == "ask"


def test_an_ask_rule_of_ones_own_is_asked_although_edits_are_accepted() -> None:
    rules = [Rule("ask", "Write(secrets/*)")]
    asked = decide(writer("secrets/a"), {}, rules=rules, mode="acceptEdits")
    assert asked.verdict == "ask"
    assert decide(writer("src/a"), {}, rules=rules, mode="acceptEdits").verdict == "allow"


def test_bypass_allows_even_what_is_denied() -> None:
    decision = decide(shell("ls"), {}, rules=[Rule("deny", "*")], mode="bypassPermissions")
    assert decision.verdict == "allow"


def test_a_verdict_names_its_author() -> None:
    by_rule = decide(shell("ls"), {}, rules=[Rule("allow", "Bash(ls)", "user")], mode="default")
    assert by_rule.decided_by == "rule:user:Bash(ls)"
    assert decide(shell("ls"), {}, rules=[], mode="dontAsk").decided_by == "mode:dontAsk"
    assert decide(shell("ls"), {}, rules=[], mode="default").decided_by == "rule:default:*"
    pattern = [Rule("allow", "Bash(make *)")]
    assert decide(shell("ls"), {}, rules=pattern, mode="default").decided_by == "rule:default:reads"


@given(
    st.lists(st.builds(Rule, st.sampled_from(["allow", "ask", "deny"]), st.text(max_size=20))),
    st.sampled_from(MODES),
    st.text(max_size=40),
)
def test_any_rules_and_any_command_give_one_verdict(
    rules: list[Rule], mode: Mode, command: str
) -> None:
    decision = decide(shell(command), {"command": command}, rules=rules, mode=mode)
    assert decision.verdict in ("allow", "ask", "deny")
    assert decision.reason
    assert decision.decided_by


def test_without_permissions_everything_is_allowed_and_said_to_be_so() -> None:
    decision = decide(shell("ls"), {}, rules=[Rule("deny", "*")], mode="disabled")
    assert (decision.verdict, decision.decided_by) == ("allow", "mode:disabled")
    assert "disabled" not in MODES


def test_an_explicit_question_is_asked_in_auto_too() -> None:
    rules = [Rule("ask", "write_file"), Rule("ask", "read_file")]
    assert decide(writer("a"), {}, rules=rules, mode="auto").verdict == "ask"
    assert decide(READER, {}, rules=rules, mode="auto").verdict == "ask"


@pytest.mark.parametrize("source", GRANTED)
def test_what_a_client_allows_yields_to_what_anybody_denies(source: str) -> None:
    granted = Rule("allow", "Bash(git *)", source)
    push = {"command": "git push"}
    only = decide(shell("git push"), push, rules=[granted], mode="default")
    assert (only.verdict, only.decided_by) == ("allow", f"rule:{source}:Bash(git *)")
    denied = [granted, Rule("deny", "Bash(git push)", "user")]
    assert decide(shell("git push"), push, rules=denied, mode="default").verdict == "deny"
    asked = [granted, Rule("ask", "Bash", "user")]
    assert decide(shell("git push"), push, rules=asked, mode="default").verdict == "ask"


@pytest.mark.parametrize(
    ("pattern", "is_read"),
    [("bash", False), ("read_file", False), ("web_fetch(x.org)", False), ("bash(git *)", True)],
)
def test_a_command_line_is_read_only_where_a_rule_needs_it(pattern: str, is_read: bool) -> None:
    program = (
        "import sys; from batten.agent.rules.verdict import decide; "
        "from batten.agent.rules.rule import Rule; from tests.agent.rules.tools import shell; "
        f"rules = [Rule('allow', 'bash'), Rule('deny', {pattern!r})]; "
        "decide(shell('echo step 0'), {}, rules=rules, mode='default'); print(*sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    reader = {f"batten.agent.rules.{name}" for name in ("commands", "reading", "running")}
    assert (reader & set(ended.stdout.split()) != set()) is is_read


@pytest.mark.parametrize("line", ["echo x > .git/hooks/pre-commit", "GIT   CONFIG user.name x"])
def test_a_guarded_file_is_seen_under_a_rule_without_a_pattern(line: str) -> None:
    decision = decide(shell(line.lower()), {}, rules=[Rule("allow", "bash")], mode="default")
    assert (decision.verdict, decision.decided_by) == ("ask", "rule:default:guarded")


@pytest.mark.parametrize(
    "line",
    [
        "source /dev/stdin <<< 'rm x'",
        ". /dev/fd/0 <<< 'rm x'",
        "echo rm x | bash /dev/stdin",
        "bash /proc/self/fd/0 <<< 'rm x'",
    ],
)
def test_what_a_shell_reads_from_a_stream_may_be_what_a_rule_denies(line: str) -> None:
    rules = [parse_rule("deny", "bash(rm *)")]
    assert decide(shell(line), {}, rules=rules, mode="dontAsk").verdict == "deny"
    assert decide(shell("source a.sh"), {}, rules=rules, mode="dontAsk").verdict == "allow"
