"""A pipe, a device or a folder that a repository puts in the place of a file holds no run."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from msgspec import UNSET

from batten.agent.instructions import project_instructions
from batten.contract.errors import ProviderError
from batten.runner.git import state_of
from batten.serve.maestro.greeting import branch_of
from batten.workspace.clones import clone
from batten.workspace.repository import find_repository
from tests.agent.stage import bash, call, say
from tests.cli.invoking import Shell
from tests.session.processes import BATTEN, environment

pytestmark = pytest.mark.attack

PATIENCE_S = 60
"""Far less than any limit of ours would let one wait, and more than a slow machine takes."""
READ = [
    "AGENTS.md",
    "CLAUDE.md",
    ".gitignore",
    ".ignore",
    ".git/HEAD",
    ".git/config",
    ".git/index",
    ".git/commondir",
    ".git/info/exclude",
    ".git/hooks",
    ".envrc",
    ".vscode",
    ".batten/skills/one/SKILL.md",
    ".claude/skills/one/SKILL.md",
]
"""What a run opens, or has opened, that may be missing."""
SETTINGS = [".batten/settings.json", ".claude/settings.json", ".mcp.json"]
"""What is refused if it cannot be read."""


def replace(path: Path, kind: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        path.rename(path.with_name(path.name + ".aside"))
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "zeros":
            path.symlink_to("/dev/zero")
        case "terminal":
            path.symlink_to("/dev/ptmx")
        case _:
            path.mkdir()


@pytest.mark.parametrize("kind", ["pipe", "zeros", "terminal", "folder"])
def test_a_run_goes_on_whatever_stands_in_the_place_of_a_file(shell: Shell, kind: str) -> None:
    workspace = shell.stage.workspace
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    for name in READ:
        replace(workspace / name, kind)
    (workspace / "file.txt").write_text("needle\n")
    model = shell.stage.scenario(
        [
            call("read_file", file_path="AGENTS.md"),
            call("grep", pattern="needle"),
            call("glob", pattern="*.txt"),
            bash("cat file.txt"),
        ],
        [call("edit_file", file_path=".envrc", old_string="a", new_string="b")],
        [say("done")],
    )
    flags = ["--permission-mode", "dontAsk", "--allow", "bash"]
    done = subprocess.run(
        [BATTEN, "-p", "--model", model, "--output-format", "stream-json", *flags, "go"],
        env=environment(shell.stage),
        cwd=workspace,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    told = done.stdout.decode()
    assert told.splitlines()[-1].count('"done"') == 1, told
    assert told.count("file.txt:1:needle") == 1, told
    assert told.count("needle") >= 3, told


@pytest.mark.parametrize("kind", ["pipe", "zeros", "folder"])
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_are_no_file_end_the_start_with_their_name(
    shell: Shell, kind: str, name: str
) -> None:
    workspace = shell.stage.workspace
    replace(workspace / name, kind)
    model = shell.stage.scenario([say("done")])
    done = subprocess.run(
        [BATTEN, "-p", "--model", model, "go"],
        env=environment(shell.stage),
        cwd=workspace,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0 or name in done.stderr.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    "words",
    [
        ["-p", "--model", "scripted:AGENTS.md", "go"],
        ["-p", "--file", "AGENTS.md", "go"],
        ["-p", "--system-file", "AGENTS.md", "go"],
        ["-p", "--append-system-prompt-file", "AGENTS.md", "go"],
        ["-p", "--json-schema", "AGENTS.md", "go"],
        ["-p", "--settings", "AGENTS.md", "go"],
        ["-p", "--mcp-config", "AGENTS.md", "go"],
        ["-p", "--worktree", "one", "go"],
        ["decide", "--about", "AGENTS.md", "go"],
        ["decide", "--roles", "AGENTS.md", "go"],
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "zeros"])
def test_no_file_that_is_named_holds_a_start(shell: Shell, words: list[str], kind: str) -> None:
    workspace = shell.stage.workspace
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    for name in ("AGENTS.md", ".git/HEAD", ".git/config"):
        replace(workspace / name, kind)
    (workspace / "model.json").write_text("{}")
    done = subprocess.run(
        [BATTEN, *words],
        env=environment(shell.stage),
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr, done.stderr.decode()


@pytest.mark.parametrize("kind", ["pipe", "zeros", "folder"])
@pytest.mark.parametrize("name", ["HEAD", "config", "index", "commondir", "packed-refs", ""])
async def test_what_is_asked_of_a_repository_is_answered(
    tmp_path: Path, kind: str, name: str
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for words in (["init", "-q"], ["commit", "-qm", "one", "--allow-empty"]):
        who = ["-c", "user.name=n", "-c", "user.email=e@x"]
        process = await asyncio.create_subprocess_exec("git", *who, *words, cwd=workspace)
        assert await process.wait() == 0
    replace(workspace / ".git" / name, kind)
    place = str(workspace)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(branch_of, place)
        found = await state_of(place, os.environ)
        await asyncio.to_thread(lambda: list(project_instructions(place)))
    assert found is UNSET or found.dirty is not None


async def test_a_clone_of_what_waits_for_a_writer_ends(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for words in (["init", "-q"], ["commit", "-qm", "one", "--allow-empty"]):
        who = ["-c", "user.name=n", "-c", "user.email=e@x"]
        process = await asyncio.create_subprocess_exec("git", *who, *words, cwd=source)
        assert await process.wait() == 0
    replace(source / ".git/refs/heads/held", "pipe")
    found = find_repository(str(source))
    assert found is not None
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ProviderError, match="took longer than 1 s"):
            await clone(found, str(tmp_path / "target"), os.environ, seconds=1)
