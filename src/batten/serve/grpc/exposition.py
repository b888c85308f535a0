"""Answers Prometheus over HTTP: one path, in the process of the runtime."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from batten.contract.errors import CallerError
from batten.serve.grpc.counts import RuntimeCounts
from batten.serve.http.metrics import Metrics
from batten.tools.own_ports import own_port

_log = logging.getLogger("batten.coordination")
_PATIENCE_S = 5.0
_LARGEST_HEAD = 16 * 1024


@asynccontextmanager
async def serve_metrics(counts: RuntimeCounts, at: tuple[str, int] | None) -> AsyncGenerator[None]:
    """Serve `GET /metrics` while the context is open. Raises `CallerError` if it cannot."""
    if at is None:
        yield
        return
    metrics = Metrics()
    counts.add_to(metrics)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, metrics))
                await writer.drain()
        writer.close()

    host, port = at
    try:
        server = await asyncio.start_server(answer, host, port, limit=_LARGEST_HEAD)
    except OSError as error:
        raise CallerError(
            f"no metrics on {host}:{port}: {error.strerror}", code="config"
        ) from error
    address: tuple[str, int] = server.sockets[0].getsockname()[:2]
    async with server:
        _log.info("metrics are at http://%s:%d/metrics", *address)
        with own_port(address[1]):
            yield


def _response(head: bytes, metrics: Metrics) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method != b"GET" or path != b"/metrics":
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    body = metrics.text().encode()
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
    )
