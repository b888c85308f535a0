"""The table documents itself: OpenAPI, the page, the files in the repository."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from batten.serve.http.app import App
from batten.serve.http.docs_page import docs_page
from batten.serve.http.errors import STATUS
from batten.serve.http.limits import Limits
from batten.serve.http.metrics import Metrics
from batten.serve.http.openapi import openapi
from batten.serve.http.published import published, published_runner
from batten.serve.http.server import ServeOptions, open_server
from batten.serve.http.system import System, with_system
from batten.serve.http.table import Surface
from tests.serve.http.toy import Boxes, surfaces
from tests.serve.http.wire import Toy, clients

ROOT = Path(__file__).resolve().parents[3]
TOY = openapi(surfaces(Boxes()), "1")

_READING = frozenset(
    (
        *("POST /runs/compare", "POST /runs/batch/export", "POST /runs/{id}/replay"),
        *(f"POST /runs/{{id}}/{name}" for name in ("messages", "signal", "context")),
    )
)
"""Routes that change nothing, although they have a body."""


def test_the_committed_files_are_those_of_the_table() -> None:
    command = [sys.executable, "-m", "scripts.generate_http_docs", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (checked.stdout, checked.stderr, checked.returncode) == ("", "", 0)


def references(document: dict[str, Any]) -> set[str]:
    """The names of all schemas that a document refers to."""
    found = re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', to_text(document))
    return set(found)


def to_text(document: dict[str, Any]) -> str:
    return msgspec.json.encode(document).decode()


@pytest.mark.parametrize(
    "document",
    [TOY, openapi(published(), "1"), openapi(published_runner(), "1")],
    ids=["toy", "published", "runner"],
)
def test_every_reference_leads_to_a_valid_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    used = references(document)
    assert used
    assert used <= set(schemas)
    for name in schemas:
        jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", **document})


@pytest.mark.parametrize("surface", published(), ids=lambda surface: surface.name)
def test_a_published_route_is_complete(surface: Surface) -> None:
    check_routes(surface)
    for route in surface.routes:
        is_open = route.path in ("/healthz", "/readyz", "/metrics")
        assert (route.scope == "public") == is_open
        is_reading = route.method == "GET" or f"{route.method} {route.path}" in _READING
        is_gone = route.status == 410
        assert is_reading or is_gone or route.scope in ("operator", "admin")


@pytest.mark.parametrize("surface", published_runner(), ids=lambda surface: surface.name)
def test_a_published_route_of_a_runner_is_complete(surface: Surface) -> None:
    check_routes(surface)
    for route in surface.routes:
        is_open = route.path.startswith("/.well-known/") or route.path in ("/healthz", "/readyz")
        assert (route.scope == "public") == is_open


def check_routes(surface: Surface) -> None:
    for route in surface.routes:
        assert route.path.startswith(surface.prefix)
        assert route.summary
        assert route.tag
        assert set(route.errors) <= set(STATUS)


def test_other_successes_forms_and_headers_of_artifacts_are_documented() -> None:
    paths = openapi(published(), "1")["paths"]
    create = paths["/hecate/v1/artifacts"]["post"]
    assert {"200", "201", "409"} <= set(create["responses"])
    answers = [create["responses"][status]["content"] for status in ("200", "201")]
    assert answers[0] == answers[1]
    assert set(create["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    raw = paths["/hecate/v1/artifacts/{artifact_id}/raw"]["get"]
    assert {"200", "206", "304", "416"} <= set(raw["responses"])
    assert "content" not in raw["responses"]["304"]
    named = [one["name"] for one in raw["parameters"] if one["in"] == "header"]
    assert named == ["Range", "If-Range", "If-None-Match"]


def test_an_operation_says_what_a_route_takes_and_gives() -> None:
    page = TOY["paths"]["/toy/boxes/{box}/notes/{note_id}"]["get"]
    shown = [(one["name"], one["in"], one["required"]) for one in page["parameters"]]
    assert shown == [
        ("box", "path", True),
        ("note_id", "path", True),
        ("limit", "query", False),
        ("after", "query", False),
        ("tag", "query", False),
    ]
    assert page["parameters"][2]["schema"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 500,
        "default": 50,
    }
    create = TOY["paths"]["/toy/notes"]["post"]
    assert create["requestBody"] == {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewNote"}}},
    }
    reply = {"schema": {"$ref": "#/components/schemas/NoteObject"}}
    assert create["responses"]["200"]["content"] == {"application/json": reply}
    assert set(create["responses"]) == {
        *("200", "400", "401", "403", "408", "413", "415", "429", "431", "500", "503")
    }
    assert create["x-scope"] == "operator"
    assert "security" not in TOY["paths"]["/open"]["get"]
    stream = TOY["paths"]["/toy/follow"]["get"]["responses"]
    assert list(stream["200"]["content"]) == ["text/event-stream"]


@pytest.mark.parametrize("surfaces", [published(), published_runner()], ids=["service", "runner"])
def test_operations_have_names_of_their_own(surfaces: tuple[Surface, ...]) -> None:
    document = openapi(surfaces, "1")
    found = [
        operation["operationId"]
        for operations in document["paths"].values()
        for operation in operations.values()
    ]
    assert len(found) == len(set(found)) == sum(len(one.routes) for one in surfaces)


class Loading(HTMLParser):
    """Collects what a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "link", "img", "iframe") or "src" in values:
            self.found.append(tag)
        self.ids.add(values.get("id") or "")
        if tag == "a":
            self.links.add(values.get("href") or "")


