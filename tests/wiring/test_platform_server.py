"""The tool server that a launcher names in the environment."""

import pytest

from batten.contract.errors import CallerError
from batten.wiring.platform_server import endpoint, platform_server


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


def test_a_launchers_span_names_the_trace() -> None:
    environ = {
        "MAESTRO_PLATFORM_MCP_URL": "http://a",
        "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    headers = platform_server(environ)["evalops"]["headers"]
    assert headers["X-EvalOps-Trace-Id"] == "0af7651916cd43dd8448eb211c80319c"


def test_it_is_off_without_an_address_and_by_its_switch() -> None:
    assert platform_server({}) == {}
    manifest = {"MAESTRO_PLATFORM_MCP_MANIFEST_URL": "https://a/.well-known/x.json"}
    assert platform_server({**manifest, "MAESTRO_PLATFORM_MCP_NAME": "p"})["p"]["url"] == (
        "https://a/mcp"
    )
    assert platform_server({**manifest, "MAESTRO_PLATFORM_MCP_ENABLED": "false"}) == {}
