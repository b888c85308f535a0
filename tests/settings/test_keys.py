"""Keys: each in either spelling, and every mistake named with its file and its key."""

import os
import re
import select
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batten.agent.rules.rule import parse_rule
from batten.agent.rules.verdict import MODES
from batten.contract.errors import CallerError
from batten.settings.contract import (
    HOOK_EVENTS,
    RESERVED_EVENTS,
    HandlerConfig,
    HookConfig,
    SandboxConfig,
)
from batten.settings.files import Document
from batten.settings.keys import read_layer
from batten.settings.layer import Layer
from batten.settings.permissions import PERMISSION_MODES

from .given import HOOK, Machine, write

Json = dict[str, Any]


def layer(content: Json, problems: list[str] | None = None) -> Layer:
    document = Document(path="/c/s.json", shown="s.json", digest="", content=content)
    return read_layer(document, "user", "/c", [] if problems is None else problems)


def handled(**handler: Any) -> Json:
    return {"hooks": {"Stop": [{"handlers": [handler]}]}}


def server(**entry: Any) -> Json:
    return {"mcp_servers": {"db": entry}}


MISTAKES: list[tuple[Json, str, str]] = [
    ({"model": 5}, "model", "must be a text, not a number"),
    ({"model": "  "}, "model", "must not be empty"),
    ({"fallback_models": ["a", 1]}, "fallback_models[1]", "must be a text, not a number"),
    ({"fallbackModel": "a", "fallback_models": []}, "fallbackModel", "keep one of them"),
    ({"env": {"A": 1}}, "env.A", "must be a text, not a number"),
    ({"env": {"A=B": "1"}}, "env", "has no variable for 'A=B'"),
    ({"env": ["A"]}, "env", "must be a table of keys, not a list"),
    ({"disableAllHooks": "yes"}, "disableAllHooks", "must be true or false, not a text"),
    ({"disableAllHooks": True, "disable_all_hooks": True}, "disableAllHooks", "is said twice"),
    ({"allowed_http_hook_urls": "x"}, "allowed_http_hook_urls", "must be a list, not a text"),
    ({"plugins": [["x"]]}, "plugins[0]", "must be a text, not a list"),
    ({"parent_settings_behavior": "x"}, "parent_settings_behavior", "one of merge, block"),
    ({"permissions": []}, "permissions", "must be a table of keys, not a list"),
    ({"permissions": {"allow": "Bash"}}, "permissions.allow", "must be a list, not a text"),
    ({"permissions": {"allow": [5]}}, "permissions.allow[0]", "a table of keys, not a number"),
    ({"permissions": {"deny": ["Bash("]}}, "permissions.deny[0]", "write Tool, Tool(pattern)"),
    ({"permissions": {"defaultMode": "yolo"}}, "permissions.defaultMode", "one of default,"),
    ({"permissions": {"enforce": 1}}, "permissions.enforce", "must be true or false"),
    ({"permissions": {"rules": [{"pattern": "Bash"}]}}, "permissions.rules[0]", "an action"),
    ({"permissions": {"rules": ["Bash"]}}, "permissions.rules[0]", "table of keys, not a text"),
    ({"permissions": {"rules": [{"pattern": "Bash", "action": "maybe"}]}},
     "permissions.rules[0].action", "must be one of allow, ask, deny, not 'maybe'"),
    ({"permissions": {"allow": [{"pattern": "Bash", "action": "deny"}]}},
     "permissions.allow[0].action", "must be one of allow, not 'deny'"),
    ({"permissions": {"allow": [{"pattern": "Bash", "expires": "2030-01-01"}]}},
     "permissions.allow[0].expires", "is not a key of a rule"),
    ({"permissions": {"allow": [{"pattern": "Bash", "expires_at": "soon"}]}},
     "permissions.allow[0].expires_at", "a time such as 2027-01-31T12:00:00Z, not 'soon'"),
    ({"permissions": {"allow": [{"pattern": "Bash", "expiresAt": 5}]}},
     "permissions.allow[0].expiresAt", "not a number"),
    ({"hooks": {"PreToolUsed": []}}, "hooks.PreToolUsed", "events are: SessionStart,"),
    ({"hooks": {"Stop": {}}}, "hooks.Stop", "must be a list, not a table"),
    ({"hooks": {"Stop": [{}]}}, "hooks.Stop[0]", "must have one list of handlers"),
    ({"hooks": {"Stop": [{"matcher": 1, "hooks": []}]}}, "hooks.Stop[0].matcher", "not a numb"),
    ({"hooks": {"Stop": [{"if": "", "hooks": []}]}}, "hooks.Stop[0].if", "must not be empty"),
    ({"hooks": {"Stop": [{"if": "Bash(", "hooks": []}]}}, "hooks.Stop[0].if", "write Tool,"),
    (handled(command="x"), "hooks.Stop[0].handlers[0]", "must have a type"),
    (handled(type="shell"), "hooks.Stop[0].handlers[0].type", "one of command, http"),
    (handled(type="command"), "hooks.Stop[0].handlers[0]", "must have a command"),
    (handled(type="http", url="ftp://x"), "hooks.Stop[0].handlers[0]", "begins with http://"),
    (handled(type="command", command="x", timeout="1h"), "handlers[0].timeout", '"30s"'),
    (handled(type="command", command="x", timeout=0), "handlers[0].timeout", "500ms"),
    (handled(type="command", command="x", timeout=True), "handlers[0].timeout", "not True"),
    (handled(type="command", command="x", timeout=10**400), "handlers[0].timeout", "30"),
    (handled(type="command", command="x", args="y"), "handlers[0].args", "must be a list"),
    (handled(type="command", command="x", env={"A": 1}), "handlers[0].env.A", "be a text"),
    (handled(type="command", command="x", onFailure="ask"), "handlers[0].onFailure", "deny, a"),
    (handled(type="command", command="x", **{"async": 1}), "handlers[0].async", "be true or"),
    ({"mcpServers": {"db": "x"}}, "mcpServers.db", "must be a table of keys, not a text"),
    ({"mcpServers": {"a__b": {}}}, "mcpServers.a__b", "up to 32 letters"),
    (server(command=["x"]), "mcp_servers.db.command", "must be a text, not a list"),
    (server(args=[1]), "mcp_servers.db.args[0]", "must be a text, not a number"),
    (server(env={"A": None}), "mcp_servers.db.env.A", "must be a text, not a NoneType"),
    (server(timeout="5"), "mcp_servers.db.timeout", "must be a number of seconds above 0"),
    (server(timeout=float("inf")), "mcp_servers.db.timeout", "86400 at most, not inf"),
    (server(timeout=float("nan")), "mcp_servers.db.timeout", "86400 at most, not nan"),
    (server(disabled="no"), "mcp_servers.db.disabled", "must be true or false"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "key", "right"), MISTAKES)
