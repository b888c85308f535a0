"""A small surface of its own: boxes with notes, to test the kit without tasks and runs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from batten.contract.errors import Conflict, NotFound, StoreFull
from batten.serve.http.docs_page import POLICY
from batten.serve.http.errors import HttpError, Problem
from batten.serve.http.table import Call, Download, Reply, Route, Stream, Surface


class Note(Struct, frozen=True):
    """A text in a box."""

    id: str
    text: str
    by: str


class NoteObject(Struct, frozen=True):
    data: Note
    object: Literal["note"] = "note"


class NewNote(Struct, frozen=True):
    text: Annotated[str, Meta(min_length=1, max_length=100)]
    colour: Literal["red", "blue"] = "red"
    size: int = 1


class Page(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    after: int | None = None
    tag: list[str] = []


class Close(Struct, frozen=True):
    reason: str = ""


class Boxes:
    """The service object of the toy."""

    def __init__(self) -> None:
        self.notes: dict[str, Note] = {}
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.closed: asyncio.Queue[None] = asyncio.Queue()
        """One for each source that was closed."""
        self.frames: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()


async def create(call: Call) -> NoteObject:
    boxes: Boxes = call.service
    new: NewNote = call.body
    note = Note(f"note_{len(boxes.notes)}", new.text, call.principal.name)
    boxes.notes[note.id] = note
    return NoteObject(note)


async def read(call: Call) -> NoteObject:
    boxes: Boxes = call.service
    note = boxes.notes.get(call.params["note_id"])
    if note is None:
        raise NotFound(f"there is no note {call.params['note_id']}")
    return NoteObject(note)


async def echo(call: Call) -> dict[str, Any]:
    return {
        "params": call.params,
        "query": call.query,
        "body": call.body,
        "principal": call.principal.name,
        "request_id": call.request_id,
    }


async def size(call: Call) -> dict[str, int]:
    return {"bytes": len(call.body)}


async def delete(call: Call) -> Reply:
    return Reply(status=204)


async def fail(call: Call) -> None:
    match call.params["how"]:
        case "conflict":
            raise Conflict("the box is open")
        case "full":
            raise StoreFull("no room on the disk")
        case "own":
            raise HttpError("quota_exceeded", "the box is full", fields={"type": "x", "most": 3})
        case _:
            raise ZeroDivisionError("a secret of the code")


async def large(call: Call) -> Reply:
    return Reply(b"x" * (64 << 20), content_type="text/plain")


async def split(call: Call) -> Reply:
    return Reply(b"", headers=(("x-split", "a\r\nset-cookie: b"),))


async def kept(call: Call) -> Reply:
    policy = ("content-security-policy", POLICY)
    return Reply({}, headers=(("cache-control", "private, no-cache"), policy))


async def download(call: Call) -> Download:
    """1000 bytes, of which the head says something else; or bytes without end."""
    how = call.params["how"]
    size = {"short": 2000, "long": 500, "exact": 1000}.get(how)
    return Download(source=_pieces(call.service, is_endless=how == "endless"), size=size)


async def _pieces(boxes: Boxes, *, is_endless: bool) -> AsyncIterator[bytes]:
    try:
        yield b"x" * 1000
        while is_endless:
            yield b"x" * 60_000
    finally:
        boxes.closed.put_nowait(None)


async def wait(call: Call) -> dict[str, bool]:
    boxes: Boxes = call.service
    boxes.began.set()
    await boxes.go_on.wait()
    return {"waited": True}


async def follow(call: Call) -> Stream | Reply:
    boxes: Boxes = call.service
    if call.last_event_id == "end":
        return Reply(status=204)
    return Stream(_frames(boxes), first=b": ok\n\n")


async def _frames(boxes: Boxes) -> AsyncIterator[bytes]:
    try:
        boxes.began.set()
        while (frame := await boxes.frames.get()) is not None:
            if isinstance(frame, Exception):
                raise frame
            yield frame
    finally:
        boxes.closed.put_nowait(None)


async def flood(call: Call) -> Stream:
    boxes: Boxes = call.service
    return Stream(_flood(boxes))


async def _flood(boxes: Boxes) -> AsyncIterator[bytes]:
    try:
        while True:
            yield b"data: " + b"x" * 60_000 + b"\n\n"
    finally:
        boxes.closed.put_nowait(None)


def plain_error(problem: Problem) -> dict[str, Any]:
    """Another shape of errors than Hecate's."""
    return {"statusCode": problem.status, "code": problem.code.upper(), "message": problem.message}


def row(method: str, path: str, handler: Any, **more: Any) -> Route:
    return Route(
        method=method, path=path, handler=handler, summary=handler.__name__, tag="", **more
    )


ROUTES = (
    row("POST", "/toy/notes", create, body=NewNote, reply=NoteObject, scope="operator"),
    row("GET", "/toy/notes/{note_id}", read, reply=NoteObject, errors=("not_found",)),
    row("DELETE", "/toy/notes/{note_id}", delete, status=204, scope="admin"),
    row("GET", "/toy/notes/latest", echo),
    row("GET", "/toy/boxes/{box}/notes/{note_id}", echo, query=Page),
    row("GET", "/toy/page", echo, query=Page),
    row("POST", "/toy/close", echo, body=Close, body_optional=True),
    row("POST", "/toy/any", echo, body=dict[str, Any]),
    row("PUT", "/toy/raw", size, body=bytes, max_body=1000),
    row("GET", "/toy/fail/{how}", fail),
    row("GET", "/toy/large", large),
    row("GET", "/toy/split", split),
    row("GET", "/toy/kept", kept),
    row("GET", "/toy/download/{how}", download),
    row("GET", "/toy/wait", wait, timeout_s=0.3),
    row("GET", "/toy/patient", wait),
    row("GET", "/toy/follow", follow, streams=True),
    row("GET", "/toy/flood", flood, streams=True),
    row("GET", "/open", echo, scope="public"),
    row("POST", "/open", echo, scope="public"),
    row("GET", "/page", echo, is_page=True),
)
OTHER = (row("GET", "/other/fail/{how}", fail),)


def surfaces(boxes: Boxes) -> list[Surface]:
    return [
        Surface(name="toy", prefix="/", routes=ROUTES, service=boxes),
        Surface(name="other", prefix="/other", routes=OTHER, service=boxes, error=plain_error),
    ]
