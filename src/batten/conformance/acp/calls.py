"""JSON-RPC: ids, error codes, and lines that are not messages."""

from batten.conformance import lines
from batten.conformance.acp.editor import Editor, failure
from batten.conformance.bench import Bench
from batten.conformance.check import Json, check, equal, expect
from batten.conformance.subject import Subject

_RPC = "JSON-RPC 2.0"
_PARSE, _INVALID, _UNKNOWN, _PARAMS = -32700, -32600, -32601, -32602


async def _answered(bench: Bench, line: bytes) -> Json:
    """The answer to a line that is not a request; then initialize must still work."""
    subject: Subject = await bench.start()
    await subject.write(line + b"\n")
    answer = await subject.hear("an error")
    await Editor(bench, subject).initialize()
    return answer


@Editor.check("acp.rpc.ids", _RPC)
async def ids(editor: Editor) -> None:
    """An answer repeats the id of its request, whether number or text."""
    for request_id in ("a text", 0, 4_000_000_000):
        await editor.send("session/dance", {}, request_id)
        failure(await editor.answer(request_id), _UNKNOWN)


@Editor.check("acp.rpc.unknown_method", _RPC)
async def unknown_method(editor: Editor) -> None:
    """An unknown method is answered with -32601, also one that is an extension."""
    for method in ("session/dance", "_conformance/dance"):
        await editor.refused(method, {}, _UNKNOWN)


@Editor.check("acp.rpc.unknown_notification", "Extensibility")
async def unknown_notification(editor: Editor) -> None:
    """An unknown notification has no answer."""
    before = len(editor.subject.heard)
    await editor.notify("_conformance/thing", {})
    await editor.refused("session/dance", {}, _UNKNOWN)
    answers = [one for one in editor.subject.heard[before:] if "method" not in one]
    equal(len(answers), 1, "the number of answers")


@Editor.check("acp.rpc.invalid_params", _RPC)
async def invalid_params(editor: Editor) -> None:
    """Params that do not fit the method are answered with -32602."""
    await editor.open()
    await editor.refused("session/prompt", {"prompt": "no list"}, _PARAMS)
    await editor.refused("session/new", {"mcpServers": []}, _PARAMS)


@Editor.check("acp.rpc.unknown_answer", _RPC)
async def unknown_answer(editor: Editor) -> None:
    """An answer to a request that was never made is ignored."""
    await editor.reply({"id": 987}, {})
    await editor.open()


@check("acp.rpc.parse_error", _RPC, level="should")
async def parse_error(bench: Bench) -> None:
    """A line that is not JSON is answered with -32700, and the next message is served."""
    failure(await _answered(bench, lines.GARBAGE), _PARSE)


@check("acp.rpc.invalid_request", _RPC, level="should")
async def invalid_request(bench: Bench) -> None:
    """JSON that is not a JSON-RPC message is answered with -32600."""
    failure(await _answered(bench, b'{"id":1,"method":7}'), _INVALID)


@check("acp.rpc.no_object", _RPC, level="should")
async def no_object(bench: Bench) -> None:
    """JSON that is not an object is answered with -32600, and the next message is served."""
    failure(await _answered(bench, lines.NOT_OBJECT), _INVALID)


@check("acp.rpc.batch", _RPC, level="should")
async def batch(bench: Bench) -> None:
    """A batch, which the protocol does not have, is answered with an error and nothing else."""
    line = b'[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}]'
    failure(await _answered(bench, line), _INVALID)


@check("acp.rpc.invalid_utf8", _RPC, level="should")
async def invalid_utf8(bench: Bench) -> None:
    """A line that is not UTF-8 is answered with an error, and the next message is served."""
    failure(await _answered(bench, lines.INVALID_UTF8), _PARSE, _INVALID)


@check("acp.rpc.deep_nesting", _RPC, level="should")
async def deep_nesting(bench: Bench) -> None:
    """A line nested a hundred thousand deep is answered with an error, and no crash."""
    failure(await _answered(bench, lines.DEEP), _PARSE, _INVALID)


@Editor.check("acp.rpc.survives", "Transports", greets=False)
async def survives(editor: Editor) -> None:
    """After lines that are no JSON the next request is served."""
    for line in (lines.GARBAGE, lines.INVALID_UTF8, lines.DEEP, b""):
        await editor.subject.write(line + b"\n")
    params: Json = {"protocolVersion": 1, "clientCapabilities": {}}
    await editor.send("initialize", params, "after")
    answer = await editor.subject.until(lambda one: one.get("id") == "after", "the answer")
    expect("result" in answer, f"initialize failed: {answer}")


@Editor.check("acp.rpc.long", "Transports", level="should")
async def long(editor: Editor) -> None:
    """A line of 20 MiB is served or refused; either way the next request is served."""
    await editor.notify("_conformance/long", {"padding": "x" * lines.LONG_BYTES})
    await editor.send("session/dance", {}, "after")
    failure(await editor.subject.until(lambda one: one.get("id") == "after", "the answer"))


@check("acp.rpc.pieces", "Transports")
async def pieces(bench: Bench) -> None:
    """A message that arrives in pieces is one message."""
    subject = await bench.start()
    head, tail = b'{"jsonrpc":"2.0","id":1,"meth', b'od":"initialize","params":{"protocolVers'
    for piece in (head, tail, b'ion":1,"clientCapabilities":{}}}\n'):
        await subject.write(piece)
    answer = await subject.hear("the answer to initialize")
    expect("result" in answer, f"initialize failed: {answer}")
