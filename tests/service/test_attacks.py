"""Hostile clients of the whole service: refused or bounded, and told nothing they should not know.

The rows come from the table, so a new route is attacked without a line here.
"""

import asyncio
import re
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from batten.contract.ids import new_run_id, new_task_id
from batten.serve.http.published import published
from batten.serve.http.routing import names
from batten.serve.http.table import RANKS, Route, Scope
from tests.agent.stage import end, say
from tests.serve.http.wire import Answer, Clients, clients
from tests.service.serving import PATIENCE_S, Run, Service, serving

ROUTES = [route for surface in published() for route in surface.routes]
BODIES = [route for route in ROUTES if route.body is not None]
SECRET = "sk-ant-planted-0123456789abcdefghij"
CONNECTION_KIB = 8
"""What an idle connection may cost the server; 2.5 were measured."""
RUN_KIB = 20_000
"""And what else it does meanwhile."""
IDS = {"task_id": new_task_id(), "run_id": new_run_id()}


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def filled(route: Route, **values: str) -> str:
    """The path with these values, and with ids of nothing elsewhere."""
    path = route.path
    for name in names(route.path):
        path = path.replace(f"{{{name}}}", values.get(name, IDS.get(name, "x_none")))
    return path


async def ask(service: Service, method: str, path: str, **more: Any) -> Answer:
    async with clients() as opened:
        connection = await opened.connect_to(service.url)
        return await connection.ask(method, path, more.get("body"), more.get("headers"))


def check_tells_nothing(service: Service, answer: Answer) -> None:
    """An error names no path of the home, no secret and no line of our code."""
    text = answer.body.decode(errors="replace")
    for secret in (str(service.stage.home), SECRET, "Traceback", 'File "', "sqlite", "apsw"):
        assert secret not in text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with serving(
        tmp_path_factory.mktemp("service"),
        *("--allow-mcp-servers", "remote"),
        environ={"PLANTED_API_KEY": SECRET},
    ) as running:
        yield running


pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="module")]