def test_a_mistake_is_named_with_its_file_its_key_and_what_is_right(
    content: Json, key: str, right: str
) -> None:
    with pytest.raises(CallerError) as raised:
        layer(content)
    assert raised.value.code == "config"
    message = str(raised.value)
    assert message.startswith("s.json: ")
    assert key in message
    assert right in message


@pytest.mark.parametrize("scope", ["managed", "user", "project", "local", "flag"])
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "is not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"model": "\xff"}', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"model": 5}', "model must be a text"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    machine: Machine, scope: str, data: bytes, says: str
) -> None:
    path = write(machine.path(scope), data)
    with pytest.raises(CallerError) as raised:
        machine.read()
    assert raised.value.code == "config"
    assert path.name in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.parametrize("data", [b"model = ", b"model = '\xff'", b"x = " + b"[" * 100_000])
def test_toml_that_cannot_be_used_is_named(machine: Machine, data: bytes) -> None:
    write(machine.path("user", "toml"), data)
    with pytest.raises(CallerError, match=r"settings.toml is not TOML"):
        machine.read()


def test_two_files_of_one_scope_are_an_error(machine: Machine) -> None:
    write(machine.path("user", "toml"), b"")
    machine.say("user", {})
    with pytest.raises(CallerError, match="keep one of them"):
        machine.read()


def test_a_file_that_is_none_is_named(machine: Machine) -> None:
    machine.path("user").mkdir()
    with pytest.raises(CallerError, match=r"settings.json cannot be read: Is a directory"):
        machine.read()


