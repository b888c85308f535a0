"""`batten trust`: shows what a workspace would turn on, asks, and records exactly that."""

import asyncio
import os
import pty
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.settings.contract import Settings
from batten.settings.reader import read_settings
from tests.agent.stage import Stage
from tests.session.processes import BATTEN, environment

from .invoking import Said, Shell

HOOK = {"matcher": "bash", "if": "bash(git *)", "handlers": [
    {"type": "command", "command": "./guard", "env": {"LD_PRELOAD": "evil.so"}},
    {"type": "http", "url": "https://hooks.example/x"},
]}  # fmt: skip


@pytest.fixture(autouse=True)
def settings_file(stage: Stage) -> Path:
    return say(
        stage,
        {
            "model": "p/m",
            "permissions": {"allow": ["Bash(git *)"], "deny": ["WebFetch"]},
            "hooks": {"PreToolUse": [HOOK]},
            "mcp_servers": {"db": {"command": "npx", "args": ["-y", "db"]}},
            "env": {"API_TOKEN": "value-of-the-file"},
        },
    )


def say(stage: Stage, content: Mapping[str, Any]) -> Path:
    path = stage.workspace / ".batten/settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.encode(content))
    return path


def read(stage: Stage) -> Settings:
    return read_settings(
        workspace=str(stage.workspace), home=str(stage.home), environ=stage.environ
    )


def lines(said: Said) -> list[str]:
    return said.out.decode().splitlines()


def test_what_would_be_turned_on_is_shown_and_trusted(shell: Shell, stage: Stage) -> None:
    assert read(stage).model is None
    said = shell("trust", "--yes")
    assert said.code == 0
    shown = lines(said)
    assert shown[0] == f"{stage.workspace} would turn on:"
    assert shown[1].startswith("  .batten/settings.json  sha256:")
    assert shown[2:] == [
        "    hook: PreToolUse bash if bash(git *): ./guard (with LD_PRELOAD=evil.so), "
        "POST https://hooks.example/x",
        "    MCP server: db: npx -y db",
        "    allow rule: Bash(git *)",
        "    variable: API_TOKEN=<redacted>",
        "    model: p/m",
        "trusted, until it changes",
    ]
    settings = read(stage)
    assert (settings.model, len(settings.hooks), settings.problems) == ("p/m", 1, ())


def test_what_a_plugin_outside_brings_is_shown_too(
    shell: Shell, stage: Stage, tmp_path: Path
) -> None:
    folder = tmp_path / "audit"
    (folder / "hooks").mkdir(parents=True)
    (folder / "plugin.json").write_bytes(b'{"name": "audit"}')
    hooks = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "./account"}]}]}}
    (folder / "hooks/hooks.json").write_bytes(msgspec.json.encode(hooks))
    say(stage, {"plugins": [str(folder)]})
    shown = lines(shell("trust", "--yes"))
    assert shown[3].startswith(f"  {folder}  sha256:")
    assert shown[4] == "    plugin: audit"
    assert shown[5].startswith("    hook: Stop *: ./account")
    assert len(read(stage).hooks) == 1


def test_where_nobody_can_be_asked_it_takes_a_yes(shell: Shell, stage: Stage) -> None:
    said = shell("trust", stdin=b"y\n")
    assert said.code == 64
    assert "--yes" in said.err
    assert read(stage).model is None
    assert not (stage.home / "trust.json").exists()


