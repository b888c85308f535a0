"""A proxy that treats connections as bad networks do: it cuts, stalls and half-closes them."""

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_PIECE = 1 << 14
_HARMS = ("cut", "reset", "stall", "half-close to the reader", "half-close to the server", "none")


class Proxy:
    """Passes bytes to the server, and harms connections after random amounts of them."""

    def __init__(self, url: str, seed: int) -> None:
        address = urlsplit(url)
        self._server = (address.hostname or "", address.port or 0)
        self._random = random.Random(seed)
        self.url = ""
        self.harms: Counter[str] = Counter()
        self.gentle = False
        """Harm no further connections."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        from_server, to_server = await asyncio.open_connection(*self._server)
        harm = "none" if self.gentle else self._random.choice(_HARMS)
        after = self._random.randrange(100, 60_000)
        self.harms[harm] += 1
        try:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(_pass_on(reader, to_server))
                await self._answer(from_server, writer, to_server, harm, after)
                asking.cancel()
        except* OSError:
            pass
        finally:
            for one in (writer, to_server):
                one.close()
                with suppress(OSError):
                    await one.wait_closed()

    async def _answer(
        self,
        source: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        to_server: asyncio.StreamWriter,
        harm: str,
        after: int,
    ) -> None:
        """Pass the answer on, until it is time to harm it."""
        passed = 0
        while piece := await source.read(_PIECE):
            passed += len(piece)
            if passed < after or harm == "none":
                to_client.write(piece)
                await to_client.drain()
                continue
            to_client.write(piece[: len(piece) // 2])  # in the middle of a frame
            match harm:
                case "stall":
                    await asyncio.sleep(self._random.uniform(0.1, 0.5))
                    to_client.write(piece[len(piece) // 2 :])
                    harm = "none"
                    continue
                case "reset":
                    taken: socket.socket = to_client.get_extra_info("socket")
                    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                case "half-close to the reader":
                    to_client.write_eof()
                case "half-close to the server":
                    to_server.write_eof()
                case _:
                    pass
            return


async def _pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    while piece := await source.read(_PIECE):
        to.write(piece)
        await to.drain()


@asynccontextmanager
async def proxying(url: str, seed: int) -> AsyncGenerator[Proxy]:
    proxy = Proxy(url, seed)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0, backlog=1024)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with server:
            yield proxy
    finally:
        await asyncio.sleep(0)
