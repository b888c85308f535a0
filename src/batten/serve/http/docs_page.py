"""The page at `/docs`: the OpenAPI document as HTML, without scripts and without other servers."""

from collections.abc import Iterable
from html import escape
from typing import Any

import msgspec

from batten.serve.http.openapi import Json

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
"""What the page may load: nothing. And it stands in no frame."""

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
summary { cursor: pointer; padding: .25rem 0; }
details details, .inside { margin-left: 1.5rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; background: #8881; border-radius: 4px; }
table { border-collapse: collapse; margin: .5rem 0; }
td, th { text-align: left; vertical-align: top; padding: .15rem 1rem .15rem 0; }
b.method { display: inline-block; width: 4.5rem; }
.scope { opacity: .65; font-size: 13px; }
"""


def docs_page(document: Json) -> str:
    """The whole page."""
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            shown = _operation(method.upper(), path, operation)
            by_tag.setdefault(operation["tags"][0], []).append(shown)
    routes = "".join(
        f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in by_tag.items()
    )
    types = "".join(
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"{_json(schema)}</details>"
        for name, schema in sorted(document["components"]["schemas"].items())
    )
    title = escape(info["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style><h1>{title} {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])} The same as "
        f'<a href="/docs-json">OpenAPI {escape(document["openapi"])}</a>.</p>'
        f"{routes}<h2>Types</h2>{types}</html>"
    )


def _operation(method: str, path: str, operation: Json) -> str:
    rows = [
        (parameter["name"], parameter["in"], _type(parameter["schema"]))
        for parameter in operation["parameters"]
    ]
    body = operation.get("requestBody")
    if body is not None:
        rows += [
            (
                "body" if body["required"] else "body, optional",
                kind,
                _type(content.get("schema", {})),
            )
            for kind, content in body["content"].items()
        ]
    answers = [
        (status, answer["description"].replace("`", ""), _answer(answer))
        for status, answer in operation["responses"].items()
    ]
    about = operation.get("description", "")
    return (
        f'<details><summary><b class="method">{method}</b><code>{escape(path)}</code> '
        f'{escape(operation["summary"])} <span class="scope">{escape(operation["x-scope"])}</span>'
        f'</summary><div class="inside">{f"<p>{escape(about)}</p>" if about else ""}'
        f"{_table(rows)}{_table(answers)}</div></details>"
    )


def _answer(answer: Json) -> str:
    return ", ".join(
        f"{escape(kind)} {_type(content.get('schema', {}))}"
        for kind, content in answer.get("content", {}).items()
    )


def _table(rows: Iterable[tuple[str, str, str]]) -> str:
    """Two plain cells a row, and one of HTML."""
    lines = "".join(
        f"<tr><td><code>{escape(first)}</code></td><td>{escape(second)}</td><td>{third}</td></tr>"
        for first, second, third in rows
    )
    return f"<table>{lines}</table>" if lines else ""


def _type(schema: Json) -> str:
    """A reference as a link, anything else as JSON on one line."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}"><code>{name}</code></a>'
    return f"<code>{escape(msgspec.json.encode(schema).decode())}</code>" if schema else ""


def _json(value: Any) -> str:
    return (
        f"<pre>{escape(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())}</pre>"
    )
