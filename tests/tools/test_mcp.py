"""MCP servers: real ones, written with the official SDK, and ones that misbehave."""

import asyncio
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from batten.contract.errors import CallerError
from batten.redact.configured import configured_values
from batten.redact.redactor import Redactor
from batten.tools.contract import ToolOutput
from batten.tools.mcp import MOST_TOOLS, McpServers, tool_name
from batten.tools.mcp_config import read_config
from tests.ports import free_port
from tests.tools.recording import RecordingContext

SERVERS = str(Path(__file__).with_name("mcp_servers.py"))


def process(kind: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [SERVERS, kind], "timeout": 20, **more}


@asynccontextmanager
async def connected(**servers: dict[str, Any]) -> AsyncGenerator[McpServers, None]:
    async with asyncio.timeout(40):
        redactor = Redactor.from_environment({}, configured_values(servers.values()))
        opened = await McpServers.connect(
            {"mcpServers": servers}, os.environ, cwd="/", redact=redactor.text
        )
        try:
            yield opened
        finally:
            await opened.close()


async def call(
    servers: McpServers, name: str, context: RecordingContext | None = None, /, **arguments: Any
) -> ToolOutput:
    tool = {tool.spec.name: tool for tool in servers.tools()}[name]
    return await tool.run(arguments, context or RecordingContext())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def has_ended(pidfd: int, *, within_s: float) -> bool:
    return select.select([pidfd], [], [], within_s)[0] != []


async def test_tools_of_a_process_are_listed_and_called() -> None:
    async with connected(tiny=process("stdio")) as servers:
        assert servers.states() == [
            {"name": "tiny", "transport": "stdio", "status": "connected", "tools": 9, "error": ""}
        ]
        tool = servers.tools()[0]
        assert (tool.spec.name, tool.spec.description) == ("mcp__tiny__add", "Add two numbers.")
        assert tool.spec.parameters["required"] == ["a", "b"]
        assert (tool.kind, tool.effect) == ("mcp", "execute")
        output = await call(servers, "mcp__tiny__add", a=2, b=3)
        assert (output.text, output.mcp_result) == ("5", "dispatched")


async def test_of_endless_tools_the_first_are_used_and_the_server_is_named() -> None:
    async with connected(endless=process("endless")) as servers:
        assert servers.with_more_tools() == ["endless"]
        assert [tool.spec.name for tool in servers.tools()] == [
            f"mcp__endless__t{number}" for number in range(MOST_TOOLS)
        ]


async def test_what_a_server_answers_becomes_text_images_and_artifacts() -> None:
    context = RecordingContext(Redactor(["s3kr1t-Value-99"]))
    servers_env = {"GREETING": "it is s3kr1t-Value-99"}
    async with connected(tiny=process("stdio", env=servers_env)) as servers:
        failed = await call(servers, "mcp__tiny__fail")
        assert failed.mcp_result == "tool_error"
        assert failed.ending == "completed"
        assert "note is read-only" in failed.text
        seen = await call(servers, "mcp__tiny__picture", context)
        assert [image.data for image in seen.images] == [b"\x89PNG-data"]
        kept = await call(servers, "mcp__tiny__blob", context)
        assert kept.artifact_id is not None
        assert context.bodies[kept.artifact_id] == b"\0\1\2"
        kept = await call(servers, "mcp__tiny__told_blob", context)
        assert context.bodies[str(kept.artifact_id)] == b"it is <redacted>"
        greeting = await call(servers, "mcp__tiny__environment", context, name="GREETING")
        assert greeting.text == "it is <redacted>"


async def test_a_server_gets_only_what_its_configuration_gives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "not-for-servers")
    async with connected(tiny=process("stdio")) as servers:
        output = await call(servers, "mcp__tiny__environment", name="SOME_API_KEY")
        assert output.text == "(unset)"


async def test_a_server_that_dies_in_a_call_is_a_failed_call_and_so_is_the_next() -> None:
    async with connected(tiny=process("stdio")) as servers:
        for name in ("mcp__tiny__die", "mcp__tiny__fail"):
            output = await call(servers, name)
            assert (output.mcp_result, output.ending) == ("failed", "failed")


async def test_servers_that_do_not_come_up_are_reported_and_the_others_work() -> None:
    async with connected(
        good=process("chatty"),
        hangs=process("hang", timeout=0.5),
        dies=process("die"),
        prints=process("garbage", timeout=1),
        missing={"command": "/no/such/server"},
        nobody={"url": "http://127.0.0.1:9/mcp", "timeout": 5},
    ) as servers:
        states = {state["name"]: state for state in servers.states()}
        assert {name: state["status"] for name, state in states.items()} == {
            "good": "connected",
            "hangs": "failed",
            "dies": "failed",
            "prints": "failed",
            "missing": "failed",
            "nobody": "failed",
        }
        assert states["hangs"]["error"] == "no answer within 0.5 s"
        assert "cannot open the database" in states["dies"]["error"]
        assert "Welcome!" in states["prints"]["error"]
        assert "/no/such/server cannot be started" in states["missing"]["error"]
        assert (await call(servers, "mcp__good__add", a=1, b=1)).text == "2"


