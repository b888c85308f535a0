"""Who may call the control plane and how often, and the shape of every refusal."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from batten.serve.http.keys import KeyStore
from tests.agent.stage import Stage
from tests.ports import free_port
from tests.serve.http.wire import Answer, clients
from tests.service.serving import PATIENCE_S, Service, serving

KEY = "k-0123456789abcdef0123456789"
UNKNOWN = "/runs/01890000-0000-7000-8000-000000000000"
ERROR = {"statusCode", "errorCode", "message"}


def refused(answer: Answer, status: int, code: str) -> str:
    """Check an error; its message."""
    assert answer.headers["content-type"] == "application/json"
    assert "x-request-id" in answer.headers
    assert set(answer.json) == ERROR, answer.body
    assert (answer.status, answer.json["statusCode"], answer.json["errorCode"]) == (
        *(status, status),
        code,
    )
    return str(answer.json["message"])


async def test_d1_without_keys_no_header_is_needed_on_loopback(service: Service) -> None:
    refused(await service.request("GET", UNKNOWN), 404, "RUN_NOT_FOUND")
    assert (await service.request("GET", "/webhooks")).json == []


async def test_keys_of_the_environment_count_beside_those_of_the_home(tmp_path: Path) -> None:
    environ = {"AUTH_API_KEYS": f"other-key-0123456789, {KEY} "}
    async with serving(tmp_path, environ=environ) as service:
        _, own = KeyStore(str(service.stage.home)).create("ci", "viewer")

        async def ask(header: str | None, path: str = UNKNOWN) -> Answer:
            given = None if header is None else {"Authorization": header}
            return await service.request("GET", path, headers=given)

        assert refused(await ask(None), 401, "UNAUTHENTICATED") == "Missing Authorization header"
        for empty in ("", "Bearer", "bearer "):
            message = refused(await ask(empty), 401, "UNAUTHENTICATED")
            assert message == "Empty authorization token"
        for wrong in ("Bearer x", f"Bearer {KEY}x", KEY[:-1], f"Basic {KEY}", "Bearer a b"):
            answer = await ask(wrong)
            assert refused(answer, 401, "UNAUTHENTICATED") == "Invalid authorization token"
            assert answer.headers["www-authenticate"] == "Bearer"
        for right in (f"Bearer {KEY}", KEY, "Bearer other-key-0123456789", f"Bearer {own}", own):
            refused(await ask(right), 404, "RUN_NOT_FOUND")
        # A key of the home has its scope, one of the environment every scope.
        message = refused(await ask(own, "/audit"), 403, "FORBIDDEN")
        assert "admin" in message
        assert (await ask(KEY, "/audit")).status == 200
        # They are keys of the whole service; Hecate wants `Bearer` before them.
        assert (await ask(f"Bearer {KEY}", "/hecate/v1/tasks")).status == 200
        assert (await ask(KEY, "/hecate/v1/tasks")).status == 401
        assert (await ask(None, "/hecate/v1/tasks")).status == 401
        for public in ("/healthz", "/readyz", "/metrics"):
            assert (await ask(None, public)).status in OPEN[public]


async def test_a_key_of_the_environment_is_in_no_record(tmp_path: Path) -> None:
    async with serving(tmp_path, environ={"AUTH_API_KEYS": KEY}) as service:
        headers = {"Authorization": KEY}
        body = {"url": "https://example.com/hook", "secret": "s3cret-of-the-hook"}
        made = await service.request("POST", "/webhooks", body, headers)
        assert made.status == 201
        (entry,) = (await service.request("GET", "/audit", headers=headers)).json["data"]
        assert entry["actor"].startswith("api-key-")
        assert entry["actorType"] == "key"
        assert KEY[:8] not in str(entry)
        assert await service.stop() == 0
    assert KEY not in (tmp_path / "serve.err").read_text()


def complaint(directory: Path, *flags: str, environ: dict[str, str]) -> str:
    """What a service says that does not start."""
    stage = Stage(directory, environ)
    ended = subprocess.run(
        (sys.executable, "-m", "batten", "serve", "--port", "0", *flags),
        env=stage.environ,
        cwd=stage.directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (78, "")
    return ended.stderr


async def test_other_addresses_are_never_open(tmp_path: Path) -> None:
    assert "AUTH_API_KEYS" in complaint(tmp_path / "a", "--host", "0.0.0.0", environ={})
    # HOST chooses the address where no flag does.
    assert "0.0.0.0" in complaint(tmp_path / "b", environ={"HOST": "0.0.0.0"})
    environ = {"HOST": "0.0.0.0", "AUTH_API_KEYS": KEY}
    async with serving(tmp_path / "c", environ=environ) as service:
        assert service.url.startswith("http://0.0.0.0:")
        refused(await service.request("GET", UNKNOWN), 401, "UNAUTHENTICATED")


async def test_port_is_where_it_listens_without_a_flag(tmp_path: Path) -> None:
    port = free_port()
    stage = Stage(tmp_path, {"PORT": str(port)})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "batten", "serve", "--no-runtime", "--workers", "0"),
        env=stage.environ,
        cwd=stage.directory,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await process.stdout.readline()
        assert line.decode().strip() == f"listening on http://127.0.0.1:{port}"
    finally:
        process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()


async def test_outside_development_loopback_wants_a_key_too(tmp_path: Path) -> None:
    environ = {"NODE_ENV": "production"}
    assert "API keys only outside development" in complaint(tmp_path / "a", environ=environ)
    environ["AUTH_API_KEYS"] = KEY
    async with serving(tmp_path / "b", environ=environ) as service:
        refused(await service.request("GET", UNKNOWN), 401, "UNAUTHENTICATED")
        with_key = {"Authorization": f"Bearer {KEY}"}
        for path in ("/docs", "/docs-json"):
            assert (await service.request("GET", path, headers=with_key)).status == 404


async def test_variables_that_mean_nothing_are_said_once_at_start(tmp_path: Path) -> None:
    environ = {"DATABASE_URL": "postgres://u:hunter2@h/d", "REDIS_URL": "redis://h"}
    async with serving(tmp_path, environ=environ) as service:
        await service.request("GET", UNKNOWN)
        assert await service.stop() == 0
    log = (tmp_path / "serve.err").read_text()
    assert log.count("DATABASE_URL is ignored") == log.count("REDIS_URL is ignored") == 1
    assert "hunter2" not in log


async def test_the_log_level_is_a_variable(tmp_path: Path) -> None:
    async with serving(tmp_path, environ={"LOG_LEVEL": "debug"}) as service:
        await service.request("GET", UNKNOWN)
        assert await service.stop() == 0
    assert UNKNOWN in (tmp_path / "serve.err").read_text()


OPEN = {"/healthz": {200}, "/metrics": {200}, "/readyz": {200, 503}}
"""Answers to anybody; a service is not ready before its worker has started."""
LIMITED = {"THROTTLE_LIMIT": "3", "THROTTLE_TTL_MS": "3600000"}


async def test_d2_d3_a_client_has_one_rate_for_all_routes(tmp_path: Path) -> None:
    async with serving(tmp_path, environ=LIMITED) as service:
        told: list[Any] = []
        for path in (UNKNOWN, "/webhooks", f"{UNKNOWN}/state"):
            headers = (await service.request("GET", path)).headers
            told.append((headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]))
            assert 0 < int(headers["x-ratelimit-reset"]) <= 3600
        assert told == [("3", "2"), ("3", "1"), ("3", "0")]
        answer = await service.request("GET", "/audit")
        assert "Too Many Requests" in refused(answer, 429, "RATE_LIMITED")
        assert 0 < int(answer.headers["retry-after"]) <= 3600
        # Probes, other surfaces and the owner's own socket are not counted.
        for path in ("/healthz", "/readyz", "/metrics", "/hecate/v1/tasks"):
            free = await service.request("GET", path)
            assert free.status in OPEN.get(path, {200})
            assert "x-ratelimit-limit" not in free.headers
        async with clients() as opened:
            local = await opened.connect_unix(service.stage.home / "serve.sock")
            for _ in range(5):
                assert (await local.ask("GET", "/webhooks")).status == 200


async def test_keys_have_rates_of_their_own_and_guesses_are_counted(tmp_path: Path) -> None:
    environ = {**LIMITED, "AUTH_API_KEYS": f"{KEY},{KEY}2"}
    async with serving(tmp_path, environ=environ) as service:
        # The keys begin alike.
        for key in (KEY, f"{KEY}2"):
            for _ in range(3):
                answer = await service.request("GET", "/webhooks", headers={"Authorization": key})
                assert answer.status == 200
            answer = await service.request("GET", "/webhooks", headers={"Authorization": key})
            refused(answer, 429, "RATE_LIMITED")
        for _ in range(3):
            answer = await service.request("GET", "/webhooks", headers={"Authorization": "x"})
            refused(answer, 401, "UNAUTHENTICATED")
        answer = await service.request("GET", "/webhooks", headers={"Authorization": "x"})
        refused(answer, 429, "RATE_LIMITED")


async def test_the_limit_is_100_requests_a_minute_by_default(tmp_path: Path) -> None:
    async with serving(tmp_path, environ={"THROTTLE_LIMIT": ""}) as service:
        headers = (await service.request("GET", UNKNOWN)).headers
    assert (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]) == ("100", "99")
    assert 59 <= int(headers["x-ratelimit-reset"]) <= 60


async def test_d4_d6_every_error_has_the_one_shape(service: Service) -> None:
    large = b'{"url":"' + b"x" * (1 << 20) + b'"}'
    refused(await service.request("POST", "/webhooks", large), 413, "PAYLOAD_TOO_LARGE")
    for path in ("/runs/x/y/z", "/webhooks/a/b/c/d", "/audit/x", f"{UNKNOWN}/nothing"):
        refused(await service.request("GET", path), 404, "NOT_FOUND")
    answer = await service.request("PUT", "/webhooks")
    refused(answer, 405, "VALIDATION_ERROR")
    assert "POST" in answer.headers["allow"]
    bad: list[tuple[bytes, str]] = [
        (b"", "empty"),
        (b"{", "JSON"),
        (b'{"url":"\xff"}', "JSON"),
        (b'{"url":' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
        (b"[]", "object"),
        (b'{"url":1}', "url"),
        (b'{"url":"https://example.com","kickoff":[]}', "kickoff"),
    ]
    for body, named in bad:
        message = refused(await service.request("POST", "/webhooks", body), 400, "VALIDATION_ERROR")
        assert named in message
    answer = await service.request(
        "POST", "/webhooks", b"url=x", {"Content-Type": "application/x-www-form-urlencoded"}
    )
    refused(answer, 415, "VALIDATION_ERROR")
    refused(await service.request("GET", "/runs/%ff"), 400, "VALIDATION_ERROR")
    foreign = {"Origin": "https://elsewhere.example"}
    refused(await service.request("GET", UNKNOWN, headers=foreign), 403, "FORBIDDEN")


async def test_d4_a_body_without_a_length_is_limited_too(service: Service) -> None:
    async with clients() as opened:
        connection = await opened.connect_to(service.url)
        await connection.send(
            b"POST /webhooks HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(17):
            await connection.send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        async with asyncio.timeout(PATIENCE_S):
            refused(await connection.answer(), 413, "PAYLOAD_TOO_LARGE")


async def test_a_request_id_is_echoed_and_else_made(service: Service) -> None:
    answer = await service.request("GET", UNKNOWN, headers={"X-Request-Id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    ids = {(await service.request("GET", UNKNOWN)).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2


async def test_cors_is_off_unless_an_origin_is_named(tmp_path: Path, service: Service) -> None:
    site = {"Origin": "http://localhost:3000"}
    answer = await service.request("OPTIONS", "/runs", headers=site)
    assert answer.status == 403
    assert not any(name.startswith("access-control") for name in answer.headers)
    environ = {"CORS_ORIGIN": site["Origin"]}
    async with serving(tmp_path / "shared", environ=environ) as shared:
        asking = {**site, "Access-Control-Request-Method": "POST"}
        preflight = await shared.request("OPTIONS", "/webhooks", headers=asking)
        assert preflight.status == 204
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        for path, status in (("/webhooks", 200), (UNKNOWN, 404)):
            answer = await shared.request("GET", path, headers=site)
            assert answer.status == status
            assert answer.headers["access-control-allow-origin"] == site["Origin"]
            assert answer.headers["access-control-allow-credentials"] == "true"
            assert answer.headers["vary"] == "origin"
        other = {"Origin": "http://localhost:3001"}
        refused(await shared.request("GET", UNKNOWN, headers=other), 403, "FORBIDDEN")
        # Only these paths are shared, and only under names of this machine.
        answer = await shared.request("GET", "/hecate/v1/tasks", headers=site)
        assert answer.status == 403
        answer = await shared.request("GET", UNKNOWN, headers={**site, "Host": "evil.example"})
        refused(answer, 403, "FORBIDDEN")
