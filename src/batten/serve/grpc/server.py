"""Serves the runtime on an address until it is told to stop."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from importlib import import_module
from ipaddress import ip_address
from typing import Any

from msgspec import Struct

from batten.contract.errors import BattenError, CallerError
from batten.control.coordination.runtime import Runtime
from batten.coordination.envelope import MAX_PAYLOAD_BYTES
from batten.coordination.rejection import Rejection
from batten.serve.grpc import wire
from batten.serve.grpc.exposition import serve_metrics
from batten.serve.grpc.identity import Authenticator
from batten.serve.grpc.rates import Rates
from batten.serve.grpc.service import Record, RuntimeService, ignore
from batten.serve.grpc.status import abort, grpc, internal
from batten.tools.own_ports import own_port

_log = logging.getLogger("batten.coordination")
SERVICE = "macp.v1.MACPRuntimeService"
_SPARE_BYTES = 64 * 1024
GRACE_S = 2
"""For calls to finish; streams have no end of their own."""
MAX_STREAMS = 1024


class Listening(Struct, frozen=True, kw_only=True):
    """Where the runtime listens, and what it takes."""

    host: str = "127.0.0.1"
    port: int = 50051
    """0 for a free one."""
    tls_cert: bytes = b""
    tls_key: bytes = b""
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    max_streams: int = MAX_STREAMS
    """Calls at once on one connection."""
    grace_s: float = GRACE_S
    """How long calls may last on when it is stopped."""
    metrics: tuple[str, int] | None = None
    """Where Prometheus is answered over HTTP, if anywhere; port 0 for a free one."""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


@asynccontextmanager
async def serve_runtime(
    runtime: Runtime,
    authenticator: Authenticator,
    rates: Rates,
    listening: Listening,
    record: Record = ignore,
) -> AsyncGenerator[str]:
    """Serve while the context is open; gives the address. Raises `CallerError` if it cannot.

    `record` is entered around each change of modes and policies.
    """
    options = [
        ("grpc.max_receive_message_length", listening.max_payload_bytes + _SPARE_BYTES),
        ("grpc.max_concurrent_streams", listening.max_streams),
        ("grpc.so_reuseport", 0),
    ]
    server = import_module("grpc.aio").server(options=options)
    async with asyncio.TaskGroup() as group:
        service = RuntimeService(
            runtime,
            authenticator,
            rates,
            group,
            max_payload_bytes=listening.max_payload_bytes,
            record=record,
        )
        server.add_generic_rpc_handlers((_handlers(service),))
        health = await _add_standard_services(server)
        host, port = _bind(server, listening)
        if authenticator.callers is not None:
            authenticator.callers.port = port
        await server.start()
        looking = group.create_task(runtime.run())
        try:
            with own_port(port):
                async with serve_metrics(service.counts, listening.metrics):
                    yield f"{host}:{port}"
        finally:
            await health.enter_graceful_shutdown()
            await server.stop(listening.grace_s)
            await runtime.commits.finish()  # also for clients that did not wait
            looking.cancel()


def _bind(server: Any, listening: Listening) -> tuple[str, int]:
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    address = f"{host}:{listening.port}"
    try:
        if listening.tls_cert or listening.tls_key:
            pairs = [(listening.tls_key, listening.tls_cert)]
            port = server.add_secure_port(address, grpc.ssl_server_credentials(pairs))
        else:
            port = server.add_insecure_port(address)
    except (RuntimeError, ValueError) as error:
        raise CallerError(f"cannot serve on {address}: {error}", code="config") from error
    if not port:
        raise CallerError(f"cannot serve on {address}: it is in use", code="config")
    return host, port


class _GenericHandlers:
    """A server for services that would also register each method: the asyncio server waits for
    every registered method anew with each call of any.
    """

    def __init__(self, server: Any) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, *_: Any) -> None:
        pass


async def _add_standard_services(server: Any) -> Any:
    health_api: Any = import_module("grpc_health.v1.health")
    health_types: Any = import_module("grpc_health.v1.health_pb2")
    health_rpcs: Any = import_module("grpc_health.v1.health_pb2_grpc")
    reflection: Any = import_module("grpc_reflection.v1alpha.reflection")
    reflection_rpcs: Any = import_module("grpc_reflection.v1alpha.reflection_pb2_grpc")
    handlers = _GenericHandlers(server)
    health = health_api.aio.HealthServicer()
    health_rpcs.add_HealthServicer_to_server(health, handlers)
    serving = health_types.HealthCheckResponse.SERVING
    for name in ("", SERVICE):
        await health.set(name, serving)
    names = (SERVICE, health_api.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection_rpcs.add_ServerReflectionServicer_to_server(
        reflection.aio.ReflectionServicer(names), handlers
    )
    return health


def _handlers(service: RuntimeService) -> Any:
    """The handlers of every RPC that the published service describes and we have."""
    described = wire.core.DESCRIPTOR.services_by_name["MACPRuntimeService"]
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            method.name: _handler(method, getattr(service, method.name), service)
            for method in described.methods
            if hasattr(service, method.name)
        },
    )


def _handler(method: Any, call: Callable[..., Any], service: RuntimeService) -> Any:
    factory: Any = import_module("google.protobuf.message_factory")
    read = factory.GetMessageClass(method.input_type).FromString
    write = factory.GetMessageClass(method.output_type).SerializeToString
    types = {"request_deserializer": read, "response_serializer": write}
    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(call, **types)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_streaming(call, service), **types)
    return grpc.unary_unary_rpc_method_handler(_answering(call), **types)


def _answering(call: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    async def answer(request: Any, context: Any) -> Any:
        try:
            return await call(request, context)
        except Rejection as rejection:
            return await abort(context, rejection)
        except BattenError as error:
            _log.error("%s failed", call.__name__, exc_info=error)
            return await abort(context, internal())

    return answer


def _streaming(
    call: Callable[..., Any], service: RuntimeService
) -> Callable[[Any, Any], AsyncIterator[Any]]:
    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            with service.counts.stream():
                async with aclosing(call(request, context)) as responses:
                    async for response in responses:
                        yield response
        except Rejection as rejection:
            await abort(context, rejection)

    return stream
