"""The start: what is not loaded before the client is greeted."""

import subprocess
import sys
from pathlib import Path

import msgspec

from tests.acp.editor import BATTEN, Json
from tests.agent.stage import Stage

LATER = ("batten.agent", "batten.journal", "batten.session", "batten.tools", "batten.models")
NEVER = ("pydantic", "acp", "mcp", "httpx", "anyio")
HEAVY = ("apsw", "argparse", "cryptography")


def loaded(module: str) -> set[str]:
    """Everything that importing this module loads."""
    code = f"import sys; import {module}; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return set(said.stdout.split())


def test_greeting_a_client_loads_neither_the_agent_nor_the_store() -> None:
    assert not set(LATER + NEVER + HEAVY) & loaded("batten.serve.acp.surface")


def test_opening_sessions_loads_no_vendor_s_types() -> None:
    assert not set(NEVER) & loaded("batten.serve.acp.opening")


def test_a_client_is_greeted_where_no_store_can_be_made(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.home.write_text("not a directory")
    hello: Json = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": 1},
    }
    new: Json = {"cwd": str(stage.workspace), "mcpServers": []}
    asked: Json = {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": new}
    with subprocess.Popen(
        [BATTEN, "headless", "--protocol", "acp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**stage.environ, "BATTEN_HOME": str(stage.home)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in (hello, asked):
            process.stdin.write(msgspec.json.encode(message) + b"\n")
        process.stdin.flush()
        greeted = msgspec.json.decode(process.stdout.readline())
        assert greeted["result"]["protocolVersion"] == 1
        refused = msgspec.json.decode(process.stdout.readline())
        assert (refused["id"], refused["error"]["code"]) == (2, -32603)
        process.stdin.close()
        assert process.wait(20) == 0