ESCAPES = [
    *("..", ".", "%2e%2e", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e%2fjournal.db"),
    *("%00", "a%00b", "%ff%fe", "%0d%0aX-Injected:%201", "'%20OR%201=1--", "*", "x" * 4000),
    *("..%5c..%5cetc", "%252e%252e%252f", "run_%E2%80%AE", "-1", "__proto__", "%7B%7D"),
]


ALSO = {
    "DELETE /webhooks/{webhook_id}": (204,),
    "GET /runtime/policies/{policyId}": (503,),
    "DELETE /runtime/policies/{policyId}": (503,),
}
"""A subscription that is none is gone as asked; the runtime, which knows policies, is absent."""


@pytest.mark.parametrize("route", [one for one in ROUTES if names(one.path)], ids=named)
async def test_ids_that_are_none_are_not_found_and_lead_nowhere(
    service: Service, route: Route
) -> None:
    for name in names(route.path):
        for escape in ESCAPES:
            body: dict[str, object] | None = {} if route.body is not None else None
            path = filled(route, **{name: escape})
            answer = await ask(service, route.method, path, body=body)
            # A body that is wrong for the route is refused before the id is looked up.
            expected = (400, 404, 405, *ALSO.get(f"{route.method} {route.path}", ()))
            assert answer.status in expected, (path, answer.body)
            assert "x-injected" not in answer.headers
            check_tells_nothing(service, answer)


@pytest.mark.parametrize("value", ["x", "-2", "1.0", "9" * 30, "0x10", "1;2", " ", "%00", "\u0661"])
async def test_forged_cursors_are_refused(service: Service, value: str) -> None:
    run = await ended(service)
    for path in (f"{run.path}/events", f"{run.path}/stream", "/events", "/events/stream"):
        accepts = {"Accept": "text/event-stream" if "stream" in path else "application/json"}
        answer = await service.ask("GET", f"{path}?after_sequence={quoted(value)}", None, accepts)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request"), path
        check_tells_nothing(service, answer)
        if value.strip() and value.isascii() and "%" not in value:
            headers = {**accepts, "Last-Event-ID": value}
            answer = await service.ask("GET", path, None, headers)
            assert (answer.status, answer.error["type"]) == (400, "invalid_request"), path


@pytest.mark.parametrize("path", ["/tasks", "/tasks/{task}/runs", "{run}/steps", "/artifacts"])
@pytest.mark.parametrize("cursor", ["x", "..%2f", "a%20b%20c", "%00", "run_" + "0" * 26, "'"])
async def test_forged_page_cursors_are_refused(service: Service, path: str, cursor: str) -> None:
    run = await ended(service)
    path = path.replace("{task}", run.task_id).replace("{run}", run.path)
    answer = await service.ask("GET", f"{path}?cursor={cursor}")
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    check_tells_nothing(service, answer)


def quoted(value: str) -> str:
    return "".join(f"%{byte:02x}" for byte in value.encode()) if "%" not in value else value


async def ended(service: Service) -> Run:
    run = await service.started(service.stage.scenario([say("Hello."), end()], name="talk"))
    await run.ended()
    return run


async def test_a_cursor_beyond_the_end_waits_for_nothing_that_is_there(service: Service) -> None:
    run = await ended(service)
    assert await service.get(f"{run.path}/events?limit=5&after_sequence={2**62}") == []
    assert await service.get(f"/events?limit=5&after_sequence={2**62}") == []


def problem(answer: Answer) -> str:
    """The code of an error, in either shape."""
    code: str = answer.json.get("errorCode") or answer.error["type"]
    return code


@pytest.mark.parametrize("route", BODIES, ids=named)
async def test_a_body_above_the_limit_of_its_route_is_refused_unread(
    service: Service, route: Route
) -> None:
    async with clients() as opened:
        connection = await opened.connect_to(service.url)
        head = f"{route.method} {filled(route)} HTTP/1.1\r\nHost: localhost\r\n"
        length = f"Content-Type: application/json\r\nContent-Length: {route.max_body + 1}\r\n\r\n"
        await connection.send((head + length).encode())
        answer = await connection.answer()
    assert answer.status == 413
    assert problem(answer) in ("request_too_large", "PAYLOAD_TOO_LARGE")
    check_tells_nothing(service, answer)


@pytest.mark.parametrize("route", BODIES, ids=named)
async def test_bodies_that_are_no_json_of_the_route_are_refused(
    service: Service, route: Route
) -> None:
    if route.body is bytes:
        pytest.skip("takes bytes of any kind")
    deep = b'{"a":' * 100_000
    for body in (b"{", b"[]", b"\xff\xfe", b'"x"', deep, b'{"a":"\\ud800"}'):
        answer = await ask(service, route.method, filled(route), body=body)
        assert answer.status in (400, 404, 413), body[:20]
        check_tells_nothing(service, answer)


async def test_floods_of_headers_are_refused_and_others_are_served(service: Service) -> None:
    async with clients() as opened:
        for lines in (
            b"".join(b"x-%d: 1\r\n" % number for number in range(5000)),
            b"x: " + b"a" * 60_000 + b"\r\n",
        ):
            connection = await opened.connect_to(service.url)
            # The server may cut the connection before we have read its answer.
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                head = b"GET /hecate/v1/tasks HTTP/1.1\r\nHost: localhost\r\n"
                await connection.send(head + lines + b"\r\n")
                assert (await connection.head())[0] == 431
    assert (await service.ask("GET", "/tasks")).status == 200


ELSEWHERE = [
    {"repo": "https://evil.example/x.git"},
    {"repo": "file:///etc"},
    {"repo": "ssh://-oProxyCommand=id/x"},
    {"repo": "ext::sh -c id"},
    {"repo": "../../etc"},
    {"working_directory": "~/.ssh"},
    {"working_directory": "//evil.example/share\0"},
    {"base_branch": "--upload-pack=id", "repo": "/srv/x"},
    {"mcp_servers": [{"name": "a", "url": "file:///etc/passwd"}]},
    {"mcp_servers": [{"name": "a", "url": "gopher://127.0.0.1:6379/_FLUSHALL"}]},
    {"mcp_servers": [{"name": "a", "url": "http://127.0.0.1:99999/"}]},
    {"mcp_servers": [{"name": "a", "url": "http://h", "headers": {"a": "b\r\nHost: c"}}]},
]


@pytest.mark.parametrize("fields", ELSEWHERE, ids=lambda one: re.sub(r"\W+", "-", str(one))[:60])
async def test_a_task_names_no_address_where_a_path_belongs(
    service: Service, fields: dict[str, Any]
) -> None:
    answer = await service.ask("POST", "/tasks", {"prompt": "go", **fields})
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    check_tells_nothing(service, answer)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "169.254.169.254", "[::1]", "10.0.0.1", "0.0.0.0", "localhost", "2130706433"],
)
async def test_a_tool_server_inside_the_network_is_not_contacted(
    service: Service, host: str
) -> None:
    contacted = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        contacted.set()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        talk = service.stage.scenario([say("Hello."), end()], name="talk")
        server = {"name": "inside", "url": f"http://{host}:{port}/mcp"}
        run = await service.started(talk, mcp_servers=[server])
        row = await run.ended()
    assert row["status"] == "failed"
    assert "BATTEN_HTTP_ALLOW" in row["last_error"]
    assert not contacted.is_set()


