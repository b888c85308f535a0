"""Rules: what is refused when it is read, and which calls a rule is about."""

from pathlib import Path

import pytest

from batten.agent.rules.rule import Rule, check_tools, matches, parse_rule
from batten.agent.rules.verdict import MODES, Mode, decide, may_read
from batten.contract.errors import CallerError
from tests.agent.rules.tools import Named, editor, fetcher, reader, searcher, shell, writer

PLACE = "/srv/place"
MAKES = [Rule("allow", "Bash(make *)")]
MULTI = Named("multi_edit", "write", "src/a\nsecret", "edits", kind="multi_edit")


def denies(pattern: str, tool: Named) -> bool:
    return matches(parse_rule("deny", pattern), tool, {}, PLACE)


def allows(pattern: str, tool: Named) -> bool:
    return matches(parse_rule("allow", pattern), tool, {}, PLACE)


@pytest.mark.parametrize(
    "pattern",
    [
        *("Bash()", "Bash(", "Read()", "Read( )", "(x)", ""),
        *("Bash:", "Bash:~", "Bash(:*)", "Read(!x)", "WebFetch(example.com)", "WebFetch(domain:)"),
        *("WebFetch(domain:https://x)", "WebFetch(domain:a/b)", "WebFetch(ftp://x/)", "read(x"),
        *("Read(../x)", "Read(a/../b)", "Edit(//srv/..)", "Read(~you/x)", "Read($HOME/x)"),
        *("Read(${HOME}/x)", "Read('.env')", 'Read(".env")', "Read({.env,.npmrc})"),
        *("Read(file:///x)", "mcp__calc__add(5)", "mcp__calc(x)", "TodoWrite(x)"),
    ],
)
def test_a_rule_that_cannot_apply_is_refused_when_it_is_read(pattern: str) -> None:
    with pytest.raises(CallerError, match="permission rule"):
        parse_rule("deny", pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *("Read(./.env)", "Read(/abs/.env)", "Read(//abs/.env)", "Read(~/x)", "Read(**/.env)"),
        *(
            "Edit(src/**)",
            "Write(src/**)",
            "MultiEdit(a)",
            "Bash(rm:*)",
            "Bash(git push:*)",
            "Bash",
        ),
        *(
            "WebFetch(domain:example.com)",
            "WebFetch(domain:*.example.com)",
            "WebFetch",
            "WebFetch(*)",
        ),
        *("mcp__server", "mcp__server__*", "mcp__server__tool", "Skill(name)", "Agent(name)"),
        *(
            "Task(name)",
            "NotebookEdit",
            "NotebookEdit(a.ipynb)",
            "LS",
            "BashOutput",
            "ExitPlanMode",
        ),
        *("Grep(src/**)", "Glob(src/**)", "WebSearch", "TodoWrite", "*", "web_*", "KillShell"),
        "ReadMemoryTopic",
    ],
)
def test_spellings_of_other_agents_are_understood(pattern: str) -> None:
    rule = parse_rule("deny", pattern)
    assert rule.pattern == pattern
    check_tools([rule])


@pytest.mark.parametrize(
    "pattern",
    ["Reed(.env)", "Nothing", "bsh(git *)", "read_files", "web", "mcp__", "mcp____x"],
)
def test_a_rule_about_no_tool_is_refused(pattern: str) -> None:
    for source, code in (("cli", "usage"), ("user", "config")):
        with pytest.raises(CallerError, match="names no tool") as raised:
            check_tools([parse_rule("deny", pattern, source)])
        assert raised.value.code == code


@pytest.mark.parametrize("pattern", ["WebFetch(example.com)", "Read(../x)", "mcp__calc(x)"])
def test_a_rule_of_a_file_that_matches_nothing_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(CallerError, match=r"matches nothing.* \(user\)"):
        check_tools([Rule("deny", pattern, "user")])


def test_a_tool_of_an_embedder_may_be_named() -> None:
    check_tools([parse_rule("deny", "lookup(x)")], ["lookup"])


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            ".env",
            "./.env",
            "/.env",
            "**/.env",
            "/srv/place/.env",
            "//srv/place/.env",
            ".env*",
            "*",
        ),
        *("*", ".e[n]v", "?env", "**", "./**", "//srv/**", "/srv/place/", "/srv/place/**"),
    ],
)
@pytest.mark.parametrize("path", [".env", "./.env", "/srv/place/.env", "src/../.env"])
def test_a_file_is_found_however_rule_and_path_are_spelled(pattern: str, path: str) -> None:
    assert denies(f"Read({pattern})", reader(path))