def test_a_pipe_in_the_place_of_a_file_is_refused(machine: Machine) -> None:
    os.mkfifo(machine.path("user"))
    with pytest.raises(CallerError, match=r"settings.json cannot be read: it is a pipe"):
        machine.read()


def test_a_flag_may_name_a_pipe_whose_writer_is_slow(machine: Machine) -> None:
    """As `--settings <(command)`: it is read to its end, not as far as it has come."""
    reading, writing = os.pipe()
    os.write(writing, b'{"model": ')

    def finish() -> None:
        while select.select([reading], [], [], 0)[0]:  # until what is there was read
            os.sched_yield()
        os.write(writing, b'"a/b"}')
        os.close(writing)

    late = threading.Thread(target=finish)
    late.start()
    found = machine.read(flag=f"/dev/fd/{reading}")
    late.join()
    os.close(reading)
    assert found.model == "a/b"


def test_a_settings_file_that_is_not_there_is_named(machine: Machine) -> None:
    with pytest.raises(CallerError, match=r"away.json cannot be read: No such file") as raised:
        machine.read(flag=str(machine.home / "away.json"))
    assert raised.value.code == "config"


def test_a_file_without_end_is_refused(machine: Machine) -> None:
    write(machine.path("user"), b" " * (256 * 1024 + 1))
    with pytest.raises(CallerError, match="more than 262144 bytes"):
        machine.read()


DEEP = "a." * 16 + "a"


@pytest.mark.parametrize(
    "text",
    [
        f"{DEEP} = 1",
        f"[{DEEP}]",
        f"b = {{ {DEEP} = 1 }}",
        '"a" . ' * 16 + "a = 1",
        "'a'." * 16 + "a = 1",
        'b = { c = """d"""", ' + DEEP + " = 1 }",
        "b = { c = '''d''''', " + DEEP + " = 1 }",
        'b = "c\\"" # "\n' + DEEP + " = 1",
        "a." * 100_000 + "a = 1",
    ],
)
def test_a_key_too_deep_for_the_parser_is_refused(machine: Machine, text: str) -> None:
    write(machine.path("user", "toml"), text)
    with pytest.raises(CallerError, match=r"settings\.toml is not TOML: a key has more than 16"):
        machine.read()


@pytest.mark.parametrize(
    "text",
    [
        f'env = {{ A = "{DEEP}" }}',
        f"env.A = '{DEEP}'",
        f'env.A = """\n{DEEP}\n"""',
        f'env.A = "\\"{DEEP}"',
        f"env.A = '''\n{DEEP}'''",
        f"# {DEEP}\n[env]\nA = '1'",
    ],
)
def test_what_only_looks_like_a_deep_key_is_a_text(machine: Machine, text: str) -> None:
    write(machine.path("user", "toml"), text)
    assert list(machine.read().env) == ["A"]


def test_the_other_spelling_says_the_same() -> None:
    ours: Json = {
        "fallback_model": "p/b",
        "permissions": {"default_mode": "plan"},
        "mcp_servers": {"db": {"command": "db"}},
        "disable_all_hooks": False,
        "allow_managed_hooks_only": False,
        "allowed_http_hook_urls": ["https://a"],
        "http_hook_allowed_env_vars": ["A"],
    }
    theirs: Json = {
        "fallbackModel": "p/b",
        "permissions": {"defaultMode": "plan"},
        "mcpServers": {"db": {"command": "db"}},
        "disableAllHooks": False,
        "allowManagedHooksOnly": False,
        "allowedHttpHookUrls": ["https://a"],
        "httpHookAllowedEnvVars": ["A"],
    }
    assert layer(ours) == layer(theirs)
    assert layer({**ours, "fallback_model": ["p/b"]}) == layer(theirs)
    assert layer({"permissions": {"disableBypassPermissionsMode": "disable"}}).enforce


def test_a_key_nobody_knows_is_told_and_tolerated() -> None:
    problems: list[str] = []
    said: Json = {"$schema": "x", "outputStyle": "terse", "permissions": {"alow": []}}
    layer({**said, "hooks": {"Stop": [{**HOOK, "note": 1}]}}, problems)
    assert problems == [
        "s.json: permissions.alow, hooks.Stop[0].note, outputStyle are not known and do nothing"
    ]
    problems.clear()
    layer({"outputStyle": "terse"}, problems)
    assert problems == ["s.json: outputStyle is not known and does nothing"]


