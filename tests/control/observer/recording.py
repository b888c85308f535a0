"""A runtime that has no session, and remembers the metadata of every call."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from tests.coordination.published import core
from tests.serve.grpc.running import grpc, stubs

aio: Any = import_module("grpc.aio")
Calls = list[tuple[str, list[tuple[str, str]]]]


class _Runtime(stubs.MACPRuntimeServiceServicer):  # type: ignore[misc] # generated, without types
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.status = grpc.StatusCode.NOT_FOUND

    async def Initialize(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._take("Initialize", context)
        return core.InitializeResponse(selected_protocol_version="1.0")

    async def GetSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._take("GetSession", context)
        await context.abort(self.status, "there is no session")

    def _take(self, name: str, context: Any) -> None:
        given = [(str(key), str(value)) for key, value in context.invocation_metadata()]
        self._calls.append((name, given))


@asynccontextmanager
async def recording_runtime() -> AsyncGenerator[tuple[str, Calls]]:
    """Its address, and the calls it took."""
    calls: Calls = []
    server = aio.server()
    stubs.add_MACPRuntimeServiceServicer_to_server(_Runtime(calls), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", calls
    finally:
        await server.stop(0)
