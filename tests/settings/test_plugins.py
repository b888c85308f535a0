"""Plugins: what they bring, where their folder is named, and that a broken one breaks nothing."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.settings.contract import HandlerConfig, Plugin
from batten.tools.mcp_config import read_config

from .given import HOOK, Machine, write

PLACES = ["flag", "settings", "relative", "home", "installed"]


def named(machine: Machine, place: str) -> tuple[Path, list[str]]:
    """Where a plugin named in one of these ways is, and the flags that name it."""
    match place:
        case "flag":
            folder = machine.home / "audit"
            return folder, [str(folder)]
        case "settings":
            machine.say("user", {"plugins": [str(machine.home / "audit")]})
            return machine.home / "audit", []
        case "relative":
            machine.say("user", {"plugins": ["mine/audit"]})
            return machine.config / "mine/audit", []
        case "home":
            machine.say("user", {"plugins": ["~/audit"]})
            return machine.home.parent / "audit", []
        case _:
            return machine.config / "plugins" / "audit", []


@pytest.mark.parametrize("place", PLACES)
def test_a_plugin_is_found_wherever_it_is_named(machine: Machine, place: str) -> None:
    folder, flags = named(machine, place)
    machine.plugin(folder, skills=["review"])
    settings = machine.read(plugin_dirs=flags)
    assert settings.plugins == (Plugin(name="audit", version="1.2", path=str(folder)),)
    assert [(skill.name, skill.scope) for skill in settings.skills] == [("review", "plugin")]
    assert settings.problems == ()


@pytest.mark.parametrize("root", ["BATTEN_PLUGIN_ROOT", "CLAUDE_PLUGIN_ROOT"])
def test_a_plugin_finds_its_own_folder(machine: Machine, root: str) -> None:
    at = f"${{{root}}}"
    handler = {
        "type": "command", "command": f"{at}/run", "args": [f"--in={at}"], "env": {"A": at}
    }  # fmt: skip
    folder = machine.plugin(
        machine.home / "audit",
        hooks={"Stop": [{"hooks": [handler]}]},
        mcp={"db": {"command": f"{at}/db", "args": [at], "env": {"X": f"{at}:${{HOME}}"}}},
    )
    settings = machine.read(plugin_dirs=[str(folder)])
    where = str(folder)
    assert settings.hooks[0].handlers == (
        HandlerConfig(
            type="command",
            command=f"{where}/run",
            args=(f"--in={where}",),
            env={"BATTEN_PLUGIN_ROOT": where, "CLAUDE_PLUGIN_ROOT": where, "A": where},
        ),
    )
    assert settings.mcp_servers == {
        "db": {"command": f"{where}/db", "args": [where], "env": {"X": f"{where}:${{HOME}}"}}
    }


def test_the_other_place_of_a_manifest_is_known(machine: Machine) -> None:
    folder = machine.home / "audit"
    write(folder / ".claude-plugin/plugin.json", b'{"name": "theirs"}')
    settings = machine.read(plugin_dirs=[str(folder)])
    assert settings.plugins == (Plugin(name="theirs", version="", path=str(folder)),)


@pytest.mark.parametrize(
    ("file", "data", "why"),
    [
        ("plugin.json", b"{", "is not JSON"),
        ("plugin.json", b"{}", "name must be"),
        ("plugin.json", b'{"name": "../x"}', "name must be"),
        ("plugin.json", b'{"name": "x", "version": 2}', "version must be a text"),
        ("hooks/hooks.json", b"[]", "must be a JSON object"),
        ("hooks/hooks.json", b"{}", "hooks must be there"),
        ("hooks/hooks.json", b'{"hooks": {"Nope": []}}', "is not an event"),
        (".mcp.json", b'{"mcpServers": {"a": 1}}', "must be a table"),
    ],
)
def test_a_broken_plugin_is_one_line_and_the_others_stay(
    machine: Machine, file: str, data: bytes, why: str
) -> None:
    broken = machine.plugin(machine.home / "broken", "broken")
    write(broken / file, data)
    whole = machine.plugin(machine.home / "whole", "whole")
    settings = machine.read(plugin_dirs=[str(broken), str(whole)])
    assert [plugin.name for plugin in settings.plugins] == ["whole"]
    (problem,) = settings.problems
    assert problem.startswith(f"a plugin is left out: {broken / file}")
    assert why in problem


@pytest.mark.parametrize("kind", ["nowhere", "file", "empty"])
def test_a_folder_that_is_no_plugin_is_one_line(machine: Machine, kind: str) -> None:
    path = machine.home / "x"
    if kind == "file":
        path.write_bytes(b"")
    elif kind == "empty":
        path.mkdir()
    settings = machine.read(plugin_dirs=[str(path)])
    assert settings.plugins == ()
    assert len(settings.problems) == 1
    assert str(path) in settings.problems[0]


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({}, "needs either a command or a url"),
        ({"command": "x", "url": "http://x"}, "needs either a command or a url"),
        ({"type": "acp", "url": "http://x"}, "'acp' is not http or sse"),
        ({"type": "sse", "command": "x"}, "'sse' is not stdio"),
        ({"command": "x", "args": ["${NOT_SET_ANYWHERE}"]}, "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_a_server_that_could_not_be_tried_is_left_out_of_its_plugin(
    machine: Machine, server: dict[str, Any], why: str
) -> None:
    fine = {"command": "fine", "env": {"A": "${NOT_SET:-x}", "B": "${HOME}"}}
    folder = machine.plugin(machine.home / "audit", mcp={"bad": server, "fine": fine})
    settings = machine.read(plugin_dirs=[str(folder)])
    assert list(settings.mcp_servers) == ["fine"]
    (problem,) = settings.problems
    assert problem.startswith("plugin audit: MCP server bad is left out: ")
    assert why in problem
    read_config({"mcpServers": settings.mcp_servers}, machine.environ)


def test_servers_may_stand_by_themselves_in_a_plugin(machine: Machine) -> None:
    folder = machine.plugin(machine.home / "audit")
    write(folder / ".mcp.json", msgspec.json.encode({"db": {"command": "db"}}))
    assert machine.read(plugin_dirs=[str(folder)]).mcp_servers == {"db": {"command": "db"}}


def test_the_second_of_a_name_is_left_out(machine: Machine) -> None:
    machine.say("user", {"mcp_servers": {"db": {"command": "mine"}}})
    first = machine.plugin(machine.home / "a", "audit", mcp={"db": {"command": "theirs"}})
    second = machine.plugin(machine.home / "b", "audit")
    settings = machine.read(plugin_dirs=[str(first), str(first), str(second)])
    assert [plugin.path for plugin in settings.plugins] == [str(first)]
    assert settings.mcp_servers == {"db": {"command": "mine"}}
    assert settings.problems == (
        f"plugin audit ({second}): all of it is left out: another has that name",
        f"plugin audit ({first}): MCP server db is left out: another has that name",
    )


def test_hooks_of_plugins_are_off_where_only_the_owners_are_on(machine: Machine) -> None:
    folder = machine.plugin(machine.home / "audit", hooks={"Stop": [HOOK]})
    machine.say("managed", {"allow_managed_hooks_only": True})
    assert machine.read(plugin_dirs=[str(folder)]).hooks == ()


def test_plugins_that_are_turned_off_are_not_even_read(machine: Machine) -> None:
    settings = machine.read(plugin_dirs=["/nowhere"], without=frozenset({"plugins"}))
    assert settings.problems == ()


def test_installed_plugins_are_the_users(machine: Machine) -> None:
    machine.plugin(machine.config / "plugins" / "audit")
    assert machine.read(sources=("project",)).plugins == ()


def test_a_problem_is_one_line(machine: Machine) -> None:
    settings = machine.read(plugin_dirs=[str(machine.home / "a\nb")])
    (problem,) = settings.problems
    assert "\n" not in problem
