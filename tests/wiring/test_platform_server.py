"""The tool server that a launcher names in the environment."""

from pathlib import Path

import pytest

from batten.contract.errors import CallerError
from batten.contract.facts import RunQueued, ToolCompleted
from batten.wiring.platform_server import endpoint, platform_server
from tests.agent.stage import Stage, bash, end, say


@pytest.mark.parametrize(
    "url",
    [
        "https://app.example",
        "https://app.example/",
        "https://app.example/mcp",
        "https://app.example/mcp/?x=1#y",
        "https://app.example/.well-known/evalops/agent-mcp.json",
    ],
)
def test_every_form_of_an_address_is_the_same_endpoint(url: str) -> None:
    assert endpoint(url) == "https://app.example/mcp"


@pytest.mark.parametrize(
    "url", ["app.example", "ftp://a", "http://", "https://u:p@a", "http://a:x"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(CallerError, match="not the address of an MCP server"):
        endpoint(url)


def test_the_server_is_told_whom_it_works_for() -> None:
    environ = {
        "MAESTRO_PLATFORM_MCP_URL": " ",
        "MAESTRO_EVALOPS_AGENT_MCP_URL": "http://a:81/",
        "MAESTRO_CEREBRO_MCP_SCOPES": "cerebro:read",
        "MAESTRO_EVALOPS_ACCESS_TOKEN": "t",
        "MAESTRO_EVALOPS_WORKSPACE_ID": "w",
        "MAESTRO_SESSION_ID": "s",
        "MAESTRO_AGENT_RUN_ID": "r",
        "TRACE_ID": "x",
    }
    assert platform_server(environ) == {
        "evalops": {
            "type": "http",
            "url": "http://a:81/mcp",
            "headers": {
                "X-EvalOps-Workspace-Id": "w",
                "X-EvalOps-Session-Id": "s",
                "X-EvalOps-Agent-Run-Id": "r",
                "X-EvalOps-Trace-Id": "x",
                "X-EvalOps-Maestro-Surface": "maestro",
                "X-EvalOps-Scopes": "cerebro:read",
                "Authorization": "Bearer t",
                "Mcp-Session-Id": "s",
            },
        }
    }


def test_a_launcher_without_ids_of_its_own_still_names_the_session_and_the_trace() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    environ = {
        "MAESTRO_PLATFORM_MCP_URL": "http://a",
        "TRACEPARENT": f"00-{trace}-b7ad6b7169203331-01",
    }
    assert platform_server(environ, "chat_1")["evalops"]["headers"] == {
        "X-EvalOps-Session-Id": "chat_1",
        "X-EvalOps-Trace-Id": trace,
        "X-EvalOps-Maestro-Surface": "maestro",
    }


async def test_the_ids_that_it_is_told_are_recorded_and_only_its_token_is_a_secret(
    tmp_path: Path,
) -> None:
    trace, session = "0af7651916cd43dd8448eb211c80319c", "mrs_01K7T3M9ZQ4F8R2B6N0"
    token = "tok_5f1d0a9c3b7e4682ad"
    stage = Stage(
        tmp_path,
        {
            "MAESTRO_PLATFORM_MCP_URL": "http://127.0.0.1:1",
            "MAESTRO_EVALOPS_ACCESS_TOKEN": token,
            "MAESTRO_SESSION_ID": session,
            "TRACE_ID": trace,
        },
    )
    command = f"echo {trace} {session} {token}"
    played = await stage.play([bash(command, "c1")], [say("Done."), end()])
    assert played.one(RunQueued).identity == {"session_id": session, "trace_id": trace}
    assert played.one(ToolCompleted).output == f"{trace} {session} <redacted>"


def test_it_is_off_without_an_address_and_by_its_switch() -> None:
    assert platform_server({}) == {}
    manifest = {"MAESTRO_PLATFORM_MCP_MANIFEST_URL": "https://a/.well-known/x.json"}
    assert platform_server({**manifest, "MAESTRO_PLATFORM_MCP_NAME": "p"})["p"]["url"] == (
        "https://a/mcp"
    )
    assert platform_server({**manifest, "MAESTRO_PLATFORM_MCP_ENABLED": "false"}) == {}
