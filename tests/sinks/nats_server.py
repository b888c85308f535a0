"""A real NATS server with JetStream, and a stream that keeps what the event bus publishes."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import nats
from nats.js.api import ConsumerConfig, DeliverPolicy, StreamConfig

from tests.ports import free_port

SERVER = str(Path(sys.executable).with_name("nats-server"))
PATIENCE_S = 30
STREAM = "MAESTRO"


class NatsServer:
    """A server that can be killed and started again with what it stored."""

    def __init__(self, directory: Path, *flags: str, token: str | None = None) -> None:
        self._directory = directory
        self._flags = flags if token is None else (*flags, "--auth", token)
        self._token = token
        self._process: asyncio.subprocess.Process | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        log = self._directory / "nats.log"
        with log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *(SERVER, "-a", "127.0.0.1", "-p", str(self.port), "-js"),
                *("-sd", str(self._directory / "nats"), *self._flags),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                assert self._process.returncode is None, log.read_text()
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                await writer.wait_closed()
                return

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()

    async def connected(self) -> Any:
        """A client; its own types are loose."""
        return await cast(Any, nats).connect(self.url, token=self._token)

    async def add_stream(self, **more: Any) -> None:
        client = await self.connected()
        try:
            config = StreamConfig(name=STREAM, subjects=["maestro.>"], **more)
            await client.jetstream().add_stream(config)
        finally:
            await client.close()

    async def messages(self, count: int | None = None) -> list[Any]:
        """All messages of the stream by a consumer, or `count` of them awaited."""
        client = await self.connected()
        try:
            context = client.jetstream()
            wanted: int = count or (await context.stream_info(STREAM)).state.messages
            config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
            reading = await context.pull_subscribe("maestro.>", stream=STREAM, config=config)
            found: list[Any] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < wanted:
                    page = await reading.fetch(min(100, wanted - len(found)), timeout=PATIENCE_S)
                    for message in page:
                        await message.ack()
                    found += page
            return found
        finally:
            await client.close()

    async def until(self, event_type: str) -> list[dict[str, Any]]:
        """All events, once there is one of this type."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self.events()
                if any(one["type"] == event_type for one in found):
                    return found
                await asyncio.sleep(0.1)

    async def events(self, count: int | None = None) -> list[dict[str, Any]]:
        return [msgspec.json.decode(one.data) for one in await self.messages(count)]


@asynccontextmanager
async def nats_server(
    directory: Path, *flags: str, token: str | None = None
) -> AsyncGenerator[NatsServer]:
    server = NatsServer(directory, *flags, token=token)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
