"""Lines that are not messages: each is answered with an error that is not fatal."""

from batten.conformance import lines
from batten.conformance.bench import Bench
from batten.conformance.check import check, equal, expect
from batten.conformance.maestro.controller import Controller, hello

_TRANSPORT = "Transport rules"
_ERRORS = "error"


async def _refused(bench: Bench, line: bytes) -> None:
    controller = await Controller.ready(bench)
    await controller.subject.write(line + b"\n")
    equal((await controller.refused())["error_type"], "protocol", "error_type")
    await controller.fence()


@check("maestro.lines.invalid_json", _ERRORS)
async def invalid_json(bench: Bench) -> None:
    """A line that is not JSON is answered with a protocol error that is not fatal."""
    await _refused(bench, lines.GARBAGE)


@check("maestro.lines.no_object", _ERRORS)
async def no_object(bench: Bench) -> None:
    """A JSON value that is not an object is answered with a protocol error."""
    await _refused(bench, lines.NOT_OBJECT)


@check("maestro.lines.unknown_type", "Compatibility expectations")
async def unknown_type(bench: Bench) -> None:
    """A message of an unknown type is refused, and the next one is served."""
    await _refused(bench, b'{"type":"dance"}')


@check("maestro.lines.missing_field", _ERRORS)
async def missing_field(bench: Bench) -> None:
    """A prompt without content is refused with a protocol error and starts nothing."""
    await _refused(bench, b'{"type":"prompt"}')


@check("maestro.lines.invalid_utf8", _ERRORS)
async def invalid_utf8(bench: Bench) -> None:
    """A line that is not UTF-8 is answered with a protocol error."""
    await _refused(bench, lines.INVALID_UTF8)


@check("maestro.lines.deep_nesting", _ERRORS)
async def deep_nesting(bench: Bench) -> None:
    """A line nested a hundred thousand deep is answered with a protocol error, and no crash."""
    await _refused(bench, lines.DEEP)


@Controller.check("maestro.lines.long", _TRANSPORT, level="should")
async def long(controller: Controller) -> None:
    """A line of 20 MiB is served or refused; either way the next message is served."""
    await controller.say("init", conformance_padding="x" * lines.LONG_BYTES)
    await controller.fence()


@Controller.check("maestro.lines.unknown_fields", "Compatibility expectations", greets=False)
async def unknown_fields(controller: Controller) -> None:
    """Unknown fields are additive: a message that has some is served."""
    await controller.greet({**hello(), "conformance_field": {"a": [1]}})
    expect(not controller.of("error"), f"it was refused: {controller.of('error')[:1]}")


@Controller.check("maestro.lines.pieces", _TRANSPORT, greets=False)
async def pieces(controller: Controller) -> None:
    """A message that arrives in pieces is one message."""
    for piece in (b'{"type":"hel', b'lo","client_info":{"na', b'me":"c"}}\n'):
        await controller.subject.write(piece)
    await controller.until("hello_ok")
    expect(not controller.of("error"), f"it was refused: {controller.of('error')[:1]}")
