"""Lines that are no requests: each is answered, and the next one is read."""

from batten.conformance import lines
from batten.conformance.bench import Bench
from batten.conformance.check import check, equal, expect
from batten.conformance.heddle.worker import Worker, init, refusal, status

_ERRORS = "Error Envelope"


async def _answered(bench: Bench, line: bytes, request_id: str) -> str:
    """The message with which a line between two requests is refused."""
    worker = await Worker.start(bench)
    await worker.subject.write(line + b"\n")
    refused = await worker.refused(request_id)
    await worker.open()
    return str(refused["error"]["message"])


@check("heddle.lines.invalid_json", _ERRORS)
async def invalid_json(bench: Bench) -> None:
    """A line that is no JSON is answered with protocol_error, and the next request is served."""
    equal(await _answered(bench, lines.GARBAGE, "unknown"), "Invalid JSON", "error.message")


@check("heddle.lines.no_object", _ERRORS)
async def no_object(bench: Bench) -> None:
    """A JSON value that is no object is answered with protocol_error."""
    await _answered(bench, lines.NOT_OBJECT, "unknown")


@check("heddle.lines.no_type", _ERRORS)
async def no_type(bench: Bench) -> None:
    """A request without a type is answered with protocol_error."""
    await _answered(bench, b'{"id":"x"}', "unknown")


@check("heddle.lines.no_id", _ERRORS)
async def no_id(bench: Bench) -> None:
    """A request without an id is answered with protocol_error."""
    await _answered(bench, b'{"type":"status"}', "unknown")


@check("heddle.lines.unknown_type", _ERRORS)
async def unknown_type(bench: Bench) -> None:
    """A request of an unknown type is answered with protocol_error and its own id."""
    said = await _answered(bench, b'{"type":"dance","id":"d-1"}', "d-1")
    expect("dance" in said, f"the message does not name the type: {said!r}")


@check("heddle.lines.missing_field", _ERRORS)
async def missing_field(bench: Bench) -> None:
    """A send without a message is answered with protocol_error, and the session goes on."""
    worker = await Worker.ready(bench)
    await worker.subject.say({"type": "send", "id": "s"})
    refusal(await worker.subject.hear("an error result"), "protocol_error")
    await worker.alive()


@check("heddle.lines.invalid_utf8", _ERRORS)
async def invalid_utf8(bench: Bench) -> None:
    """A line that is no UTF-8 is answered, and the next request is served."""
    worker = await Worker.start(bench)
    await worker.subject.write(lines.INVALID_UTF8 + b"\n")
    refusal(await worker.subject.hear("an error result"), "protocol_error")
    await worker.open()


@check("heddle.lines.deep_nesting", _ERRORS)
async def deep_nesting(bench: Bench) -> None:
    """A line nested a hundred thousand deep is answered with protocol_error, and no crash."""
    await _answered(bench, lines.DEEP, "unknown")


@check("heddle.lines.long", _ERRORS, level="should")
async def long(bench: Bench) -> None:
    """A line of 20 MiB is served or refused; either way the next request is served."""
    worker = await Worker.ready(bench)
    await worker.subject.say({**status("long"), "padding": "x" * lines.LONG_BYTES})
    answered = await worker.subject.hear("an answer to the long line")
    if answered.get("type") != "status_ok":
        refusal(answered, "protocol_error")
    await worker.alive()


@check("heddle.lines.pieces", "Protocol Overview")
async def pieces(bench: Bench) -> None:
    """A request that arrives in pieces is one request."""
    worker = await Worker.start(bench)
    for piece in (b'{"type":"stat', b'us","id":"x', b'"}\n'):
        await worker.subject.write(piece)
    await worker.refused("x")
    await worker.open()


@check("heddle.lines.together", "Protocol Overview")
async def together(bench: Bench) -> None:
    """Requests that arrive together are answered in their order, each with its id."""
    worker = await Worker.start(bench)
    ids = [f"n{number}" for number in range(20)]
    await worker.subject.say(init(), *map(status, ids), {"type": "shutdown", "id": "bye"})
    await worker.answer("init_ok", "i")
    for request_id in ids:
        await worker.answer("status_ok", request_id)
    await worker.answer("shutdown_ok", "bye")


CHECKS = (
    invalid_json,
    no_object,
    no_type,
    no_id,
    unknown_type,
    missing_field,
    invalid_utf8,
    deep_nesting,
    long,
    pieces,
    together,
)