@pytest.mark.parametrize(
    ("pattern", "path", "matched"),
    [
        (".env", "sub/.env", True),
        (".env", "sub/deep/.env", True),
        (".env", "/elsewhere/.env", True),
        ("**/.env", "sub/.env", True),
        ("./.env", "sub/.env", False),
        ("/.env", "sub/.env", False),
        ("sub/.env", "sub/.env", True),
        ("sub/.env", "other/sub/.env", False),
        ("**/sub/.env", "other/sub/.env", True),
        ("src/**", "src/a/b", True),
        ("src/*", "src/a/b", True),
        ("src", "src/a/b", True),
        ("src/", "lib/src/a", True),
        ("src/**", "lib/src/a", False),
        ("*.pem", "keys/a.pem", True),
        ("*.pem", "keys/a.pem.txt", False),
        ("a*c", "a/c", False),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/b/b/c", True),
        ("//etc/**", "/etc/passwd", True),
        ("/etc/**", "/etc/passwd", True),
        ("/etc/**", "etc/passwd", True),
        ("//etc/**", "etc/passwd", False),
        (".env", "environment", False),
        (".env", ".env.local", False),
    ],
)
def test_paths_match_as_in_gitignore(pattern: str, path: str, matched: bool) -> None:
    assert denies(f"Read({pattern})", reader(path)) is matched


def test_a_rule_about_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert denies("Read(~/.ssh/**)", reader("/home/me/.ssh/id"))
    assert not denies("Read(~/.ssh/**)", reader("/home/you/.ssh/id"))


@pytest.mark.parametrize("name", ["read_file", "grep", "glob", "edit_file", "multi_edit"])
def test_a_read_rule_is_about_every_reader(name: str) -> None:
    tool = Named(name, "read", "secrets", "path", kind="grep")
    assert denies("Read(secrets)", tool)
    assert denies("Read(secrets/**)", tool) or name not in ("grep", "glob")


@pytest.mark.parametrize("pattern", ["Edit(src/**)", "Write(src/**)", "MultiEdit(src/**)"])
def test_an_edit_rule_is_about_every_editor(pattern: str) -> None:
    assert denies(pattern, writer("src/a"))
    assert denies(pattern, editor("src/a"))
    assert denies(pattern, MULTI)
    assert allows(pattern, writer("src/a"))
    assert not allows(pattern, MULTI)
    assert not denies(pattern, reader("src/a"))


def test_a_folder_that_is_searched_counts_with_what_is_in_it() -> None:
    assert allows("Grep(src/**)", searcher("src"))
    assert allows("Grep(src/**)", searcher("src/a"))
    assert not allows("Grep(src/**)", searcher("."))


@pytest.mark.parametrize(
    ("pattern", "url", "matched"),
    [
        ("domain:example.com", "https://example.com/a", True),
        ("domain:example.com", "https://EXAMPLE.com./a", True),
        ("domain:Example.COM", "http://example.com:8080/", True),
        ("domain:example.com", "https://user@example.com/", True),
        ("domain:example.com", "https://www.example.com/", False),
        ("domain:*.example.com", "https://www.example.com/", True),
        ("domain:*.example.com", "https://example.com/", False),
        ("domain:example.com", "https://evil/x?://example.com/", False),
        ("domain:example.com", "https://example.com.evil/", False),
        ("domain:example.com", "https://evil/example.com", False),
        ("domain:example.com", "https://example.com@evil/", False),
        ("domain:example.com", "https://evil#@example.com/", False),
        ("domain:example.com", "not a url", False),
        ("https://example.com/*", "https://example.com/a?b", True),
        ("https://example.com/docs/*", "https://example.com/docs/a", True),
        ("https://example.com/docs/*", "https://example.com/other", False),
        ("https://example.com/*", "http://example.com/", False),
        ("https://example.com/*", "https://evil/https://example.com/", False),
    ],
)
def test_addresses_are_compared_as_they_are_parsed(pattern: str, url: str, matched: bool) -> None:
    assert denies(f"WebFetch({pattern})", fetcher(url)) is matched
    if "@" not in url:
        assert allows(f"WebFetch({pattern})", fetcher(url)) is matched


def test_a_domain_that_is_denied_is_denied_to_every_tool_that_fetches() -> None:
    requester = Named("http_request", "network", "https://example.com/", "url", kind="http")
    assert denies("WebFetch(domain:example.com)", requester)
    assert not allows("WebFetch(domain:example.com)", requester)


