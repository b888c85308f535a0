"""`batten sandbox`: what confines commands here."""

import msgspec
import pytest

from batten.workspace.sandbox import Mode
from tests.agent.stage import call, end, say
from tests.workspace.keepers import CONFINED

from .invoking import Json, Shell

GAPS = ["reading every file that you can read", "writing outside the workspace", "network"]


def test_layer_and_what_it_leaves_open_are_shown(shell: Shell) -> None:
    where = str(shell.stage.workspace)
    said = shell("sandbox", where, "--sandbox", "none")
    assert said.code == 0
    assert said.out.decode().splitlines() == [
        f"commands in {where} run in the layer none",
        "  not covered: reading every file that you can read",
        "  not covered: writing outside the workspace",
        "  not covered: network",
    ]
    shown = msgspec.json.decode(shell("sandbox", where, "--sandbox", "none", "--json").out)
    assert shown == {"layer": "none", "uncovered": GAPS}


@pytest.mark.parametrize("mode", CONFINED)
def test_what_is_closed_here_is_said_in_words(shell: Shell, mode: Mode) -> None:
    workspace = shell.stage.workspace
    for name in (".envrc", ".vscode/tasks.json", ".idea/x"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("")
    rules = {"permissions": {"allow": ["Edit(./.idea/**)"]}, "sandbox": {"sockets": ["/run/one"]}}
    config = shell.stage.home.parent / "config"
    (config / "batten").mkdir(parents=True)
    (config / "batten" / "settings.json").write_bytes(msgspec.json.encode(rules))
    shell.set(XDG_CONFIG_HOME=str(config))
    lines = shell("sandbox", str(workspace), "--sandbox", mode).out.decode().splitlines()
    closed = [line.removeprefix("  closed: ") for line in lines if line.startswith("  closed: ")]
    assert "the network" in closed
    assert "Batten's home and your settings of Batten: commands find nothing there" in closed
    only_read = sorted(line for line in lines if line.startswith("  only read: "))
    wanted = [
        "  only read: .envrc (direnv executes it)",
        "  only read: .vscode (the editor executes it)",
    ]
    assert only_read == (wanted if mode == "bwrap" else [])
    about_sockets = [line for line in closed if "sockets" in line]
    assert all(line.endswith("but for /run/one") for line in about_sockets)
    shown = msgspec.json.decode(shell("sandbox", str(workspace), "--json", "--sandbox", mode).out)
    assert shown["closed"] == closed
    assert shown.get("read_only", []) == ([".envrc", ".vscode"] if mode == "bwrap" else [])


def test_a_workspace_that_does_not_exist_has_no_sandbox(shell: Shell) -> None:
    said = shell("sandbox", "no-such-folder", "--sandbox", "none")
    assert (said.code, said.out) == (64, b"")
    assert said.err == "batten: no-such-folder is not a directory\n"


def first(shell: Shell, *flags: str) -> Json:
    model = shell.stage.scenario([call("todo_write", todos=[])], [say("ok"), end()])
    words = ["-p", "--model", model, "--output-format", "stream-json", *flags]
    said = shell(*words, "go")
    frames = said.frames()
    assert [frame["type"] for frame in frames[:3]] == ["system", "tool_use", "tool_result"]
    return frames[0]


def test_first_frame_has_the_layer_and_what_it_leaves_open(shell: Shell) -> None:
    assert first(shell, "--sandbox", "none")["sandbox"] == {"layer": "none", "uncovered": GAPS}


def test_first_frame_says_why_commands_are_refused(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batten.workspace.keeper_channel._unusable", {})
    shell.set(PATH="/nowhere")
    found = first(shell, "--sandbox", "bwrap")["sandbox"]
    assert found["layer"] == "unavailable"
    assert "bwrap is not on PATH" in found["error"]
