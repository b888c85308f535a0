"""A scripted model server on loopback, for whole-process measurements.

Speaks Anthropic Messages, OpenAI Responses and OpenAI Chat Completions, streaming only. The
model's name says how long a conversation is: `bench-30` asks for a command until the
request holds 30 results, each time with another command, then answers in 100 text deltas.

    python3 bench/model_server.py     prints its port on a line of its own, then serves

It must cost almost nothing: an answer is encoded once, kept, and sent in one write.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

DELTAS = 100
WORDS = [f"word{number:02d} " for number in range(DELTAS)]

_MODEL = re.compile(rb'"model"\s*:\s*"[^"]*?bench-(\d+)')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_ANTHROPIC_RESULT = re.compile(rb'"type"\s*:\s*"tool_result"')
_RESPONSES_RESULT = re.compile(rb'"type"\s*:\s*"function_call_output"')
_CHAT_RESULT = re.compile(rb'"role"\s*:\s*"tool"')

Event = tuple[str, dict[str, Any]]
"""The name of a server-sent event, empty where the protocol has none, and its data."""


class Shell:
    """The command tool of a client."""

    def __init__(self, name: str, argument: str, told_by: bytes = b"") -> None:
        self.name = name
        self.argument = argument
        self.told_by = told_by

    def arguments(self, step: int) -> str:
        """They differ from step to step: a repeated call looks like a loop."""
        return json.dumps({self.argument: f"echo step {step}"})


_SHELLS = (Shell("exec_command", "cmd", b'"exec_command"'), Shell("Bash", "command", b'"Bash"'))
_SHELL = Shell("bash", "command")


def shell_of(body: bytes) -> Shell:
    """The tool this request offers."""
    return next((shell for shell in _SHELLS if shell.told_by in body), _SHELL)


def anthropic_call(step: int, shell: Shell = _SHELL) -> list[Event]:
    tool: dict[str, Any] = {
        "type": "tool_use",
        "id": f"toolu_{step:04d}",
        "name": shell.name,
        "input": {},
    }
    fragment = {"type": "input_json_delta", "partial_json": shell.arguments(step)}
    return _anthropic_message(tool, [fragment], "tool_use")


def anthropic_answer() -> list[Event]:
    deltas = [{"type": "text_delta", "text": word} for word in WORDS]
    return _anthropic_message({"type": "text", "text": ""}, deltas, "end_turn")


def _anthropic_message(
    block: dict[str, Any], deltas: list[dict[str, str]], stop_reason: str
) -> list[Event]:
    message: dict[str, Any] = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 1},
    }
    ending = {"stop_reason": stop_reason, "stop_sequence": None}
    data: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": len(deltas)}},
        {"type": "message_stop"},
    ]
    return [(item["type"], item) for item in data]


def responses_call(step: int, shell: Shell = _SHELL) -> list[Event]:
    place = {"item_id": f"fc_{step:04d}", "output_index": 0}
    item = {
        "id": place["item_id"],
        "type": "function_call",
        "call_id": f"call_{step:04d}",
        "name": shell.name,
        "arguments": shell.arguments(step),
    }
    arguments = "response.function_call_arguments"
    return _response(
        item | {"arguments": "", "status": "in_progress"},
        [
            {"type": f"{arguments}.delta", **place, "delta": shell.arguments(step)},
            {"type": f"{arguments}.done", **place, "arguments": shell.arguments(step)},
        ],
        item | {"status": "completed"},
    )


def responses_answer() -> list[Event]:
    place = {"item_id": "msg_bench", "output_index": 0, "content_index": 0}
    empty: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
    part = empty | {"text": "".join(WORDS)}
    item = {"id": "msg_bench", "type": "message", "role": "assistant"}
    return _response(
        item | {"content": [], "status": "in_progress"},
        [
            {"type": "response.content_part.added", **place, "part": empty},
            *({"type": "response.output_text.delta", **place, "delta": word} for word in WORDS),
            {"type": "response.output_text.done", **place, "text": part["text"]},
            {"type": "response.content_part.done", **place, "part": part},
        ],
        item | {"content": [part], "status": "completed"},
    )


def _response(
    begun: dict[str, Any], middle: list[dict[str, Any]], ended: dict[str, Any]
) -> list[Event]:
    response: dict[str, Any] = {
        "id": "resp_bench",
        "object": "response",
        "created_at": 0,
        "model": "bench",
        "status": "in_progress",
        "output": [],
        "usage": None,
    }
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": DELTAS,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 100 + DELTAS,
    }
    completed = response | {"status": "completed", "output": [ended], "usage": usage}
    data: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *middle,
        {"type": "response.output_item.done", "output_index": 0, "item": ended},
        {"type": "response.completed", "response": completed},
    ]
    return [(item["type"], item | {"sequence_number": number}) for number, item in enumerate(data)]


def chat_call(step: int, shell: Shell = _SHELL) -> list[Event]:
    function = {"name": shell.name, "arguments": shell.arguments(step)}
    call = {"index": 0, "id": f"call_{step:04d}", "type": "function", "function": function}
    return _chat([{"tool_calls": [call]}], "tool_calls")


def chat_answer() -> list[Event]:
    return _chat([{"content": word} for word in WORDS], "stop")


def _chat(deltas: list[dict[str, Any]], finish_reason: str) -> list[Event]:
    chunk = {"id": "chat_bench", "object": "chat.completion.chunk", "created": 0, "model": "bench"}
    usage = {"prompt_tokens": 100, "completion_tokens": DELTAS, "total_tokens": 100 + DELTAS}
    steps = [({"role": "assistant", "content": None}, None), *((delta, None) for delta in deltas)]
    events: list[Event] = []
    for delta, reason in [*steps, ({}, finish_reason)]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        events.append(("", chunk | {"choices": [choice], "usage": None}))
    nothing: list[dict[str, Any]] = []
    events.append(("", chunk | {"choices": nothing, "usage": usage}))
    return events


class Dialect:
    """One protocol: how its results are counted and its two kinds of answer are written."""

    def __init__(
        self,
        result: re.Pattern[bytes],
        call: Callable[[int, Shell], list[Event]],
        answer: Callable[[], list[Event]],
        last: bytes = b"",
    ) -> None:
        self._result = result
        self._call = call
        self._last = last
        self._calls: dict[tuple[int, Shell], bytes] = {}
        self._answer = self._encode(answer())

    def reply(self, body: bytes) -> bytes:
        match = _MODEL.search(body)
        steps = int(match[1]) if match else 0
        step = len(self._result.findall(body))
        if step >= steps:
            return self._answer
        shell = shell_of(body)
        if (step, shell) not in self._calls:
            self._calls[step, shell] = self._encode(self._call(step, shell))
        return self._calls[step, shell]

    def _encode(self, events: list[Event]) -> bytes:
        """A whole HTTP response; every event is a chunk of its own, as real servers send them."""
        frames = [_frame(name, data) for name, data in events]
        if self._last:
            frames.append(self._last)
        head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        chunks = [b"%x\r\n%s\r\n" % (len(frame), frame) for frame in frames]
        return b"".join((head, *chunks, b"0\r\n\r\n"))


def _frame(name: str, data: dict[str, Any]) -> bytes:
    event = f"event: {name}\n" if name else ""
    return f"{event}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def dialects() -> dict[bytes, Dialect]:
    """The protocols by the end of their path: clients differ in what comes before it."""
    return {
        b"/messages": Dialect(_ANTHROPIC_RESULT, anthropic_call, anthropic_answer),
        b"/responses": Dialect(_RESPONSES_RESULT, responses_call, responses_answer),
        b"/completions": Dialect(_CHAT_RESULT, chat_call, chat_answer, b"data: [DONE]\n\n"),
    }


_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
_LENGTH_REQUIRED = b"HTTP/1.1 411 Length Required\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connection(asyncio.Protocol):
    """One client's requests, answered in order; the connection is kept until the client ends it."""

    def __init__(self, served: dict[bytes, Dialect]) -> None:
        self._served = served
        self._buffer = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end])
            length = _LENGTH.search(head)
            if length is None and head.startswith(b"POST "):
                self._transport.write(_LENGTH_REQUIRED)
                self._transport.close()
                return
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < size:
                return
            body = bytes(self._buffer[end + 4 : size])
            del self._buffer[:size]
            self._transport.write(self._reply(head, body))

    def _reply(self, head: bytes, body: bytes) -> bytes:
        method, path, _ = head.split(b" ", 2)
        resource = b"/" + path.partition(b"?")[0].rpartition(b"/")[2]
        dialect = self._served.get(resource)
        return dialect.reply(body) if dialect and method == b"POST" else _NOT_FOUND


async def serve() -> None:
    served = dialects()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(served), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