def test_a_server_stands_for_its_tools() -> None:
    tool = Named("mcp__calc__add", "execute", "", kind="mcp")
    assert denies("mcp__calc", tool)
    assert denies("mcp__calc__*", tool)
    assert denies("mcp__calc__add", tool)
    assert not denies("mcp__cal", tool)
    assert not denies("mcp__calc__sub", tool)


@pytest.mark.parametrize(
    "path",
    [
        *(".git/hooks/pre-commit", ".git/config", "sub/.git/config", ".envrc", "sub/.envrc"),
        *(".vscode/tasks.json", ".mcp.json", ".claude/settings.json", ".batten/settings.toml"),
        *("/home/me/.bashrc", "/home/me/.zshenv", "/home/me/.profile", "/home/me/.ssh/config"),
        *(".husky/pre-push", ".GIT/config"),
    ],
)
def test_files_that_make_programs_run_need_a_rule_of_their_own(path: str) -> None:
    wide = [Rule("allow", "write_file"), Rule("allow", "Edit(**)"), Rule("allow", "*")]
    modes: tuple[Mode, ...] = ("default", "acceptEdits", "auto")
    for mode in modes:
        for rules in ([], wide):
            decision = decide(writer(path), {}, rules=rules, mode=mode, workspace=PLACE)
            assert decision.verdict == "ask"
    near = [Rule("allow", "Edit(.gitignore)"), Rule("allow", "Read(.git/**)")]
    assert (
        decide(writer(path), {}, rules=near, mode="acceptEdits", workspace=PLACE).verdict == "ask"
    )
    named = [Rule("allow", f"Edit({path})")]
    assert decide(writer(path), {}, rules=named, mode="default", workspace=PLACE).verdict == "allow"


def test_what_allows_all_questions_allows_guarded_files_too() -> None:
    rules = [Rule("allow", "*", "auto-allow")]
    assert decide(writer(".envrc"), {}, rules=rules, mode="default").verdict == "allow"
    assert decide(writer(".envrc"), {}, rules=[], mode="dontAsk").verdict == "allow"


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "bypassPermissions"])
@pytest.mark.parametrize("line", ["x=push; git $x", "git $(echo push)", 'eval "git $x"'])
def test_what_may_be_denied_is_not_allowed(mode: Mode, line: str) -> None:
    rules = [Rule("allow", "bash"), Rule("deny", "bash(git push*)")]
    verdict = decide(shell(line), {}, rules=rules, mode=mode).verdict
    assert verdict == ("deny" if mode in ("plan", "dontAsk") else "ask")


def test_results_of_searches_leave_out_what_must_not_be_read() -> None:
    rules = [Rule("deny", "Read(.env)"), Rule("deny", "Grep(x)"), Rule("allow", "Read(sub/.env)")]
    assert not may_read(rules, "sub/.env", PLACE)
    assert may_read(rules, "sub/a", PLACE)
    assert may_read(rules, "x", PLACE)


def test_a_link_does_not_lead_a_command_out_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "a").touch()
    for line, verdict in (("cat out/passwd", "ask"), ("cat a", "allow"), ("ls out/", "ask")):
        decision = decide(shell(line), {}, rules=MAKES, mode="default", workspace=str(tmp_path))
        assert decision.verdict == verdict


def test_a_link_does_not_hide_a_file_that_must_not_be_read(tmp_path: Path) -> None:
    (tmp_path / ".env").touch()
    (tmp_path / "plain.txt").symlink_to(".env")
    rules = [Rule("allow", "bash"), Rule("deny", "Read(.env)")]
    decision = decide(
        shell("cat plain.txt"), {}, rules=rules, mode="default", workspace=str(tmp_path)
    )
    assert decision.verdict == "deny"


def test_git_reads_only_the_repository_of_the_workspace(tmp_path: Path) -> None:
    """In a folder that a file tool could make look like a repository, git may run programs."""
    place = str(tmp_path)
    assert (
        decide(shell("git status"), {}, rules=MAKES, mode="default", workspace=place).verdict
        == "ask"
    )
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    for line, verdict in (
        ("git status", "allow"),
        ("cd sub && git status", "ask"),
        ("git -C sub status", "ask"),
    ):
        decision = decide(shell(line), {}, rules=MAKES, mode="default", workspace=place)
        assert decision.verdict == verdict
