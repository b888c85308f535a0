"""The table as an OpenAPI 3.1 document."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from batten.serve.http.errors import STATUS, HecateErrorReply
from batten.serve.http.field_notes import describe_fields
from batten.serve.http.routing import names
from batten.serve.http.table import Route, Surface

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_ALWAYS = (
    *("invalid_request", "forbidden", "internal_error"),
    *("overloaded", "request_timeout", "store_busy", "store_full"),
)
_WITH_KEY = ("unauthorized", "rate_limit_exceeded")
_WITH_BODY = ("request_body_timeout", "request_too_large")
_WITH_JSON = ("unsupported_media_type",)
_EVENT: Json = {
    "type": "object",
    "description": "One server-sent event of the stream, by its fields.",
    "properties": {
        "id": {"type": "string", "description": "For `Last-Event-ID`."},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["data"],
}


class About(Struct, frozen=True, kw_only=True):
    """What a document describes."""

    title: str = "Batten"
    text: str = "Agent runs over HTTP: create, follow, steer and inspect them."
    key_header: str = "X-Api-Key"
    """Takes a key, as `Authorization: Bearer` does."""


SERVICE = About()


def openapi(surfaces: Iterable[Surface], version: str, about: About = SERVICE) -> Json:
    """The document of all surfaces."""
    rows = [(surface, route) for surface in surfaces for route in surface.routes]
    schemas = _Schemas(rows)
    paths: dict[str, Json] = {}
    for surface, route in rows:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(surface, route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": version,
            "description": about.text,
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": about.key_header},
            },
        },
    }


def error_codes(route: Route) -> list[str]:
    """All codes that a route may answer with, by status."""
    codes = {*_ALWAYS, *route.errors}
    if route.scope != "public":
        codes |= set(_WITH_KEY)
    if route.body is not None:
        codes |= set(_WITH_BODY)
        if route.body is not bytes:
            codes |= set(_WITH_JSON)
    if names(route.path):
        codes.add("not_found")
    return sorted(codes, key=lambda code: (STATUS[code], code))


class _Schemas:
    """JSON Schemas of every type in the table; the named ones are components."""

    def __init__(self, rows: list[tuple[Surface, Route]]) -> None:
        types: list[Any] = []
        for surface, route in rows:
            others = (type_ for _, type_ in (*route.other_replies, *route.parts))
            errors = (surface.error_reply, HecateErrorReply)
            found = (route.query, route.reply, *errors, body_type(route), *others)
            types += [one for one in found if one not in (None, bytes)]
        # Types such as `dict[str, int]` cannot be told apart by identity.
        self._places: dict[str, int] = {}
        unique: list[Any] = []
        for one in types:
            if repr(one) not in self._places:
                self._places[repr(one)] = len(unique)
                unique.append(one)
        self._schemas, self.components = msgspec.json.schema_components(unique, ref_template=_REF)
        describe_fields(self.components, unique)

    def of(self, type_: Any) -> Json:
        return self._schemas[self._places[repr(type_)]]

    def resolved(self, type_: type[Struct]) -> Json:
        """The schema itself, in place of a reference to it."""
        schema = self.of(type_)
        if "$ref" in schema:
            found: Json = self.components[schema["$ref"].rpartition("/")[2]]
            return found
        return schema


def _operation(surface: Surface, route: Route, schemas: _Schemas) -> Json:
    operation: Json = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.tag or surface.name],
        "parameters": _parameters(route, schemas),
        "responses": _responses(surface, route, schemas),
        "x-scope": route.scope,
    }
    if route.description:
        operation["description"] = route.description
    if route.body is not None:
        operation["requestBody"] = _body(route, schemas)
    if route.scope != "public":
        # The empty one: without any key, a server on loopback wants none.
        operation["security"] = [{"bearer": []}, {"key": []}, {}]
    return operation


def _operation_id(route: Route) -> str:
    words = (word.strip("{}").replace("-", "_").strip(".") for word in route.path.split("/"))
    return "_".join([route.method.lower(), *(word for word in words if word)])


def _parameters(route: Route, schemas: _Schemas) -> list[Json]:
    found: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names(route.path)
    ]
    if route.query is not None:
        schema = schemas.resolved(route.query)
        required = schema.get("required", ())
        for name, property_ in schema.get("properties", {}).items():
            parameter: Json = {
                "name": name,
                "in": "query",
                "required": name in required,
                "schema": property_,
            }
            if "description" in property_:
                parameter["description"] = property_["description"]
            found.append(parameter)
    for name, about in route.headers:
        header: Json = {"name": name, "in": "header", "required": False, "description": about}
        found.append({**header, "schema": {"type": "string"}})
    return found


def body_type(route: Route) -> Any:
    """The type of a route's body, as it is documented."""
    return route.body if route.body_type is None else route.body_type


def _body(route: Route, schemas: _Schemas) -> Json:
    type_ = body_type(route)
    if type_ is bytes:
        content: Json = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
    else:
        content = {"application/json": {"schema": schemas.of(type_)}}
    if route.parts:
        content["multipart/form-data"] = {"schema": _form(route, schemas)}
    return {"required": not route.body_optional, "content": content}


def _form(route: Route, schemas: _Schemas) -> Json:
    parts = {name: _content(type_, schemas) for name, type_ in route.parts}
    return {"type": "object", "properties": parts, "required": list(parts)}


def _content(type_: Any, schemas: _Schemas) -> Json:
    return {"type": "string", "format": "binary"} if type_ is bytes else schemas.of(type_)


def _responses(surface: Surface, route: Route, schemas: _Schemas) -> Json:
    content: Json = {}
    if route.reply is not None:
        if route.reply is bytes:
            content[route.content_type] = {"schema": {"type": "string"}}
        else:
            content[route.content_type] = {"schema": schemas.of(route.reply)}
    elif route.status != 204 and not route.streams:
        content[route.content_type] = {}
    content |= {one: {"schema": {"type": "string"}} for one in route.other_content}
    if route.streams:
        content["text/event-stream"] = {"schema": _EVENT}
    headers = {"X-Request-Id": {"schema": {"type": "string"}}}
    success: Json = {"description": HTTPStatus(route.status).phrase, "headers": headers}
    if content:
        success["content"] = content
    responses: Json = {str(route.status): success}
    if route.streams:
        responses["204"] = {"description": "The stream has ended; a reader need not come back."}
    by_status: dict[int, list[str]] = {}
    for code in error_codes(route):
        name = surface.error_names.get(code, code)
        by_status.setdefault(STATUS[code], []).append(f"`{name}`")
    for status, codes in by_status.items():
        told = [type_ for one, type_ in route.other_replies if one == status]
        shapes = [schemas.of(type_) for type_ in (surface.error_reply, *told)]
        responses[str(status)] = {
            "description": ", ".join(codes),
            "headers": headers,
            "content": {
                "application/json": {"schema": {"anyOf": shapes} if told else shapes[0]},
            },
        }
    for status, type_ in route.other_replies:
        if str(status) not in responses:
            other: Json = {"description": HTTPStatus(status).phrase, "headers": headers}
            if type_ is not None:
                other["content"] = {route.content_type: {"schema": _content(type_, schemas)}}
            responses[str(status)] = other
    # Before a path is known, so in one shape for all surfaces.
    responses["431"] = {
        "description": "The request line and headers are too long.",
        "headers": headers,
        "content": {"application/json": {"schema": schemas.of(HecateErrorReply)}},
    }
    return responses
