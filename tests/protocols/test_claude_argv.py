"""The SDK's command lines, read into ours."""

import pytest

from batten.cli.arguments import parse
from batten.contract.errors import CallerError
from batten.contract.ids import from_uuid
from batten.protocols.claude.argv import asks_version, detect, read
from batten.protocols.stream_json import FrameOptions

SDK = {"CLAUDE_CODE_ENTRYPOINT": "sdk-py", "HOME": "/home/me"}
NESTED = {"CLAUDECODE": "1"}
"""A shell that Claude Code started, itself started by the SDK."""
OPENING = ["--output-format", "stream-json", "--verbose"]
NEWEST = [*OPENING, "--system-prompt", "", "--input-format", "stream-json"]


@pytest.mark.parametrize(
    ("argv", "environ", "expected"),
    [
        (NEWEST, SDK, True),
        (NEWEST, SDK | {"CLAUDE_CODE_ENTRYPOINT": "sdk-ts"}, True),
        (NEWEST, {}, False),
        (NEWEST, SDK | NESTED, False),
        (["--compat", "claude-code", *NEWEST], SDK | NESTED, True),
        (["--compat", "claude-code", "-p", "go"], {}, True),
        (["--compat=claude-code"], {}, True),
        ([*NEWEST, "--compat", "none"], SDK, False),
        (["-p", "go", "--output-format", "stream-json"], SDK, False),
        (["runs"], SDK, False),
        (["-p", "x", "--", "--compat=claude-code"], {}, False),
    ],
)
def test_we_stand_in_only_where_the_sdk_starts_us_or_somebody_says_so(
    argv: list[str], environ: dict[str, str], expected: bool
) -> None:
    assert detect(argv, environ) is expected


def test_the_version_is_theirs_only_for_the_sdk() -> None:
    assert asks_version(["-v"], SDK)
    assert not asks_version(["-v"], {})
    assert not asks_version(["-v"], SDK | NESTED)
    assert not asks_version(["--version"], SDK)


def test_every_flag_of_the_newest_sdk_is_read() -> None:
    argv = [
        *OPENING,
        *("--system-prompt", "Be a duck."),
        *("--tools", "Bash,Read,NotebookEdit"),
        *("--allowedTools", "Bash(git log:*),Read, mcp__calc"),
        *("--max-turns", "3"),
        *("--max-budget-usd", "1.5"),
        *("--disallowedTools", "WebFetch"),
        *("--task-budget", "1000"),
        *("--model", "sonnet"),
        *("--fallback-model", "claude-haiku-4-5"),
        *("--betas", "context-1m"),
        *("--permission-prompt-tool", "stdio"),
        *("--permission-mode", "acceptEdits"),
        "--resume=01a1e219-99b2-757a-9ec1-296c31420da8",
        *("--add-dir", "/tmp", "--add-dir", "/srv"),
        *("--mcp-config", '{"mcpServers":{}}'),
        "--include-partial-messages",
        "--include-hook-events",
        "--strict-mcp-config",
        "--fork-session",
        "--setting-sources=user",
        "--replay-user-messages",
        *("--max-thinking-tokens", "2000"),
        *("--effort", "high"),
        *("--input-format", "stream-json"),
    ]
    made = read(argv, SDK)
    assert made.wanted == FrameOptions(partial_messages=True, hook_events=True, user_messages=True)
    assert made.tools == ("bash", "read_file")
    assert made.denied == ("web_fetch",)
    assert made.asks_client
    assert made.streams
    assert made.strict_mcp
    assert [notice.split()[0] for notice in made.notices] == [
        "--task-budget",
        "--betas",
        "--effort",
    ]
    options = parse(made.ours, {})
    assert [(rule.action, rule.pattern) for rule in options.rules] == [
        ("deny", "web_fetch"),
        ("allow", "bash(git log:*)"),
        ("allow", "read_file"),
        ("allow", "mcp__calc"),
    ]
    assert (options.system, options.max_turns, options.max_budget_usd) == ("Be a duck.", 3, 1.5)
    assert (options.model, options.fallback_model) == (["sonnet"], ["claude-haiku-4-5"])
    assert (options.permission_mode, options.thinking_tokens) == ("acceptEdits", 2000)
    assert options.resume == from_uuid("01a1e219-99b2-757a-9ec1-296c31420da8", "chat")
    assert options.add_dir == ["/tmp", "/srv"]
    assert options.fork_session
    assert options.no_instructions
    assert options.setting_sources == "user"


def test_the_old_sdk_gives_its_prompt_after_two_dashes() -> None:
    argv = [
        *OPENING,
        *("--system-prompt", ""),
        *("--resume", "01a1e219-99b2-757a-9ec1-296c31420da8"),
        *("--setting-sources", ""),
        *("--print", "--", "--not-a-flag"),
        *("--max-thinking-tokens", "5"),
    ]
    made = read(argv, SDK | {"CLAUDE_AGENT_SDK_VERSION": "0.1.6"})
    assert made.seamless
    assert not made.streams
    options = parse(made.ours, {})
    assert (options.prompt, options.print) == ("--not-a-flag", "")
    assert (options.thinking_tokens, options.system) == (5, "")


def test_flags_of_ours_pass_through() -> None:
    made = read([*NEWEST, "--sandbox", "none", "--max-seconds=3"], SDK)
    options = parse(made.ours, {})
    assert (options.sandbox, options.max_seconds) == ("none", 3.0)


def test_bypassing_is_allowed_by_saying_so() -> None:
    made = read([*NEWEST, "--permission-mode", "bypassPermissions"], SDK)
    assert made.may_bypass
    assert parse(made.ours, {}).permission_mode == "dontAsk"  # where what is denied stays so
    assert read([*NEWEST, "--dangerously-skip-permissions"], SDK).may_bypass


def test_a_switch_that_is_turned_off_is_not_on() -> None:
    made = read([*OPENING, "--dangerously-skip-permissions=false"], SDK)
    assert (made.may_bypass, made.permission_mode) == (False, None)
    made = read([*OPENING, "--include-partial-messages", "--include-partial-messages=no"], SDK)
    assert not made.wanted.partial_messages
    assert read([*OPENING, "--strict-mcp-config=yes"], SDK).strict_mcp


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--strict-mcp-config=maybe"], "--strict-mcp-config is 'maybe'"),
        (["--permission-prompt-tool", "mcp__me__ask"], "only `stdio`"),
        (["--permission-mode", "brave"], "brave"),
        (["--output-format", "json"], "are stream-json"),
        (["--session-mirror"], "session_store"),
        (["--fork-session"], "--resume or --continue"),
        (["--resume-session-at=u", "--resume=x"], "--fork-session"),
        (["--resume-drops-turn=u"], "Resume rejected by --resume-drops-turn:"),
        (["--model"], "needs a value"),
    ],
)
def test_what_we_cannot_do_is_refused_and_says_why(argv: list[str], said: str) -> None:
    with pytest.raises(CallerError, match=said) as refused:
        read([*OPENING, *argv], SDK)
    assert refused.value.code in ("usage", "invalid_request")