@pytest.mark.parametrize(
    ("answer", "code", "model"), [(b"y\n", 0, "p/m"), (b"n\n", 1, None), (b"\n", 1, None)]
)
def test_a_person_at_a_terminal_is_asked(
    stage: Stage, answer: bytes, code: int, model: str | None
) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        done = subprocess.run(
            [BATTEN, "trust"], stdin=theirs, capture_output=True, check=False, timeout=30,
            env=environment(stage), cwd=stage.workspace,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"Trust this content? [y/N]" in done.stdout
    assert (done.returncode, read(stage).model) == (code, model)


def test_what_is_trusted_is_not_asked_about_again(shell: Shell) -> None:
    shell("trust", "--yes")
    said = shell("trust")
    assert (said.code, lines(said)[0].endswith("everything is trusted already")) == (0, True)


def test_only_what_changed_is_asked_about(shell: Shell, stage: Stage) -> None:
    (stage.workspace / ".mcp.json").write_bytes(b'{"mcpServers": {"a": {"command": "a"}}}')
    shell("trust", "--yes")
    say(stage, {"model": "p/other"})
    shown = lines(shell("trust", "--yes"))
    assert shown[1].endswith("(changed since it was trusted)")
    assert shown[2:] == ["    model: p/other", "trusted, until it changes"]


def test_a_workspace_that_brings_nothing_needs_nothing(shell: Shell, stage: Stage) -> None:
    say(stage, {"permissions": {"deny": ["Bash"]}})
    said = shell("trust")
    assert (said.code, lines(said)[0].endswith("nothing here needs to be trusted")) == (0, True)


def test_another_directory_can_be_named(shell: Shell, stage: Stage, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    said = shell("trust", str(other))
    assert lines(said) == [f"{other}: nothing here needs to be trusted"]
    assert shell("trust", str(tmp_path / "away")).code == 64
    shell("trust", "--yes", os.path.join(str(other), "..", stage.workspace.name))
    assert read(stage).model == "p/m"


def test_what_is_trusted_is_listed_with_what_became_of_it(shell: Shell, stage: Stage) -> None:
    shell("trust", "--yes")
    assert lines(shell("trust", "--list"))[1].endswith("  trusted")
    path = say(stage, {"model": "p/other"})
    assert lines(shell("trust", "--list", "."))[1].endswith("  changed since, not trusted")
    path.write_bytes(b"{")
    assert "  not read: .batten/settings.json is not JSON" in lines(shell("trust", "--list"))[1]
    path.unlink()
    assert lines(shell("trust", "--list"))[1].endswith("  no longer there")
    assert lines(shell("trust", "--list", "/")) == []


def test_trust_can_be_taken_back(shell: Shell, stage: Stage) -> None:
    shell("trust", "--yes")
    assert lines(shell("trust", "--revoke")) == ["no longer trusted: .batten/settings.json"]
    assert read(stage).model is None
    assert lines(shell("trust", "--revoke"))[0].endswith("nothing was trusted")


@pytest.mark.parametrize("flags", [("--list", "--revoke"), ("--yes", "--revoke"), ("a", "b")])
def test_flags_that_do_not_go_together_are_refused(shell: Shell, flags: tuple[str, ...]) -> None:
    assert shell("trust", *flags).code == 64


def test_settings_that_cannot_be_read_are_an_error(
    shell: Shell, stage: Stage, settings_file: Path
) -> None:
    settings_file.write_bytes(b'{"model": 5}')
    said = shell("trust", "--yes")
    assert said.code == 78
    assert ".batten/settings.json: model must be a text" in said.err


def test_nothing_that_is_shown_is_obeyed_by_a_terminal(shell: Shell, stage: Stage) -> None:
    say(stage, {"model": "p/\x1b[2Jm\nMCP server: none"})
    said = shell("trust", "--yes")
    assert b"\x1b" not in said.out
    assert len(lines(said)) == 4


def test_two_at_once_both_keep_what_they_trust(stage: Stage) -> None:
    others = [stage.directory / f"w{number}" for number in range(4)]
    for other in others:
        (other / ".batten").mkdir(parents=True)
        (other / ".batten/settings.json").write_bytes(b'{"model": "p/m"}')
    started = [
        subprocess.Popen([BATTEN, "trust", "--yes"], env=environment(stage), cwd=other,
                         stdout=subprocess.DEVNULL)
        for other in others
    ]  # fmt: skip
    assert [process.wait(30) for process in started] == [0] * 4
    book = msgspec.json.decode((stage.home / "trust.json").read_bytes())
    assert sorted(book["workspaces"]) == sorted(map(str, others))


def test_a_flag_trusts_the_workspace_for_one_invocation(shell: Shell, stage: Stage) -> None:
    marker = {"type": "command", "command": "touch hooked"}
    say(stage, {"hooks": {"SessionStart": [{"handlers": [marker]}]}})
    model = stage.scenario([{"kind": "text", "text": "well"}])
    flags = ("--output-format", "stream-json")
    without = shell.print(model, *flags)
    assert "not trusted and left out" in without.err
    assert without.frames()[0]["settingSources"] == []
    assert not (stage.workspace / "hooked").exists()
    trusted = shell.print(model, *flags, "--trust-workspace")
    assert trusted.frames()[0]["settingSources"] == ["project"]
    assert (stage.workspace / "hooked").exists()
    (stage.workspace / "hooked").unlink()
    assert "not trusted and left out" in shell.print(model, *flags).err
    assert not (stage.workspace / "hooked").exists()


def test_a_file_that_only_restricts_is_a_source_without_trust(shell: Shell, stage: Stage) -> None:
    say(stage, {"permissions": {"deny": ["WebFetch"]}})
    model = stage.scenario([{"kind": "text", "text": "well"}])
    said = shell.print(model, "--output-format", "stream-json")
    assert said.frames()[0]["settingSources"] == ["project"]


def test_a_bare_invocation_does_not_make_its_session_bare(shell: Shell, stage: Stage) -> None:
    (stage.workspace / "AGENTS.md").write_text("Answer in rhyme.")
    say(stage, {"permissions": {"deny": ["WebFetch"]}})
    flags = ("--output-format", "stream-json")
    model = stage.scenario([{"kind": "text", "text": "well"}], [{"kind": "text", "text": "well"}])
    bare = shell.print(model, *flags, "--bare")
    assert (bare.frames()[0]["bare_mode"], bare.frames()[0]["settingSources"]) == (True, [])
    again = shell("-p", "go", "--resume", bare.result["session_id"], "--sandbox", "none", *flags)
    init = again.frames()[0]
    assert (again.code, init["bare_mode"], init["settingSources"]) == (0, False, ["project"])
    journal = stage.journal()
    row = asyncio.run(journal.session(bare.result["session_id"]))
    journal.close()
    assert row is not None
    assert row.settings["instructions"] is True
