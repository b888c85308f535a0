"""The page on settings is true: its examples load, and it names every key and no other."""

import re
from pathlib import Path

import pytest

from batten.settings import keys
from batten.settings.contract import HOOK_EVENTS, RESERVED_EVENTS
from batten.settings.files import Document
from batten.settings.keys import read_layer

from .given import Machine, write

PAGE = (Path(__file__).parents[2] / "docs/settings.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(toml|json|markdown) ?(\S*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SETTINGS = [(kind, text) for kind, name, text in BLOCKS if not name]
PLUGIN = {name: text for _, name, text in BLOCKS if name}


def section(title: str) -> str:
    """The text between a heading and the next."""
    return PAGE.split(f"# {title}\n", 1)[1].split("\n#", 1)[0]


@pytest.mark.parametrize(("kind", "text"), SETTINGS, ids=[kind for kind, _ in SETTINGS])
def test_the_settings_that_are_shown_load(machine: Machine, kind: str, text: str) -> None:
    write(machine.path("user", kind), text)
    settings = machine.read()
    assert settings.problems == ()
    assert settings.sources == ("user",)
    assert settings.rules or settings.hooks


def test_the_plugin_that_is_shown_loads(machine: Machine) -> None:
    folder = machine.config / "plugins/audit"
    for name, text in PLUGIN.items():
        write(folder / name, text)
    settings = machine.read()
    assert settings.problems == ()
    assert [plugin.name for plugin in settings.plugins] == ["audit"]
    assert settings.hooks[0].handlers[0].command == f"{folder}/record"
    assert settings.mcp_servers == {"records": {"command": f"{folder}/serve"}}
    assert [skill.name for skill in settings.skills] == ["changelog"]


def test_the_mistake_that_is_shown_is_told_so(machine: Machine) -> None:
    (shown,) = re.findall(r"^batten: (.*)$", section("Scopes"), re.MULTILINE)
    write(
        machine.path("project", "toml"),
        '[[hooks.PreToolUse]]\nhandlers = [{ type = "command", command = "x", timeout = "1h" }]',
    )
    with pytest.raises(Exception, match=re.escape(shown)):
        machine.read()


def test_every_key_is_in_the_table_and_no_other() -> None:
    documented = {
        key for row in re.findall(r"^\| (`.*?) \|", section("Keys"), re.MULTILINE)
        for key in re.findall(r"`(\w+)`", row)
    }  # fmt: skip
    source = Path(keys.__file__).read_text("utf-8")
    asked = set(re.findall(r"(?:\btable\.\w+\(|\(table, )\"(\w+)\"", source))
    assert documented == asked
    problems: list[str] = []
    content = dict.fromkeys(documented)
    document = Document(path="", shown="s", digest="", content=content)
    read_layer(document, "user", "/", problems)
    assert problems == []


def test_every_event_is_named() -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", section("Hooks").split("Events:", 1)[1]))
    assert named == {*HOOK_EVENTS, *RESERVED_EVENTS}
