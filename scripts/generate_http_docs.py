"""Writes `schemas/openapi.json` and the tables of `docs/http.md` from the table of routes.

With `--check` it writes nothing, prints the files that are out of date, and exits with 1 if
there are any.
"""

import sys
from itertools import groupby
from pathlib import Path

import msgspec

from batten import __version__
from batten.serve.http.errors import STATUS
from batten.serve.http.openapi import openapi
from batten.serve.http.published import published
from batten.serve.http.routing import names
from batten.serve.http.table import Route

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "schemas" / "openapi.json"
PAGE = ROOT / "docs" / "http.md"
BEGIN, END = "<!-- routes: generated -->", "<!-- /routes -->"
HEAD = (
    "| route | what it does | scope | body | answer | errors of its own |\n"
    "|---|---|---|---|---|---|\n"
)


def generated() -> dict[Path, bytes]:
    document = msgspec.json.encode(openapi(published(), __version__))
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return {
        DOCUMENT: msgspec.json.format(document, indent=2) + b"\n",
        PAGE: f"{before}{BEGIN}\n\n{tables()}\n{END}{after}".encode(),
    }


def stale() -> list[Path]:
    """Committed files that differ from the generated ones."""
    return [
        path
        for path, body in generated().items()
        if not path.is_file() or path.read_bytes() != body
    ]


def tables() -> str:
    """One table for each tag."""
    routes = [route for surface in published() for route in surface.routes]
    sections = [
        f"### {tag}\n\n{HEAD}{''.join(_row(route) for route in rows)}"
        for tag, rows in groupby(routes, key=lambda route: route.tag)
    ]
    return "\n".join(sections)


def _row(route: Route) -> str:
    body = _type(route.body) + (", optional" if route.body_optional else "")
    answer = "" if route.status == 200 else f"{route.status} "
    answer += _type(route.reply) or ("" if route.status == 204 else route.content_type)
    if route.streams:
        answer = "a stream" if route.reply is None else f"{answer} or a stream"
    own = {*route.errors}
    if names(route.path):
        own.add("not_found")
    ordered = sorted(own, key=lambda code: (STATUS[code], code))
    codes = ", ".join(f"{STATUS[code]} `{code}`" for code in ordered)
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