@pytest.fixture
def many_files() -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def crowd(service: Service, count: int) -> None:
    """So many idle connections cost little, keep nobody out, and leave nothing behind."""
    async with clients() as mine:
        first = await mine.connect_to(service.url)
        assert (await first.ask("GET", "/hecate/v1/tasks")).status == 200
        memory, files = memory_kib(service.pid), descriptors(service.pid)
        async with clients() as opened:
            await _connect(opened, service, count)
            assert (await first.ask("GET", "/hecate/v1/tasks")).status == 200
            run = await ended(service)
            assert (await run.now())["status"] == "completed"
            assert descriptors(service.pid) > count
            assert memory_kib(service.pid) - memory < count * CONNECTION_KIB + RUN_KIB
        async with asyncio.timeout(PATIENCE_S):
            # It sees each of them close; one more may be on its way to answer.
            while descriptors(service.pid) > files + 1:
                assert (await first.ask("GET", "/healthz")).status == 200


async def _connect(opened: Clients, service: Service, count: int) -> None:
    for _ in range(0, count, 100):
        await asyncio.gather(*(opened.connect_to(service.url) for _ in range(100)))


@pytest.mark.usefixtures("many_files")
async def test_1000_idle_connections_keep_nobody_out(service: Service) -> None:
    await crowd(service, 1000)


@pytest.mark.soak
@pytest.mark.usefixtures("many_files")
async def test_10000_idle_connections_keep_nobody_out(service: Service) -> None:
    await crowd(service, 10_000)


@pytest.mark.soak
async def test_dripping_bodies_are_given_up(service: Service) -> None:
    async with clients() as opened:
        connection = await opened.connect_to(service.url)
        await connection.send(
            b"POST /hecate/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n"
        )

        async def drip() -> None:
            with suppress(ConnectionError):
                while True:
                    await connection.send(b" ")
                    await asyncio.sleep(0.5)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(PATIENCE_S):
            line = await connection.reader.readline()
        dripping.cancel()
        assert line.startswith(b"HTTP/1.1 408 ")


async def test_each_row_wants_its_scope(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        scopes: tuple[Scope, ...] = ("viewer", "operator", "admin")
        keys: dict[Scope, str] = {scope: key(service, scope) for scope in scopes}
        for route in ROUTES:
            path = filled(route)
            if route.scope == "public":
                assert (await ask(service, route.method, path)).status == 200
                continue
            for headers in ({}, {"Authorization": "Bearer btn_wrong"}, {"X-Api-Key": SECRET}):
                answer = await ask(service, route.method, path, headers=headers)
                assert answer.status == 401, named(route)
                assert problem(answer) in ("unauthorized", "UNAUTHENTICATED")
                check_tells_nothing(service, answer)
            for scope, secret in keys.items():
                if RANKS[scope] < RANKS[route.scope]:
                    headers = {"Authorization": f"Bearer {secret}"}
                    answer = await ask(service, route.method, path, headers=headers)
                    assert answer.status == 403, named(route)
                    assert problem(answer).lower() == "forbidden"
                    assert secret not in answer.body.decode()
        viewer = {"Authorization": f"Bearer {keys['viewer']}"}
        assert (await ask(service, "GET", "/hecate/v1/tasks", headers=viewer)).status == 200
        log = (service.stage.directory / "serve.err").read_text()
        assert not any(secret in log for secret in keys.values())


def key(service: Service, scope: str) -> str:
    """A new key, as the command prints it."""
    made = subprocess.run(
        (sys.executable, "-m", "batten", "keys", "create", f"a-{scope}", "--scope", scope),
        env=service.stage.environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return made.stdout.split()[-1]


async def test_a_secret_of_the_service_is_in_no_answer_of_its_runs(service: Service) -> None:
    show = service.stage.scenario([say(f"The key is {SECRET}."), end()], name="show")
    run = await service.started(show, prompt=f"use {SECRET}")
    await run.ended()
    for path in (f"{run.path}/events?limit=500", run.path, run.task_path, f"{run.path}/steps"):
        answer = await service.ask("GET", path, None, {"Accept": "application/json"})
        assert SECRET not in answer.body.decode()
    added = await service.ask("POST", f"{run.path}/events", {"note": f"it is {SECRET}"})
    assert added.status == 200
    assert SECRET not in added.body.decode()