def test_keys_without_number_or_length_are_one_short_line(machine: Machine) -> None:
    handler = {"type": "command", "command": "x", "note": 1}
    hooks = {"Stop": [{"handlers": [handler], "note": 1}] * 1000}
    machine.say("project", {"k" * 20_000: 1, **{f"k{n}": 1 for n in range(4000)}, "hooks": hooks})
    untrusted, unknown = machine.read().problems
    assert "1000 hooks" in untrusted
    assert unknown.endswith("and 5996 more are not known and do nothing")
    assert len(unknown) < 500


def test_problems_without_number_are_told_up_to_a_point(machine: Machine) -> None:
    machine.say("project", {"hooks": {"Stop": [{"handlers": [{"type": "mcp"}]}] * 1000}})
    problems = machine.read().problems
    assert len(problems) == 20
    assert problems[-1] == "981 more problems are not shown"
    machine.say("project", {"hooks": {"Stop": [{"handlers": [], "matcher": "^" + "a" * 9000}]}})
    (problem,) = machine.read().problems
    assert len(problem) == 2000


def test_nothing_is_said_by_null() -> None:
    keys = ("model", "env", "hooks", "permissions", "plugins", "mcpServers", "disable_all_hooks")
    assert layer(dict.fromkeys(keys)) == Layer(sources=("user",))


def test_a_hook_is_read_whole() -> None:
    handler = {
        "type": "command", "command": "guard", "args": ["-x", ""], "env": {"A": "1"},
        "timeout": "1.5s", "async": True, "on_failure": "allow",
    }  # fmt: skip
    post = {"type": "http", "url": "https://h/x", "headers": {"X": "$T"}, "timeout": 7}
    entry = {"matcher": "Edit|Write", "if": "Edit(*.py)", "hooks": [handler, post]}
    expected = HookConfig(
        event="PreToolUse",
        matcher="Edit|Write",
        condition="Edit(*.py)",
        handlers=(
            HandlerConfig(
                type="command", command="guard", args=("-x", ""), env={"A": "1"},
                timeout_s=1.5, is_async=True, on_failure="allow",
            ),
            HandlerConfig(type="http", url="https://h/x", headers={"X": "$T"}, timeout_s=7.0),
        ),
        scope="user",
    )  # fmt: skip
    assert layer({"hooks": {"PreToolUse": [entry]}}).hooks == (expected,)


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("500ms", 0.5), ("30s", 30.0), ("2", 2.0), (45, 45.0), (0.25, 0.25)]
)
def test_a_timeout_is_said_in_several_ways(timeout: Any, seconds: float) -> None:
    (hook,) = layer(handled(type="command", command="x", timeout=timeout)).hooks
    assert hook.handlers[0].timeout_s == seconds


@pytest.mark.parametrize("matcher", ["", None, "*"])
def test_a_matcher_that_says_nothing_matches_everything(matcher: str | None) -> None:
    (hook,) = layer({"hooks": {"Stop": [{**HOOK, "matcher": matcher}]}}).hooks
    assert hook.matcher == "*"


def test_handlers_that_are_not_run_are_told() -> None:
    problems: list[str] = []
    handlers = [{"type": kind, "prompt": "x"} for kind in ("mcp", "prompt", "agent")]
    assert layer({"hooks": {"Stop": [{"hooks": handlers}]}}, problems).hooks == ()
    assert problems == [
        f"s.json: hooks.Stop[0].hooks[{i}] is of type {kind} and is not run"
        for i, kind in enumerate(("mcp", "prompt", "agent"))
    ]


def test_a_matcher_that_looks_like_a_regular_expression_is_told() -> None:
    problems: list[str] = []
    layer({"hooks": {"Stop": [{**HOOK, "matcher": "^mcp__.*"}]}}, problems)
    (problem,) = problems
    assert "'^mcp__.*' is taken as a glob" in problem