async def test_without_the_library_a_server_fails_and_says_what_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    async with connected(tiny=process("stdio")) as servers:
        (state,) = servers.states()
    assert state["status"] == "failed"
    assert "need the Python package mcp, which is not installed" in state["error"]
    assert "installing Batten with uv, pipx or pip brings it" in state["error"]


async def test_a_required_server_that_is_missing_is_a_typed_failure() -> None:
    with pytest.raises(CallerError, match="needed is not available") as raised:
        async with connected(fine=process("stdio"), needed=process("die", required=True)):
            pass
    assert raised.value.code == "config"


@pytest.mark.parametrize("required", [True, False])
async def test_a_secret_that_a_failed_server_printed_is_in_no_error(required: bool) -> None:
    script = "echo long before >&2; echo using $DB_PASSWORD >&2; exit 3"
    server = {"command": "sh", "args": ["-c", script], "env": {"DB_PASSWORD": "zq-Xk29slPw81mZt"}}
    try:
        async with connected(needed={**server, "required": required}) as servers:
            (error,) = [state["error"] for state in servers.states()]
    except CallerError as failure:
        error = str(failure)
    assert "long before using <redacted>" in error


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b'"result":{"content":[{"type":"text","text":"a\\ud83db"}]}', "a\ufffdb"),
        (b'"result":{"content":[{"type":"text","text":"a\xe4b"}]}', "a\ufffdb"),
        (b'"result":{"content":[', "Error: the server's answer is not a response of JSON-RPC"),
        (b'"result":"x"', "Error: the server's answer is not a response of JSON-RPC"),
    ],
)
async def test_an_answer_that_is_not_quite_json_rpc_ends_its_call(
    answer: bytes, told: str, tmp_path: Path
) -> None:
    """A call waited for minutes for the answer that had come."""
    (tmp_path / "answer").write_bytes(answer)
    async with connected(odd=process(f"answers:{tmp_path / 'answer'}")) as servers:
        assert (await call(servers, "mcp__odd__add")).text == told


async def test_closing_ends_a_server_and_what_it_started() -> None:
    async with connected(tiny=process("stdio")) as servers:
        child = os.pidfd_open(int((await call(servers, "mcp__tiny__child")).text))
        assert not has_ended(child, within_s=0)
    assert has_ended(child, within_s=5)
    os.close(child)


async def test_a_server_that_ignores_every_request_to_leave_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f'echo $$ > {pid_file}; exec "{sys.executable}" "{SERVERS}" stubborn'
    async with connected(
        stubborn={"command": "sh", "args": ["-c", script], "timeout": 1}
    ) as servers:
        assert "I stay" in servers.states()[0]["error"]
    assert not is_alive(int(pid_file.read_text()))


async def test_cancelling_a_call_leaves_the_server_usable() -> None:
    async with connected(tiny=process("stdio")) as servers:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await call(servers, "mcp__tiny__wait")
        # Our side is free at once; the server's one thread is not our concern.
        assert servers.states()[0]["status"] == "connected"


async def test_cancelling_the_connection_ends_every_server(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}; exec sleep 300"
    config = {"mcpServers": {"slow": {"command": "sh", "args": ["-c", script], "timeout": 30}}}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await McpServers.connect(config, os.environ, cwd="/", redact=str)
    assert not is_alive(int(pid_file.read_text()))


