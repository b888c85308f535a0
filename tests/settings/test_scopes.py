"""Scopes: who is read, who wins, and what is joined."""

import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batten.contract.errors import CallerError
from batten.settings.contract import HookLimits, RuleConfig, Settings

from .given import HOOK, SCOPES, Machine, write

Json = dict[str, Any]


def say_everywhere(machine: Machine, say: Callable[[str], Json]) -> None:
    for scope in SCOPES:
        machine.say(scope, say(scope))
    machine.trust()


def patterns(settings: Settings) -> list[str]:
    return [rule.pattern for rule in settings.rules]


def test_where_nobody_said_anything_there_is_nothing(machine: Machine) -> None:
    assert machine.read() == Settings()


def test_silence_loads_nothing_that_reads_settings(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from batten.settings.reader import read_settings\n"
        "read_settings(workspace=sys.argv[1], home=sys.argv[1], environ={'HOME': sys.argv[1]})\n"
        "print(' '.join(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    ours = {name for name in done.stdout.split() if name.startswith("batten.settings.")}
    assert ours == {f"batten.settings.{name}" for name in ("contract", "folders", "reader")}
    assert "tomllib" not in done.stdout.split()


RELATIVE = ("", ".", "home")


def live_in(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be somebody whose account says so."""

    def account(_: int) -> pwd.struct_passwd:
        return pwd.struct_passwd(("me", "x", 1, 1, "", str(home), "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwuid", account)


@pytest.mark.parametrize("given", [None, *RELATIVE])
def test_a_home_that_is_no_whole_path_is_the_one_of_the_account(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    """Anything else would make a workspace's content the user's own."""
    monkeypatch.chdir(machine.workspace)
    live_in(machine.home, monkeypatch)
    machine.environ = {} if given is None else {"HOME": given}
    for folder in ("", "home"):
        write(machine.workspace / folder / ".config/batten/settings.json", b'{"model": "p/theirs"}')
    assert machine.read() == Settings()
    write(machine.home / ".config/batten/settings.json", b'{"model": "p/mine"}')
    assert machine.read().model == "p/mine"


@pytest.mark.parametrize("given", RELATIVE)
def test_a_folder_of_xdg_that_is_no_whole_path_is_ignored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(machine.workspace)
    machine.environ = {"HOME": str(machine.home), "XDG_CONFIG_HOME": given}
    for folder in ("batten", "home/batten"):
        write(machine.workspace / folder / "settings.json", b'{"model": "p/theirs"}')
    assert machine.read() == Settings()


def test_a_plugin_in_the_home_is_in_that_of_the_account(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.workspace)
    live_in(machine.home, monkeypatch)
    machine.environ["HOME"] = "."
    machine.plugin(machine.workspace / "audit")
    machine.say("user", {"plugins": ["~/audit"]})
    assert machine.read().plugins == ()
    machine.plugin(machine.home / "audit")
    assert [plugin.path for plugin in machine.read().plugins] == [str(machine.home / "audit")]


@pytest.mark.parametrize("strongest", range(1, len(SCOPES) + 1))
def test_the_strongest_scope_that_speaks_decides(machine: Machine, strongest: int) -> None:
    for scope in SCOPES[:strongest]:
        machine.say(scope, {"model": f"p/{scope}", "fallback_model": f"p/{scope}-2"})
    machine.trust()
    settings = machine.read()
    assert settings.sources == SCOPES[:strongest]
    assert settings.model == f"p/{SCOPES[strongest - 1]}"
    assert settings.fallback_models == (f"p/{SCOPES[strongest - 1]}-2",)


def test_a_machine_whose_owner_blocks_is_above_everyone(machine: Machine) -> None:
    say_everywhere(machine, lambda scope: {"model": f"p/{scope}"})
    machine.say("managed", {"model": "p/managed", "parent_settings_behavior": "block"})
    settings = machine.read()
    assert settings.model == "p/managed"
    assert settings.sources == ("user", "project", "local", "flag", "managed")


def test_only_the_machines_owner_can_block(machine: Machine) -> None:
    machine.say("user", {"model": "p/user", "parent_settings_behavior": "block"})
    machine.say("flag", {"model": "p/flag"})
    settings = machine.read()
    assert settings.model == "p/flag"
    assert "counts in managed settings only" in settings.problems[0]


def test_rules_are_joined_with_those_of_the_strongest_scope_first(machine: Machine) -> None:
    say_everywhere(machine, lambda scope: {"permissions": {"allow": [scope.title()]}})
    assert patterns(machine.read()) == ["Flag", "Local", "Project", "User", "Managed"]


def test_hooks_are_joined_and_the_machines_own_are_told_last(machine: Machine) -> None:
    say_everywhere(machine, lambda scope: {"hooks": {"Stop": [HOOK]}})
    plugin = machine.plugin(machine.home / "audit", hooks={"Stop": [HOOK]})
    found = machine.read(plugin_dirs=[str(plugin)]).hooks
    order = ["plugin", "flag", "local", "project", "user", "managed"]
    assert [hook.scope for hook in found] == order


def test_servers_and_variables_are_merged_key_by_key(machine: Machine) -> None:
    machine.say("user", {"mcpServers": {"db": {"command": "db", "env": {"A": "1", "B": "1"}}}})
    machine.say("project", {"mcp_servers": {"db": {"env": {"B": "2"}}, "web": {"url": "http://w"}}})
    machine.say("local", {"env": {"X": "local"}})
    machine.say("flag", {"env": {"Y": "flag"}})
    machine.trust()
    settings = machine.read()
    assert settings.mcp_servers == {
        "db": {"command": "db", "env": {"A": "1", "B": "2"}},
        "web": {"url": "http://w"},
    }
    assert settings.env == {"X": "local", "Y": "flag"}


def test_what_hooks_may_do_is_joined(machine: Machine) -> None:
    for scope, url in (("user", "https://a/*"), ("flag", "https://b/*")):
        said = {"allowed_http_hook_urls": [url], "http_hook_allowed_env_vars": ["TOKEN"]}
        machine.say(scope, said)
    expected = HookLimits(http_urls=("https://b/*", "https://a/*"), http_env_vars=("TOKEN",))
    assert machine.read().hook_limits == expected


@pytest.mark.parametrize("sources", [(), ("user",), ("project", "managed"), SCOPES[:4]])
def test_only_the_sources_that_are_named_are_read(
    machine: Machine, sources: tuple[str, ...]
) -> None:
    say_everywhere(machine, lambda scope: {"env": {scope.upper(): "1"}})
    settings = machine.read(sources=sources)
    assert set(settings.sources) == {*sources, "flag"}
    assert set(settings.env) == {scope.upper() for scope in (*sources, "flag")}


def test_a_source_nobody_knows_is_an_error(machine: Machine) -> None:
    with pytest.raises(CallerError, match="'usr' is not one of managed, user") as raised:
        machine.read(sources=("usr",))
    assert raised.value.code == "config"


def test_an_owner_who_blocks_is_read_whatever_sources_are_named(machine: Machine) -> None:
    machine.say("managed", {"model": "p/m", "parent_settings_behavior": "block"})
    assert machine.read(sources=()).model == "p/m"


def test_a_flag_may_be_json_in_place(machine: Machine) -> None:
    settings = machine.read(flag=' {"model": "p/m"}')
    assert (settings.model, settings.sources) == ("p/m", ("flag",))


def test_a_flag_may_be_a_toml_file(machine: Machine) -> None:
    file = write(machine.home / "mine.toml", 'model = "p/m"')
    assert machine.read(flag=str(file)).model == "p/m"


def test_toml_and_json_say_the_same(machine: Machine) -> None:
    text = (
        'model = "p/m"\n[permissions]\nallow = ["Read"]\n'
        '[[hooks.PreToolUse]]\nmatcher = "bash"\n'
        'handlers = [{ type = "command", command = "./guard" }]\n'
    )
    write(machine.path("user", "toml"), text)
    from_toml = machine.read()
    machine.path("user", "toml").unlink()
    said: Json = {"permissions": {"allow": ["Read"]}, "hooks": {"PreToolUse": [HOOK]}}
    machine.say("user", {"model": "p/m", **said})
    assert from_toml == machine.read()
    assert from_toml.rules == (RuleConfig(action="allow", pattern="Read", scope="user"),)


def test_no_scope_takes_back_that_bypassing_is_forbidden(machine: Machine) -> None:
    machine.say("managed", {"permissions": {"enforce": True}})
    machine.say("flag", {"permissions": {"enforce": False}})
    assert not machine.read().may_bypass


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, ["user", "managed"]),
        ({"user": {"disable_all_hooks": True}}, ["managed"]),
        ({"managed": {"disableAllHooks": True}}, []),
        ({"managed": {"disable_all_hooks": True}, "user": {"disable_all_hooks": False}},
         ["user", "managed"]),
        ({"user": {"allow_managed_hooks_only": True}}, ["managed"]),
        ({"managed": {"allowManagedHooksOnly": True}, "user": {"allowManagedHooksOnly": False}},
         ["managed"]),
    ],
)  # fmt: skip
def test_hooks_can_be_turned_off_but_the_owners_only_by_the_owner(
    machine: Machine, said: dict[str, Json], told: list[str]
) -> None:
    for scope in ("managed", "user"):
        machine.say(scope, {"hooks": {"Stop": [HOOK]}, **said.get(scope, {})})
    assert [hook.scope for hook in machine.read().hooks] == told


def test_what_is_turned_off_is_not_there(machine: Machine) -> None:
    machine.say("user", {"hooks": {"Stop": [HOOK]}, "mcpServers": {"db": {"command": "db"}}})
    machine.plugin(machine.config / "plugins" / "audit", skills=["review"])
    whole = machine.read()
    assert (len(whole.hooks), len(whole.mcp_servers), len(whole.skills)) == (1, 1, 1)
    bare = machine.read(without=frozenset({"hooks", "skills", "mcp", "plugins"}))
    assert (bare.hooks, bare.mcp_servers, bare.skills, bare.plugins) == ((), {}, (), ())


def test_a_relative_folder_of_configuration_is_not_the_workspaces(machine: Machine) -> None:
    machine.environ["XDG_CONFIG_HOME"] = "config"
    write(machine.workspace / "config/batten/settings.json", b'{"model": "p/evil"}')
    machine.say("user", {"model": "p/other"})
    assert machine.read().model is None


def test_a_variable_does_not_replace_the_machines_own_file(machine: Machine) -> None:
    from batten.settings.builder import SettingsBuilder

    machine.say("managed", {"model": "p/instead"})
    write(machine.home / "own.json", b'{"model": "p/own"}')
    builder = SettingsBuilder(
        workspace=str(machine.workspace),
        home=str(machine.home),
        config=str(machine.config),
        environ=machine.environ,
        wanted=frozenset({"managed"}),
        without=frozenset(),
    )
    assert builder.settings(str(machine.home / "own"), None, ()).model == "p/own"