def test_every_event_is_accepted_and_reserved_ones_are_told() -> None:
    problems: list[str] = []
    said: Json = {event: [HOOK] for event in (*HOOK_EVENTS, *sorted(RESERVED_EVENTS))}
    assert [hook.event for hook in layer({"hooks": said}, problems).hooks] == list(HOOK_EVENTS)
    assert len(problems) == len(RESERVED_EVENTS)


def test_the_rules_of_a_file_have_an_order() -> None:
    rules = [{"pattern": "B", "action": "allow"}, {"pattern": "C", "action": "deny"}]
    said = {"allow": ["E"], "ask": ["D"], "deny": ["A"], "rules": rules}
    found = [(rule.action, rule.pattern) for rule in layer({"permissions": said}).rules]
    assert found == [
        ("deny", "A"), ("allow", "B"), ("deny", "C"), ("ask", "D"), ("allow", "E")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("expires_at", "holds"),
    [
        ("2001-01-01", False),
        ("2001-01-01T00:00:00Z", False),
        ("2999-01-01", True),
        ("2999-01-01T00:00:00+02:00", True),
        (None, True),
    ],
)
def test_a_rule_that_has_expired_does_not_hold(expires_at: str | None, holds: bool) -> None:
    rule = {"pattern": "Bash", "comment": "c", "reason": "r", "expires_at": expires_at}
    assert bool(layer({"permissions": {"allow": [rule]}}).rules) is holds


@pytest.mark.parametrize(
    ("moment", "holds"),
    [("2001-01-01", False), ("2999-01-01T00:00:00Z", True), ("2999-01-01T00:00:00", True)],
)
def test_a_moment_of_toml_expires_too(machine: Machine, moment: str, holds: bool) -> None:
    text = f'permissions.allow = [{{ pattern = "Bash", expires_at = {moment} }}]'
    write(machine.path("user", "toml"), text)
    assert bool(machine.read().rules) is holds


@given(st.text("AB:(*)~ =,g\n", max_size=8))
@example("=: ~")
@example("A( ~)")
@example("A(:*)")
def test_a_pattern_is_accepted_here_exactly_if_the_agent_accepts_it(pattern: str) -> None:
    def accepted(call: Any) -> bool:
        try:
            call()
        except CallerError:
            return False
        return True

    here = accepted(lambda: layer({"permissions": {"allow": [pattern]}}))
    assert here is accepted(lambda: parse_rule("allow", pattern))


def test_the_modes_are_those_of_the_agent() -> None:
    assert PERMISSION_MODES == MODES


KEYS = st.sampled_from(
    ["model", "fallback_models", "permissions", "allow", "rules", "pattern", "action",
     "expires_at", "hooks", "Stop", "matcher", "handlers", "type", "command", "url", "timeout",
     "mcpServers", "db", "env", "args", "plugins", "x"]
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, json_values, max_size=5))
def test_whatever_stands_there_is_read_or_named(content: Json) -> None:
    said = "s.json: "
    try:
        layer(content)
    except CallerError as error:
        said = str(error)
    assert said.startswith("s.json: ")


def test_limits_of_commands_are_read_and_merged_key_by_key(machine: Machine) -> None:
    machine.say("user", {"sandbox": {"graceS": 5, "processes": 500, "memory_mib": 4096}})
    machine.say("flag", {"sandbox": {"processes": 0, "open_files": 64, "sockets": ["/run/x"]}})
    settings = machine.read()
    assert settings.problems == ()
    assert settings.sandbox == SandboxConfig(
        grace_s=5.0, processes=0, memory_mib=4096, open_files=64, sockets=("/run/x",)
    )


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"grace_s": -1}, "sandbox.grace_s"),
        ({"grace_s": "2s"}, "sandbox.grace_s"),
        ({"processes": 1.5}, "sandbox.processes"),
        ({"open_files": 3}, "sandbox.open_files"),
        ({"memory_mib": True}, "sandbox.memory_mib"),
        ({"sockets": ["run/x"]}, "sandbox.sockets"),
    ],
)
def test_limits_that_cannot_be_are_refused_by_name(
    machine: Machine, content: dict[str, Any], place: str
) -> None:
    machine.say("user", {"sandbox": content})
    with pytest.raises(CallerError, match=re.escape(place)):
        machine.read()
