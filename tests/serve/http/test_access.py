"""Who gets in: keys and their scopes, `Host` and `Origin`, and rates."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from batten.serve.http.errors import HttpError
from batten.serve.http.keys import KeyRing, KeyScope, KeyStore
from batten.serve.http.limits import Limits, RateLimit
from tests.serve.http.wire import PATIENCE_S, Connection, Toy, request, toy

NOTE = {"text": "a"}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_loopback_is_open_until_there_is_a_key(server: Toy) -> None:
    assert (await server.ask("GET", "/toy/page")).json["principal"] == "operator"
    store = KeyStore(str(server.home))
    _, key = store.create("ci", "viewer")
    async with asyncio.timeout(PATIENCE_S):
        while (await server.ask("GET", "/toy/page")).status != 401:
            pass
    assert (await server.ask("GET", "/toy/page", headers=bearer(key))).json["principal"] == "ci"


async def test_without_a_valid_key_every_route_but_a_public_one_is_refused(tmp_path: Path) -> None:
    _, key = KeyStore(str(tmp_path)).create("ci", "viewer")
    async with toy(tmp_path) as server:
        for given in ({}, bearer("x"), bearer(key + "x"), bearer(key[:-1]), {"X-Api-Key": ""}):
            answer = await server.ask("GET", "/toy/page", headers=given)
            assert (answer.status, answer.error["type"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (await server.ask("GET", "/toy/page", headers={"Authorization": key})).status == 401
        assert (await server.ask("GET", "/open")).status == 200


async def test_an_old_key_with_the_name_of_an_author_without_a_key_is_told_from_that(
    tmp_path: Path,
) -> None:
    stored, key = KeyStore(str(tmp_path)).create("ci", "viewer")
    path = tmp_path / "keys" / f"{stored.id}.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(stored, name="operator")))
    async with toy(tmp_path) as server:
        answer = await server.ask("GET", "/toy/page", headers=bearer(key))
    assert answer.json["principal"] == f"operator@{stored.id}"


@pytest.mark.parametrize("header", ["X-Api-Key", "X-Hecate-Runtime-Token", "Authorization"])
async def test_a_key_is_taken_from_each_of_three_headers(tmp_path: Path, header: str) -> None:
    _, key = KeyStore(str(tmp_path)).create("ci", "viewer")
    value = f"bearer {key}" if header == "Authorization" else key
    async with toy(tmp_path) as server:
        answer = await server.ask("GET", "/toy/page", headers={header: value})
        assert (answer.status, answer.json["principal"]) == (200, "ci")


@pytest.mark.parametrize(
    ("scope", "statuses"), [("viewer", (200, 403, 403)), ("operator", (200, 200, 403)),
                            ("admin", (200, 200, 204))],
)  # fmt: skip
async def test_a_scope_includes_those_before_it(
    tmp_path: Path, scope: KeyScope, statuses: tuple[int, ...]
) -> None:
    _, key = KeyStore(str(tmp_path)).create("ci", scope)
    async with toy(tmp_path) as server:
        answers = (
            await server.ask("GET", "/toy/page", headers=bearer(key)),
            await server.ask("POST", "/toy/notes", NOTE, headers=bearer(key)),
            await server.ask("DELETE", "/toy/notes/x", headers=bearer(key)),
        )
        assert tuple(answer.status for answer in answers) == statuses
        for answer in answers:
            if answer.status == 403:
                assert answer.error["type"] == "forbidden"
                assert f"the key of ci has {scope}" in answer.error["message"]


async def test_a_revoked_key_stops_working_without_a_restart(tmp_path: Path) -> None:
    store = KeyStore(str(tmp_path))
    (_, one), (_, two) = store.create("one", "viewer"), store.create("two", "viewer")
    async with toy(tmp_path) as server:
        assert (await server.ask("GET", "/toy/page", headers=bearer(one))).status == 200
        store.revoke("one")
        async with asyncio.timeout(PATIENCE_S):
            while (await server.ask("GET", "/toy/page", headers=bearer(one))).status != 401:
                pass
        assert (await server.ask("GET", "/toy/page", headers=bearer(two))).status == 200
        # With the last key gone nobody gets in; the server does not become open again.
        store.revoke("two")
        async with asyncio.timeout(PATIENCE_S):
            while (await server.ask("GET", "/toy/page", headers=bearer(two))).status != 401:
                pass
        assert (await server.ask("GET", "/toy/page")).status == 401


async def test_a_stream_ends_when_its_key_is_revoked_and_others_go_on(tmp_path: Path) -> None:
    store = KeyStore(str(tmp_path))
    keys = [store.create(name, "viewer")[1] for name in ("one", "two")]
    async with toy(tmp_path, Limits(heartbeat_s=0.3), api_keys=("the environment's",)) as server:
        opened: list[Connection] = []
        for key in (*keys, "the environment's"):
            connection = await server.connect()
            await connection.send(request("GET", "/toy/follow", headers=bearer(key)))
            assert (await connection.head())[0] == 200
            assert await connection.chunk() == b": ok\n\n"
            opened.append(connection)
        store.revoke("one")
        # The answer is complete, and what is asked next on the connection is refused.
        assert not b"".join([x async for x in opened[0].chunks()]).replace(b": heartbeat\n\n", b"")
        assert (await opened[0].ask("GET", "/toy/page", headers=bearer(keys[0]))).status == 401
        for connection in opened[1:]:
            for _ in range(3):
                assert await connection.chunk() == b": heartbeat\n\n"
        assert len(server.app.streams) == 2


async def test_a_stream_without_a_key_ends_when_keys_are_wanted(server: Toy) -> None:
    connection = await server.connect()
    await connection.send(request("GET", "/toy/follow"))
    assert (await connection.head())[0] == 200
    KeyStore(str(server.home)).create("ci", "viewer")
    assert [chunk async for chunk in connection.chunks()] == [b": ok\n\n"]


async def test_streams_outlast_keys_that_cannot_be_read_for_a_while(tmp_path: Path) -> None:
    store = KeyStore(str(tmp_path))
    key = store.create("one", "viewer")[1]
    async with toy(tmp_path, Limits(heartbeat_s=0.3)) as server:
        connection = await server.connect()
        await connection.send(request("GET", "/toy/follow", headers=bearer(key)))
        assert (await connection.head())[0] == 200
        assert await connection.chunk() == b": ok\n\n"
        (tmp_path / "keys").rename(tmp_path / "away")
        (tmp_path / "keys").write_text("no directory")
        for _ in range(3):
            assert await connection.chunk() == b": heartbeat\n\n"


async def test_the_use_of_a_key_is_remembered(tmp_path: Path) -> None:
    store = KeyStore(str(tmp_path))
    stored, key = store.create("ci", "viewer")
    assert store.last_used(stored) == ""
    async with toy(tmp_path) as server:
        await server.ask("GET", "/toy/page", headers=bearer("btn_" + key))
        assert store.last_used(stored) == ""
        await server.ask("GET", "/toy/page", headers=bearer(key))
    assert store.last_used(stored) >= stored.created_at[:16]


def test_a_damaged_key_file_locks_out_its_key_and_opens_nothing(tmp_path: Path) -> None:
    store = KeyStore(str(tmp_path))
    (one, first), (_, second) = store.create("one", "admin"), store.create("two", "admin")
    (tmp_path / "keys" / f"{one.id}.json").write_bytes(b'{"id":')
    ring = KeyRing(store)
    assert not ring.is_empty
    assert ring.principal({b"x-api-key": first.encode()}) is None
    found = ring.principal({b"x-api-key": second.encode()})
    assert found is not None
    assert found.name == "two"


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8765", None, 200),
        ("localhost", None, 200),
        ("app.localhost:80", None, 200),
        ("[::1]:8765", None, 200),
        ("LOCALHOST:1", "http://localhost:1", 200),
        ("localhost:80", "http://localhost", 200),
        ("localhost", "https://localhost", 200),
        ("localhost:8765", "http://localhost:3000", 403),
        ("localhost", "http://evil.example", 403),
        ("localhost", "null", 403),
        ("localhost", "", 403),
        ("evil.example", None, 403),
        ("evil.example", "http://evil.example", 403),
        ("localhost.evil.example", None, 403),
        ("127.0.0.1.evil.example", None, 403),
        ("192.168.0.7", None, 403),
        ("[::ffff:127.0.0.1]", None, 200),
        ("", None, 400),
    ],
)
async def test_a_page_of_another_site_is_refused(
    server: Toy, host: str, origin: str | None, status: int
) -> None:
    headers = {"Host": host} if origin is None else {"Host": host, "Origin": origin}
    for _ in range(2):
        answer = await server.ask("POST", "/toy/notes", NOTE, headers=headers)
        assert answer.status == status
    assert len(server.boxes.notes) == (2 if status == 200 else 0)


async def test_a_name_of_a_proxy_can_be_allowed(tmp_path: Path) -> None:
    async with toy(tmp_path, allow_hosts=("Batten.example",)) as server:
        own = {"Host": "batten.example", "Origin": "https://batten.example"}
        assert (await server.ask("GET", "/toy/page", headers=own)).status == 200
        assert (await server.ask("GET", "/toy/page", headers={"Host": "x.example"})).status == 403


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization", "X-Api-Key", "Last-Event-Id"])
async def test_a_header_that_decides_is_not_taken_twice(server: Toy, name: str) -> None:
    connection = await server.connect()
    lines = [
        "GET /toy/page HTTP/1.1",
        "Host: localhost",
        f"{name}: localhost",
        f"{name}: b",
        "",
        "",
    ]
    await connection.send("\r\n".join(lines).encode())
    answer = await connection.answer()
    assert answer.status == 400
    assert answer.error["message"] == f"the header {name.lower()} is given twice"


async def test_other_headers_may_be_repeated(server: Toy) -> None:
    connection = await server.connect()
    await connection.send(
        b"GET /toy/page HTTP/1.1\r\nHost: localhost\r\nAccept: a\r\nAccept: b\r\n\r\n"
    )
    assert (await connection.answer()).status == 200


async def test_a_principal_has_its_rate_and_others_have_theirs(tmp_path: Path) -> None:
    store = KeyStore(str(tmp_path))
    (_, one), (_, two) = store.create("one", "viewer"), store.create("two", "viewer")
    async with toy(tmp_path, Limits(rate_per_minute=3)) as server:
        statuses = [
            (await server.ask("GET", "/toy/page", headers=bearer(one))).status for _ in range(4)
        ]
        assert statuses == [200, 200, 200, 429]
        answer = await server.ask("GET", "/toy/page", headers=bearer(one))
        assert answer.error["type"] == "rate_limit_exceeded"
        assert 1 <= int(answer.headers["retry-after"]) <= 20
        assert (await server.ask("GET", "/toy/page", headers=bearer(two))).status == 200


def test_a_rate_recovers_with_time() -> None:
    now = [0.0]
    rate = RateLimit(Limits(rate_per_minute=60, rate_burst=2), clock=lambda: now[0])
    for at in (0.0, 0.0, 1.0, 100.0, 100.0):
        now[0] = at
        rate.check("a")
    for at in (100.0, 100.9):
        now[0] = at
        with pytest.raises(HttpError, match="60 requests a minute"):
            rate.check("a")