async def test_a_server_ends_with_us_also_on_kill_9(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f'echo $$ > {pid_file}; exec "{sys.executable}" "{SERVERS}" stdio'
    owner = (
        "import asyncio, os\n"
        "from batten.tools.mcp import McpServers\n"
        "async def main():\n"
        f"    servers = {{'tiny': {{'command': 'sh', 'args': ['-c', {script!r}]}}}}\n"
        "    config = {'mcpServers': servers}\n"
        "    await McpServers.connect(config, os.environ, cwd='/', redact=str)\n"
        "    print('connected', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", owner, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(40):
        assert await process.stdout.readline() == b"connected\n"
        process.kill()
        await process.wait()
        while is_alive(int(pid_file.read_text())):  # noqa: ASYNC110 - not our child: no event tells
            await asyncio.sleep(0.01)


@asynccontextmanager
async def listening(kind: str = "") -> AsyncGenerator[str, None]:
    """The origin of a server that listens on a port."""
    port = free_port()
    child = await asyncio.create_subprocess_exec(
        sys.executable, SERVERS, f"{kind}{port}", stderr=asyncio.subprocess.PIPE
    )
    assert child.stderr is not None
    try:
        async with asyncio.timeout(30):
            while b"running on" not in await child.stderr.readline():
                assert child.returncode is None
        yield f"http://127.0.0.1:{port}"
    finally:
        child.kill()
        await child.communicate()


@pytest.mark.parametrize(("kind", "place"), [("http", "mcp"), ("sse", "sse")])
async def test_tools_of_a_server_that_listens_are_listed_and_called(kind: str, place: str) -> None:
    async with listening("" if kind == "http" else "sse:") as origin:
        server = {"type": kind, "url": f"{origin}/{place}", "headers": {"X-Team": "blue"}}
        await check_remote(server)


async def check_remote(server: dict[str, Any]) -> None:
    async with connected(remote=server) as servers:
        assert servers.states()[0]["transport"] == server["type"]
        assert (await call(servers, "mcp__remote__add", a=20, b=22)).text == "42"
        assert (await call(servers, "mcp__remote__fail")).mcp_result == "tool_error"


class SessionServer(BaseHTTPRequestHandler):
    """Gives out one session, and knows no other; has no tools."""

    protocol_version = "HTTP/1.1"
    sessions: ClassVar[list[tuple[str, str | None]]] = []

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        named = self.headers["mcp-session-id"]
        self.sessions.append((asked["method"], named))
        match asked["method"], named:
            case "initialize", None:
                info = {"name": "s", "version": "1"}
                versions = {"protocolVersion": "2025-06-18", "serverInfo": info}
                self._answer(200, asked, {**versions, "capabilities": {"tools": {}}})
            case "tools/list", "own":
                self._answer(200, asked, {"tools": []})
            case _, "own":
                self._answer(202, asked, {})
            case _:
                self._answer(404, asked, {})

    def _answer(self, status: int, asked: dict[str, Any], result: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": result}).encode()
        self.send_response(status)
        self.send_header("mcp-session-id", "own")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


async def test_a_server_that_does_not_know_the_named_session_gives_its_own() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SessionServer) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{listener.server_port}/mcp"
        server = {"type": "http", "url": url, "headers": {"Mcp-Session-Id": "ours"}}
        async with connected(remote=server) as servers:
            assert servers.states()[0]["status"] == "connected"
        listener.shutdown()
    initialized = [named for method, named in SessionServer.sessions if method == "initialize"]
    assert initialized == ["ours", None]
    assert SessionServer.sessions[-1] == ("tools/list", "own")


class PageServer(BaseHTTPRequestHandler):
    """Answers everything with a web page."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def test_what_the_library_logs_of_a_server_is_not_on_standard_error() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), PageServer) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        owner = (
            "import asyncio\n"
            "from batten.tools.mcp import McpServers\n"
            "async def main():\n"
            f"    servers = {{'page': {{'url': 'http://127.0.0.1:{listener.server_port}/'}}}}\n"
            "    config = {'mcpServers': servers}\n"
            "    opened = await McpServers.connect(config, {}, cwd='/', redact=str)\n"
            "    print(opened.states()[0]['status'])\n"
            "    await opened.close()\n"
            "asyncio.run(main())\n"
        )
        ended = subprocess.run([sys.executable, "-c", owner], capture_output=True, timeout=40)
        listener.shutdown()
    assert (ended.stdout, ended.stderr) == (b"failed\n", b"")


def test_variables_in_a_configuration_are_expanded() -> None:
    config = {
        "mcpServers": {
            "a": {"command": "${BIN:-run}", "args": ["--key=${KEY}"], "env": {"K": "${KEY}"}},
            "b": {"url": "http://${HOST:-localhost}/mcp", "headers": {"Authorization": "${KEY}"}},
            "c": {"command": "x", "disabled": True},
        }
    }
    first, second = read_config(config, {"KEY": "k1", "HOME": "/h", "OTHER": "o"}, cwd="/w")
    assert (first.argv, first.env, first.cwd) == (
        ("run", "--key=k1"),
        {"HOME": "/h", "K": "k1"},
        "/w",
    )
    assert (second.url, second.headers) == ("http://localhost/mcp", {"Authorization": "k1"})


@pytest.mark.parametrize(
    ("server", "named"),
    [
        ({}, "either a command or a url"),
        ({"command": "x", "url": "http://y"}, "either a command or a url"),
        ({"command": 7}, "command"),
        ({"command": "x", "type": "sse"}, "'sse' is not stdio"),
        ({"url": "http://y", "type": "stdio"}, "'stdio' is not http or sse"),
        ({"url": "http://y", "type": "acp"}, "'acp' is not http or sse"),
        ({"command": "${UNSET_NAME}"}, "UNSET_NAME"),
        ({"command": "x", "timeout": 0}, "timeout"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(server: dict[str, Any], named: str) -> None:
    with pytest.raises(CallerError, match=named) as raised:
        read_config({"mcpServers": {"tiny": server}}, {})
    assert raised.value.code == "config"


@pytest.mark.parametrize("config", [{}, {"mcpServers": []}, {"mcpServers": {"a__b": {}}}])
def test_a_configuration_without_servers_or_with_bad_names_is_refused(
    config: dict[str, Any],
) -> None:
    with pytest.raises(CallerError):
        read_config(config, {})


def test_names_of_tools_fit_every_model() -> None:
    assert tool_name("files", "read/text.v2") == "mcp__files__read_text_v2"
    long = [tool_name("files", "x" * 80 + end) for end in ("1", "2")]
    assert [len(name) for name in long] == [64, 64]
    assert long[0] != long[1]
