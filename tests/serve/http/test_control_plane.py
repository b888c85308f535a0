"""The control plane's paths: their documented refusals, and bugs that tell nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batten.contract.errors import NotFound, StoreFull
from batten.protocols.macp.errors import STATUSES, ErrorBody
from batten.serve.http.app import App
from batten.serve.http.control_plane import CONTROL_CODES, ControlPlaneEdge, control_error
from batten.serve.http.openapi import openapi
from batten.serve.http.published import published
from batten.serve.http.server import ServeOptions, open_server
from batten.serve.http.table import Call, Route, Stream, Surface
from batten.settings.control_plane import ControlPlaneSettings
from tests.serve.http.wire import clients

PLANE = [surface for surface in published() if surface.error is control_error]
DOCUMENT: dict[str, Any] = openapi(published(), "1")


def test_every_refusal_of_the_edge_is_documented_with_its_shape_and_code() -> None:
    assert {surface.prefix for surface in PLANE} >= {"/runs", "/webhooks", "/audit"}
    schema = {"$ref": "#/components/schemas/ErrorBody"}
    for surface in PLANE:
        assert surface.error_reply is ErrorBody
        for route in surface.routes:
            told = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]
            wanted = {"400": "VALIDATION_ERROR", "401": "UNAUTHENTICATED", "429": "RATE_LIMITED"}
            wanted |= {"403": "FORBIDDEN", "500": "INTERNAL_ERROR"}
            if route.body is not None:
                wanted["413"] = "PAYLOAD_TOO_LARGE"
            for status, code in wanted.items():
                assert f"`{code}`" in told[status]["description"], (route.path, status)
                shown = told[status]["content"]["application/json"]["schema"]
                assert schema in (shown, *shown.get("anyOf", ()))


def test_every_code_of_the_service_has_one_of_the_control_plane() -> None:
    assert set(CONTROL_CODES.values()) <= set(STATUSES)


async def fail(call: Call) -> Any:
    match call.params["how"]:
        case "full":
            raise StoreFull("/home/secret/journal.db: no room")
        case "missing":
            raise NotFound("no run here", code="RUN_NOT_FOUND")
        case "stream":
            return Stream(broken())
        case _:
            raise ZeroDivisionError("a secret of the code")


async def broken() -> AsyncIterator[bytes]:
    yield b"data: 1\n\n"
    raise ZeroDivisionError("a secret of the code")


@pytest.mark.parametrize(
    ("how", "status", "code", "message"),
    [
        ("bug", 500, "INTERNAL_ERROR", "Internal server error"),
        ("full", 503, "INTERNAL_ERROR", None),
        ("missing", 404, "RUN_NOT_FOUND", "no run here"),
    ],
)
async def test_a_failure_tells_no_more_than_its_code(
    tmp_path: Path, how: str, status: int, code: str, message: str | None
) -> None:
    route = Route(method="GET", path="/runs/{how}", handler=fail, summary="x", tag="x")
    edge = ControlPlaneEdge(ControlPlaneSettings())
    surface = Surface(name="x", prefix="/runs", routes=(route,), error=control_error, edge=edge)
    options = ServeOptions(home=str(tmp_path), port=0)
    async with open_server(App([surface]), options) as server, clients() as opened:
        connection = await opened.connect_to(server.url)
        answer = await connection.ask("GET", f"/runs/{how}")
        assert answer.status == answer.json["statusCode"] == status
        assert answer.json.keys() == {"statusCode", "errorCode", "message"}
        assert answer.json["errorCode"] == code
        assert message is None or answer.json["message"] == message
        assert b"secret" not in answer.body
        # A refusal after the checks still says what is left.
        assert answer.headers["x-ratelimit-remaining"] == "99"
        broke = await connection.ask("GET", "/runs/stream")
        assert b"INTERNAL_ERROR" in broke.body
        assert b"secret" not in broke.body
