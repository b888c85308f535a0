"""Literal secrets of tool servers and hooks reach no byte of the journal, whatever their names."""

import io
import sys
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from msgspec.structs import replace

from batten.journal.sqlite.exporting import export_session
from batten.wiring.opener import SessionOpener
from tests.agent.stage import Stage, bash, call, end, say
from tests.wiring.test_opening import prompted, spec_at

pytestmark = pytest.mark.attack

OF_A_SERVER = "zq81-literal/K4m77-of+server"
OF_A_HEADER = "onlywordsonthecommandline"
OF_A_FLAG = "anotherwordofahook"
SERVER = str(Path(__file__).parents[1] / "tools" / "mcp_servers.py")


async def test_literals_of_a_server_and_a_hook_reach_no_byte_of_the_journal(stage: Stage) -> None:
    (stage.workspace / "told").write_text(
        f"{quote(OF_A_SERVER)} {OF_A_SERVER.upper()}\n{OF_A_HEADER[:12]}\n{OF_A_HEADER[12:]}\n"
        f"\x1b[1m{OF_A_FLAG[:7]}\x1b[0m{OF_A_FLAG[7:]}\n"
    )
    server = {"command": sys.executable, "args": [SERVER, "stdio"], "env": {"MOOD": OF_A_SERVER}}
    line = f'cat > /dev/null; true -H "Authorization: Bearer {OF_A_HEADER}" --token {OF_A_FLAG}'
    hook = {"type": "command", "command": f"{line}; echo {OF_A_FLAG} >&2"}
    model = stage.scenario(
        [call("mcp__away__environment", "c1", name="MOOD")],
        [bash("cat told", "c2")],
        [say(f"It is {OF_A_SERVER}."), end()],
    )
    spec = replace(
        spec_at(stage, model),
        mcp_servers={"away": server},
        settings=msgspec.json.encode({"hooks": {"PostToolUse": [{"handlers": [hook]}]}}).decode(),
    )
    opener = SessionOpener(spec)
    opened = await opener.open(opener.base)
    await prompted(opened)
    session_id = opened.session.session_id
    await opened.session.close()
    await opened.close()
    opener.close()

    bundle = io.BytesIO()
    export_session(str(stage.home), session_id, bundle, None)
    stored = b"".join(path.read_bytes() for path in stage.home.rglob("*") if path.is_file())
    told = stored + bundle.getvalue()
    assert b"mcp__away__environment" in told
    assert told.count(b"<redacted>") >= 4
    for secret in (OF_A_SERVER, quote(OF_A_SERVER), OF_A_SERVER.upper(), OF_A_HEADER, OF_A_FLAG):
        assert secret.encode() not in told
    assert OF_A_HEADER[12:].encode() not in told
    assert OF_A_FLAG[7:].encode() not in told
