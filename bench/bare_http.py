"""The floor for an HTTP service: one fixed answer on the same server, without anything of ours."""

from typing import Any

_HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")],
}
_BODY = {"type": "http.response.body", "body": b"{}"}


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send(_HEAD)
        await send(_BODY)
