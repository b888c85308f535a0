"""The floor: the same work in a bare Python script with the same libraries.

    python3 bench/bare.py PORT MODEL DATABASE

One HTTP call and one `bash` per turn, each event encoded and committed with an fsync. It keeps none
of Batten's promises; the difference between the two is the price of those promises.
"""

import asyncio
import os
import sys
from typing import Any

import apsw
import httptools
import msgspec

_TABLE = "CREATE TABLE IF NOT EXISTS events(pos INTEGER PRIMARY KEY, body BLOB)"


class _Answer:
    """Collects one response."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.done = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.done = True


async def post(port: int, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    while not answer.done:
        parser.feed_data(await reader.read(65536))
    writer.close()
    return bytes(answer.body)


async def run(port: int, model: str, database: str) -> None:
    db: Any = apsw.Connection(database)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute(_TABLE)

    def keep(event: dict[str, Any]) -> None:
        body = msgspec.json.encode(event)
        db.execute("INSERT INTO events(body) VALUES(?)", (body,))

    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    while True:
        request = {"model": model, "stream": True, "max_tokens": 1024, "messages": messages}
        answer = await post(port, msgspec.json.encode(request))
        call: dict[str, Any] | None = None
        arguments = ""
        for line in answer.splitlines():
            if not line.startswith(b"data: "):
                continue
            event = msgspec.json.decode(line[6:])
            keep(event)
            block = event.get("content_block", {})
            if block.get("type") == "tool_use":
                call = block
            arguments += event.get("delta", {}).get("partial_json", "")
        if call is None:
            return
        call = {**call, "input": msgspec.json.decode(arguments)}
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", call["input"]["command"], stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": output.decode()}
        keep(result)
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)
