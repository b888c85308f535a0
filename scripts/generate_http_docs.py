"""Writes the OpenAPI documents and the tables of `docs/http.md` from the tables of routes.

With `--check` it writes nothing, prints the files that are out of date, and exits with 1 if
there are any.
"""

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin

import msgspec

from batten import __version__
from batten.serve.http.errors import STATUS
from batten.serve.http.openapi import Json, body_type, openapi
from batten.serve.http.published import published, published_runner
from batten.serve.http.routing import names
from batten.serve.http.runner.surface import ABOUT
from batten.serve.http.table import Route, Surface

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "schemas" / "openapi.json"
RUNNER_DOCUMENT = ROOT / "schemas" / "runner-openapi.json"
PAGE = ROOT / "docs" / "http.md"
BEGIN, END = "<!-- routes: generated -->", "<!-- /routes -->"
RUNNER_BEGIN, RUNNER_END = "<!-- routes of a runner: generated -->", "<!-- /routes of a runner -->"
HEAD = (
    "| route | what it does | scope | body | answer | errors of its own |\n"
    "|---|---|---|---|---|---|\n"
)


def generated() -> dict[Path, bytes]:
    page = PAGE.read_text("utf-8")
    page = _with(page, BEGIN, tables(published()), END)
    page = _with(page, RUNNER_BEGIN, tables(published_runner()), RUNNER_END)
    return {
        DOCUMENT: _indented(openapi(published(), __version__)),
        RUNNER_DOCUMENT: _indented(openapi(published_runner(), __version__, ABOUT)),
        PAGE: page.encode(),
    }


def _indented(document: Json) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _with(page: str, begin: str, text: str, end: str) -> str:
    """The page with another text between two marks."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{text}\n{end}{rest.partition(end)[2]}"


def stale() -> list[Path]:
    """Committed files that differ from the generated ones."""
    return [
        path
        for path, body in generated().items()
        if not path.is_file() or path.read_bytes() != body
    ]


def tables(surfaces: Iterable[Surface]) -> str:
    """One table for each tag."""
    rows = [(route, surface) for surface in surfaces for route in surface.routes]
    sections = [
        f"### {tag}\n\n{HEAD}{''.join(_row(route, surface) for route, surface in found)}"
        for tag, found in groupby(rows, key=lambda row: row[0].tag)
    ]
    return "\n".join(sections)


def _row(route: Route, surface: Surface) -> str:
    body = _type(body_type(route)) + (", optional" if route.body_optional else "")
    answer = "" if route.status == 200 else f"{route.status} "
    answer += _type(route.reply) or ("" if route.status == 204 else route.content_type)
    if route.streams:
        answer = "a stream" if route.reply is None else f"{answer} or a stream"
    own = {*route.errors}
    if names(route.path):
        own.add("not_found")
    ordered = sorted(own, key=lambda code: (STATUS[code], code))
    told = surface.error_names
    codes = ", ".join(f"{STATUS[code]} `{told.get(code, code)}`" for code in ordered)
    query = ""
    if route.query is not None:
        fields = msgspec.structs.fields(route.query)
        query = "<br>query: " + ", ".join(f"`{field.encode_name}`" for field in fields)
    return (
        f"| `{route.method} {route.path}`{query} | {route.summary} | {route.scope} | {body}"
        f" | {answer.strip()} | {codes} |\n"
    )


def _type(type_: object) -> str:
    match type_:
        case None:
            return ""
        case type() if type_ is bytes:
            return "bytes"
        case type():
            return f"`{type_.__name__}`"
        case _ if get_origin(type_) is Union:
            return f"one of {len(get_args(type_))} types"
        case UnionType():
            return " or ".join(_type(one) for one in get_args(type_))
        case _:
            return f"`{type_}`"


def main(arguments: list[str]) -> int:
    outdated = stale()
    if arguments == ["--check"]:
        sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in outdated)
        return 1 if outdated else 0
    files = generated()
    for path in outdated:
        path.write_bytes(files[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
