"""The envelope, prompts and servers: whatever comes is a message or says what is wrong."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.conversation import Image
from batten.contract.errors import (
    BattenError,
    CallerError,
    Conflict,
    NoCredentials,
    NotFound,
    PeerError,
    ProviderError,
    StoreFull,
)
from batten.protocols import json_line
from batten.protocols.acp import rpc
from batten.protocols.acp.asking import Nothing, PermissionResult, read_answer
from batten.protocols.acp.methods import McpServer, PromptParams, read_params
from batten.protocols.acp.prompt import command_of
from batten.protocols.acp.servers import config_of
from batten.tools.mcp_config import read_config

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)
names = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "other"])


def test_a_request_with_half_of_a_character_is_read_and_so_answered() -> None:
    read = json_line.read(b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"text":"\\ud83d!"}}')
    assert read == {"jsonrpc": "2.0", "id": 7, "method": "m", "params": {"text": "\ufffd!"}}
    raw = json_line.read(b'{"jsonrpc":"2.0","id":7,"method":"\xed\xa0\xbd"}')
    assert isinstance(raw, json_line.Malformed)
    assert raw.fault == "not_utf8"


@given(st.dictionaries(names, plain | st.just("2.0")))
def test_any_object_is_read_as_something(message: dict[str, Any]) -> None:
    read = rpc.parse(message)
    if isinstance(read, rpc.Invalid):
        answer = msgspec.json.decode(rpc.failure(read.id, read.error))
        assert answer["error"]["code"] == rpc.INVALID_REQUEST


@given(
    st.integers(-(10**17), 10**17) | st.text(max_size=9),
    st.sampled_from(["params", "result", "error"]),
    st.permutations(["jsonrpc", "id", "method"]),
    st.booleans(),
)
def test_of_a_line_that_is_too_long_its_beginning_tells_who_waits(
    request_id: int | str, body: str, order: list[str], spaced: bool
) -> None:
    values: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": "session/prompt"}
    if body != "params":
        order.remove("method")
    message = {name: values[name] for name in order} | {body: {"id": 99, "text": "x" * 600}}
    line = msgspec.json.encode(message)
    if spaced:
        line = b"  " + msgspec.json.format(line, indent=2).replace(b"\n", b"")
    read = rpc.unread(json_line.too_long(10, line[:512]))
    assert read.id == request_id
    assert isinstance(read, rpc.Invalid if body == "params" else rpc.Response)


@given(st.binary(max_size=80) | st.text(alphabet='{}",:id1 \\', max_size=60).map(str.encode))
def test_any_beginning_of_a_line_is_refused(head: bytes) -> None:
    assert "more than 10 bytes" in str(rpc.unread(json_line.too_long(10, head)).error)


@given(st.dictionaries(st.sampled_from(["sessionId", "prompt", "x"]), plain))
def test_any_params_fit_or_are_refused(params: dict[str, Any]) -> None:
    sound = isinstance(params.get("sessionId"), str) and params.get("prompt") == []
    if sound:
        assert read_params(params, PromptParams).prompt == []
        return
    with pytest.raises(rpc.RpcError) as refused:
        read_params(params, PromptParams)
    assert refused.value.number == rpc.INVALID_PARAMS


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (NotFound("x"), rpc.NOT_FOUND),
        (Conflict("x"), rpc.INVALID_REQUEST),
        (CallerError("x"), rpc.INVALID_PARAMS),
        (NoCredentials("x"), rpc.SIGN_IN_REQUIRED),
        (PeerError("x"), rpc.INVALID_PARAMS),
        (ProviderError("x"), rpc.INTERNAL_ERROR),
        (StoreFull("x"), rpc.INTERNAL_ERROR),
        (rpc.RpcError(rpc.CANCELLED, "x"), rpc.CANCELLED),
    ],
)
def test_every_error_of_ours_has_a_number(error: BattenError, number: int) -> None:
    assert rpc.rpc_error(error).number == number


def prompt(*blocks: dict[str, Any]) -> Any:
    params = {"sessionId": "s", "prompt": list(blocks)}
    return command_of(read_params(params, PromptParams).prompt)


def test_blocks_become_one_text_and_its_pictures() -> None:
    said = prompt(
        {"type": "text", "text": "Look at", "annotations": {"priority": 1}},
        {"type": "resource_link", "uri": "file:///w/a.py", "name": "a.py", "size": 3},
        {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": 'file:///w/"b".py', "text": "x = 1"}},
        {
            "type": "resource",
            "resource": {"uri": "file:///w/c.gif", "blob": "R0lG", "mimeType": "image/gif"},
        },
    )
    assert said.text == (
        "Look at\n[@a.py](file:///w/a.py)\n"
        '\n<context uri="file:///w/&quot;b&quot;.py">\nx = 1\n</context>\n'
        "\n[@file:///w/c.gif]"
    )
    assert said.images == (Image("image/png", b"\x89PNG"), Image("image/gif", b"GIF"))


def test_a_file_that_comes_as_bytes_is_text_or_said_to_be_none() -> None:
    def brought(blob: str, mime: str | None = None) -> str:
        resource = {"uri": "file:///w/a", "blob": blob, "mimeType": mime}
        text: str = prompt({"type": "resource", "resource": resource}).text
        return text

    assert brought("eCA9IDE=", "text/plain") == '\n<context uri="file:///w/a">\nx = 1\n</context>\n'
    assert brought("eCA9IDE=") == brought("eCA9IDE=", "text/plain")
    assert brought("/w==", "application/pdf") == (
        "[@file:///w/a] (1 bytes of application/pdf, which are no text)"
    )
    assert brought("AAA=") == "[@file:///w/a] (2 bytes, which are no text)"
    with pytest.raises(rpc.RpcError, match="not base64"):
        brought("***")


def test_params_and_errors_that_are_null_are_as_if_left_out() -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "session/list", "params": None}
    assert rpc.parse(asked) == rpc.Request(1, "session/list", {})
    assert rpc.parse({"id": 1, "result": {}, "error": None}) == rpc.Response(1, {})
    failed = rpc.parse({"id": 1, "result": None, "error": {"code": 7, "message": "no"}})
    assert isinstance(failed, rpc.Response)
    assert isinstance(failed.error, rpc.RpcError)


def test_answers_are_what_was_asked_for_or_say_what_is_wrong() -> None:
    chosen = {"outcome": {"outcome": "selected", "optionId": "a"}}
    assert read_answer(rpc.Response(1, chosen), PermissionResult).outcome.option_id == "a"
    assert read_answer(rpc.Response(1, None), Nothing) == Nothing()
    with pytest.raises(PeerError, match="not what was asked"):
        read_answer(rpc.Response(1, {"outcome": "yes"}), PermissionResult)
    refused = rpc.parse({"id": 1, "error": {"code": -32601, "message": "no such method"}})
    assert isinstance(refused, rpc.Response)
    with pytest.raises(rpc.RpcError, match="no such method"):
        read_answer(refused, Nothing)


@given(st.text(max_size=20))
def test_what_a_client_gives_a_server_arrives_as_it_is(text: str) -> None:
    given_: dict[str, Any] = {
        "name": "a",
        "command": text or "x",
        "args": [text],
        "env": [{"name": "N", "value": text}],
    }
    config = config_of([msgspec.convert(given_, McpServer)])
    (server,) = read_config({"mcpServers": config}, {"HOME": "/home"})
    assert server.argv == (text or "x", text)
    assert server.env["N"] == text


def test_a_server_by_address_keeps_its_headers() -> None:
    given_: dict[str, Any] = {
        "name": "a",
        "type": "http",
        "url": "http://127.0.0.1/${X}",
        "headers": [],
    }
    config = config_of([msgspec.convert(given_, McpServer)])
    (server,) = read_config({"mcpServers": config}, {})
    assert server.url == "http://127.0.0.1/${X}"
