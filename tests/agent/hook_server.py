"""A server on loopback that hooks are sent to: it keeps what it got and answers as prepared."""

import asyncio
from types import TracebackType
from typing import Any, Self

import msgspec


class HookServer:
    """Answers every request with one status and one body, or not at all."""

    def __init__(self, body: bytes = b"", *, status: int = 200, headers: str = "") -> None:
        self._body = body
        self._status = status
        self._headers = headers
        self.silent = False
        self.heads: list[str] = []
        self.payloads: list[dict[str, Any]] = []
        self._server: asyncio.Server | None = None

    @property
    def origin(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                int(line.partition(":")[2])
                for line in head.splitlines()
                if line.lower().startswith("content-length:")
            )
            self.heads.append(head)
            self.payloads.append(msgspec.json.decode(await reader.readexactly(length)))
            if self.silent:
                await reader.read()
                return
            writer.write(
                f"HTTP/1.1 {self._status} X\r\n{self._headers}"
                f"content-length: {len(self._body)}\r\nconnection: close\r\n\r\n".encode()
                + self._body
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()
