"""The start: what is not loaded before the client is greeted."""

import subprocess
import sys
from pathlib import Path

from tests.acp.wire import Json, greeted, wire
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


async def test_a_client_is_greeted_where_no_store_can_be_made(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.home.write_text("not a directory")
    async with wire(stage) as at:
        await greeted(at)
        new: Json = {"cwd": str(stage.workspace), "mcpServers": []}
        assert await at.code("session/new", new) == -32603
        assert at.process.stdin is not None
        at.process.stdin.close()
        assert await at.process.wait() == 0
