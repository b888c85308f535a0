"""Lines that are not requests: each is answered, and the next one is read."""

from batten.conformance import lines
from batten.conformance.bench import Bench
from batten.conformance.check import Json, check, equal, expect, fields
from batten.conformance.heddle.worker import Worker, init, refusal, status

_ERRORS = "Error Envelope"
_UNKNOWN = b'{"type":"dance","id":"d-1"}'


async def _refused(bench: Bench, line: bytes) -> Json:
    """The error result that answers a line before the first request."""
    worker = await Worker.start(bench)
    await worker.subject.write(line + b"\n")
    refused = await worker.subject.hear("an error result")
    equal(refused.get("type"), "result", "type")
    fields(refused, id=str)
    refusal(refused, "protocol_error")
    await worker.open()
    return refused


@check("heddle.lines.invalid_json", _ERRORS)
async def invalid_json(bench: Bench) -> None:
    """A line that is not JSON is answered with protocol_error, and the next request is served."""
    await _refused(bench, lines.GARBAGE)


@check("heddle.lines.nobody", _ERRORS, level="should")
async def nobody(bench: Bench) -> None:
    """The answer to a line whose id cannot be read has the id unknown."""
    for line in (lines.GARBAGE, lines.NOT_OBJECT, b'{"type":"status"}'):
        equal((await _refused(bench, line)).get("id"), "unknown", "id")


@check("heddle.lines.no_object", _ERRORS)
async def no_object(bench: Bench) -> None:
    """A JSON value that is not an object is answered with protocol_error."""
    await _refused(bench, lines.NOT_OBJECT)


@check("heddle.lines.no_type", _ERRORS)
async def no_type(bench: Bench) -> None:
    """A request without a type is answered with protocol_error."""
    await _refused(bench, b'{"id":"x"}')


@check("heddle.lines.no_id", _ERRORS)
async def no_id(bench: Bench) -> None:
    """A request without an id is answered with protocol_error."""
    await _refused(bench, b'{"type":"status"}')


@check("heddle.lines.unknown_type", _ERRORS)
async def unknown_type(bench: Bench) -> None:
    """A request of an unknown type is answered with protocol_error."""
    await _refused(bench, _UNKNOWN)


@check("heddle.lines.unknown_type_id", _ERRORS, level="should")
async def unknown_type_id(bench: Bench) -> None:
    """The answer to a request of an unknown type has its id, and names the type."""
    refused = await _refused(bench, _UNKNOWN)
    equal(refused.get("id"), "d-1", "id")
    expect("dance" in refused["error"]["message"], f"it does not name the type: {refused}")


@Worker.check("heddle.lines.missing_field", _ERRORS)
async def missing_field(worker: Worker) -> None:
    """A send without a message is answered with protocol_error, and the session goes on."""
    await worker.subject.say({"type": "send", "id": "s"})
    refusal(await worker.subject.hear("an error result"), "protocol_error")
    await worker.alive()


@Worker.check("heddle.lines.invalid_utf8", _ERRORS, greets=False)
async def invalid_utf8(worker: Worker) -> None:
    """A line that is not UTF-8 is answered, and the next request is served."""
    await worker.subject.write(lines.INVALID_UTF8 + b"\n")
    refusal(await worker.subject.hear("an error result"), "protocol_error")
    await worker.open()


@check("heddle.lines.deep_nesting", _ERRORS)
async def deep_nesting(bench: Bench) -> None:
    """A line nested a hundred thousand deep is answered with protocol_error, and no crash."""
    await _refused(bench, lines.DEEP)


@Worker.check("heddle.lines.long", _ERRORS, level="should")
async def long(worker: Worker) -> None:
    """A line of 20 MiB is served or refused; either way the next request is served."""
    await worker.subject.say({**status("long"), "padding": "x" * lines.LONG_BYTES})
    answered = await worker.subject.hear("an answer to the long line")
    if answered.get("type") != "status_ok":
        refusal(answered, "protocol_error")
    await worker.alive()


@Worker.check("heddle.lines.pieces", "Protocol Overview", greets=False)
async def pieces(worker: Worker) -> None:
    """A request that arrives in pieces is one request."""
    for piece in (b'{"type":"stat', b'us","id":"x', b'"}\n'):
        await worker.subject.write(piece)
    await worker.refused("x")
    await worker.open()


@Worker.check("heddle.lines.together", "Protocol Overview", greets=False)
async def together(worker: Worker) -> None:
    """Requests that arrive together are answered in their order, each with its id."""
    ids = [f"n{number}" for number in range(20)]
    await worker.subject.say(init(), *map(status, ids), {"type": "shutdown", "id": "bye"})
    await worker.answer("init_ok", "i")
    for request_id in ids:
        await worker.answer("status_ok", request_id)
    await worker.answer("shutdown_ok", "bye")
