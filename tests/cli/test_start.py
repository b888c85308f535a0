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
    "batten.contract.calls",
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
    "batten.serve.http.app",
    "batten.session.reverting",
    "batten.sinks.wanted",
    "batten.sinks.store",
    "batten.tools.mcp",
    "batten.workspace.watch",
    # Others': each costs more than a turn.
    "certifi",
    "cryptography",
    "batten.serve.http.listener",
    "httpx",
    "jsonschema_rs",
    "mcp",
    "nats",
    "pydantic",
    "rich",
    "watchfiles",
    # The interpreter's own.
    "bz2",
    "ctypes",
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

PROGRAM = """
import gc, socket, sys, threading

def answer(listening):
    connection, _ = listening.accept()
    connection.recv(1 << 20)
    loaded = [f"gc:{gc.isenabled()}:{gc.get_freeze_count() > 0}", *sorted(sys.modules)]
    with open(told, "w") as file:
        file.write("\\n".join(loaded))
    connection.sendall(b"HTTP/1.1 400 No\\r\\ncontent-length: 0\\r\\n\\r\\n")

told = sys.argv[1]
listening = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=answer, args=(listening,), daemon=True).start()

import os
os.environ["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
import batten.cli
argv = ["-p", "go", "--model", "anthropic/claude-sonnet-4-5", *sys.argv[3:]]
if sys.argv[2] == "embedded":
    sys.exit(batten.cli.run(argv))
sys.argv[1:] = argv
batten.cli.main()
"""


def loaded_by(stage: Stage, told: Path, way: str, style: str) -> set[str]:
    """The modules a process has loaded when the first byte of its first call arrives, and the state
    of its garbage collector.
    """
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(told), way, "--output-format", style],
        env={**environment(stage), "ANTHROPIC_API_KEY": "k"},
        cwd=stage.workspace,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr.decode()
    return set(told.read_text().split())


@pytest.fixture(params=["text", "stream-json", "events"])
def loaded(request: pytest.FixtureRequest, stage: Stage, tmp_path: Path) -> set[str]:
    return loaded_by(stage, tmp_path / "modules", "embedded", str(request.param))


def test_nothing_is_loaded_that_the_first_call_does_not_need(loaded: set[str]) -> None:
    assert "batten.models.anthropic" in loaded
    assert loaded & set(NOT_BEFORE_THE_FIRST_CALL) == set()


def test_every_module_of_ours_that_is_named_is_there() -> None:
    source = Path(__file__).parents[2] / "src"
    for name in NOT_BEFORE_THE_FIRST_CALL:
        if name.startswith("batten."):
            assert source.joinpath(*name.split(".")).with_suffix(".py").exists(), name


def test_the_collector_rests_while_a_process_of_our_own_starts(
    stage: Stage, tmp_path: Path
) -> None:
    assert "gc:True:True" in loaded_by(stage, tmp_path / "modules", "own", "text")


def test_the_collector_of_an_embedder_is_left_alone(stage: Stage, tmp_path: Path) -> None:
    assert "gc:True:False" in loaded_by(stage, tmp_path / "modules", "embedded", "text")
