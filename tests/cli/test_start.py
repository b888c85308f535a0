"""How little `batten -p` loads before its first model call: start time is what a user waits for.

`ssl`, `subprocess`, `logging` and `inspect` are not named here: asyncio itself loads them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.stage import Stage
from tests.session.processes import environment

NOT_BEFORE_THE_FIRST_CALL = (
    # Ours: what only some runs need.
    "batten.agent.rules.commands",
    "batten.agent.rules.hosts",
    "batten.agent.rules.paths",
    "batten.agent.rules.reader",
    "batten.agent.rules.remedy",
    "batten.agent.vision",
    "batten.cli.attachments",
    "batten.cli.commands",
    "batten.cli.completion",
    "batten.cli.debugging",
    "batten.cli.doctor",
    "batten.cli.help",
    "batten.cli.inspection",
    "batten.serve.terminal.live",
    "batten.cli.models",
    "batten.cli.names",
    "batten.cli.stdin",
    "batten.cli.suggesting",
    "batten.cli.versions",
    "batten.models.probing",
    "batten.serve.alerts",
    "batten.session.naming",
    "batten.models.google",
    "batten.models.ollama",
    "batten.models.openai_chat",
    "batten.models.openai_responses",
    "batten.models.recorder",
    "batten.models.scenario",
    "batten.models.scripted",
    "batten.session.reverting",
    "batten.tools.mcp",
    "batten.workspace.watch",
    # Others': each costs more than a turn.
    "certifi",
    "cryptography",
    "httpx",
    "jsonschema_rs",
    "mcp",
    "pydantic",
    "rich",
    "watchfiles",
    # The interpreter's own.
    "bz2",
    "dataclasses",
    "email",
    "http",
    "importlib.metadata",
    "json",
    "lzma",
    "multiprocessing",
    "pathlib",
    "random",
    "shutil",
    "tempfile",
    "unittest",
    "urllib",
    "xml",
)

EMBEDDING = """
import socket, sys, threading

def answer(listening):
    connection, _ = listening.accept()
    connection.recv(1 << 20)
    loaded = sorted(sys.modules)
    connection.sendall(b"HTTP/1.1 400 No\\r\\ncontent-length: 0\\r\\n\\r\\n")
    with open(sys.argv[1], "w") as file:
        file.write("\\n".join(loaded))

listening = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=answer, args=(listening,), daemon=True).start()

import os
os.environ["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
from batten.cli import run
sys.exit(run(["-p", "go", "--model", "anthropic/claude-sonnet-4-5", *sys.argv[2:]]))
"""


@pytest.fixture(params=["text", "stream-json", "events"])
def loaded(request: pytest.FixtureRequest, stage: Stage, tmp_path: Path) -> set[str]:
    """The modules a process has loaded when the first byte of its first call arrives."""
    told = tmp_path / "modules"
    ended = subprocess.run(
        [sys.executable, "-c", EMBEDDING, str(told), "--output-format", str(request.param)],
        env={**environment(stage), "ANTHROPIC_API_KEY": "k"},
        cwd=stage.workspace,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr.decode()
    return set(told.read_text().split())


def test_nothing_is_loaded_that_the_first_call_does_not_need(loaded: set[str]) -> None:
    assert "batten.models.anthropic" in loaded
    assert loaded & set(NOT_BEFORE_THE_FIRST_CALL) == set()


def test_every_module_of_ours_that_is_named_is_there() -> None:
    source = Path(__file__).parents[2] / "src"
    for name in NOT_BEFORE_THE_FIRST_CALL:
        if name.startswith("batten."):
            assert source.joinpath(*name.split(".")).with_suffix(".py").exists(), name