def test_the_page_loads_nothing_and_its_links_lead_somewhere() -> None:
    page = Loading()
    page.feed(docs_page(openapi(published(), "1")))
    assert page.found == []
    assert page.links <= {"/docs-json", *(f"#{one}" for one in page.ids)}


def test_the_page_escapes_what_the_table_says() -> None:
    document = msgspec.json.decode(msgspec.json.encode(TOY))
    document["info"]["title"] = "<script>"
    assert "<script>" not in docs_page(document)


async def test_the_routes_of_the_server_itself(tmp_path: Path) -> None:
    problems = {"store": "", "workers": ""}

    async def store() -> str:
        return problems["store"]

    async def workers() -> str:
        return problems["workers"]

    metrics = Metrics()
    system = System(
        version="1.2.3",
        metrics=metrics,
        checks={"store": store, "workers": workers},
        sandbox={"os_isolation": {"kind": "bwrap"}},
    )
    boxes = Boxes()
    app = App(with_system(surfaces(boxes), system), limits=Limits(), metrics=metrics)
    options = ServeOptions(home=str(tmp_path), port=0)
    async with open_server(app, options) as running, clients() as opened:
        server = Toy(app, boxes, running, tmp_path, opened)
        health = (await server.ask("GET", "/healthz")).json
        assert health.pop("time").endswith("Z")
        assert health == {
            "status": "ok",
            "ok": True,
            "service": "macp-control-plane",
            "version": "1.2.3",
            "sandbox": {"os_isolation": {"kind": "bwrap"}},
        }
        ready = await server.ask("GET", "/readyz")
        checks = {"store": "ok", "workers": "ok"}
        assert ready.json == {"status": "ready", "ok": True, "checks": checks}
        problems["workers"] = "none is alive"
        ready = await server.ask("GET", "/readyz")
        assert (ready.status, ready.error["message"]) == (503, "workers: none is alive")
        assert ready.error["checks"] == {"store": "ok", "workers": "none is alive"}
        document = (await server.ask("GET", "/docs-json")).json
        assert document == openapi(app.surfaces, "1.2.3")
        page = await server.ask("GET", "/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert b"/toy/notes/{note_id}" in page.body


async def test_metrics_count_by_the_routes_of_the_table(server: Toy) -> None:
    for note in ("a", "b", "c"):
        await server.ask("GET", f"/toy/notes/{note}")
    await server.ask("GET", "/nowhere/1")
    await server.ask("GET", "/nowhere/2")
    await server.ask("PURGE", "/nowhere/3")
    lines = server.app.metrics.text().splitlines()
    counted = [line for line in lines if line.startswith("batten_http_requests_total")]
    assert counted == [
        'batten_http_requests_total{method="GET",route="/toy/notes/{note_id}",status="404"} 3',
        'batten_http_requests_total{method="other",route="other",status="404"} 3',
    ]
    route = 'method="GET",route="/toy/notes/{note_id}"'
    assert f'batten_http_request_seconds_bucket{{{route},le="+Inf"}} 3' in lines
    assert f"batten_http_request_seconds_count{{{route}}} 3" in lines
    assert "batten_http_streams 0" in lines
    for line in lines:
        if line.startswith("# TYPE"):
            assert line.split()[3] in ("counter", "gauge", "histogram")


def test_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.gauge("batten_x", "X.", lambda: {(("name", 'a"b\\c\nd'),): 1})
    assert metrics.text().splitlines()[-1] == 'batten_x{name="a\\"b\\\\c\\nd"} 1'
