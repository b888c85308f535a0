"""How little is loaded before a client is greeted, and what a command line cannot ask for."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.agent.stage import Stage, end, say
from tests.heddle.working import PATIENCE_S, init
from tests.session.processes import batten, environment

NOT_BEFORE_THE_GREETING = (
    "apsw",
    "argparse",
    "batten.agent",
    "batten.cli.arguments",
    "batten.cli.options",
    "batten.cli.print_mode",
    "batten.journal",
    "batten.serve.guard",
    "batten.serve.maestro",
    "batten.serve.showing",
    "batten.session",
    "batten.settings",
    "batten.wiring.opening",
    "batten.workspace",
    "httptools",
    "hashlib",
    "json",
    "mcp",
    "pathlib",
)
EMBEDDING = """
import sys
from batten.cli import run
code = run(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write("\\n".join(sys.modules))
sys.exit(code)
"""


def test_a_client_is_answered_before_the_agent_and_the_store_are_loaded(stage: Stage) -> None:
    loaded = stage.directory / "loaded"
    model = stage.scenario([say("x"), end()])
    # It is read as far as one that is greeted, and then refused: nothing is opened for it.
    asked = [init(max_iterations=0), {"type": "shutdown", "id": "z"}]
    argv = [sys.executable, "-c", EMBEDDING, str(loaded), "headless", "--protocol", "heddle"]
    subprocess.run(
        [*argv, "--model", model],
        input=b"".join(msgspec.json.encode(one) + b"\n" for one in asked),
        env=environment(stage),
        cwd=stage.workspace,
        timeout=PATIENCE_S,
        check=True,
        capture_output=True,
    )
    found = set(Path(loaded).read_text().splitlines())
    assert "batten.serve.heddle.surface" in found
    assert found & set(NOT_BEFORE_THE_GREETING) == set()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ([], "--protocol"),
        (["--protocol", "morse"], "morse"),
        (["--protocol", "heddle", "--nonesuch"], "--nonesuch"),
        (["--protocol"], "--protocol"),
        (["--protocol", "heddle", "a prompt"], "a prompt"),
        (["--protocol", "heddle", "--no-permissions", "--deny", "bash"], "--no-permissions"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_told_before_anything_is_read(
    stage: Stage, flags: list[str], problem: str
) -> None:
    ended = batten(stage, "headless", *flags)
    assert ended.returncode == 64
    assert problem in ended.stderr.decode()
    # Where it is known how to say it, the client is told too.
    told = [msgspec.json.decode(line) for line in ended.stdout.splitlines()]
    if "heddle" in flags:
        assert problem in told[0]["error"]["message"]
    else:
        assert told == []


def test_help_tells_of_the_protocols(stage: Stage) -> None:
    ended = batten(stage, "headless", "--help")
    assert ended.returncode == 0
    assert b"{heddle,maestro,acp}" in ended.stdout


def test_a_workspace_that_is_none_is_told_to_the_send(stage: Stage) -> None:
    model = stage.scenario([say("x"), end()])
    asked = [init(), {"type": "send", "id": "s", "message": "go"}]
    said = b"".join(msgspec.json.encode(one) + b"\n" for one in asked)
    flags = ["--protocol", "heddle", "--model", model, "--workspace", "/nonesuch"]
    ended = batten(stage, "headless", *flags, stdin=said)
    greeted, refused = map(msgspec.json.decode, ended.stdout.splitlines())
    assert greeted["type"] == "init_ok"
    assert "/nonesuch" in refused["error"]["message"]
    assert ended.returncode == 0
