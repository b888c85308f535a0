"""A bare gRPC echo with an fsync for each message: the floor of the coordination runtime.

python -m bench.bare_grpc FILE
"""

import asyncio
import os
import sys
from importlib import import_module
from typing import Any

core: Any = import_module("macp.v1.core_pb2")
envelopes: Any = import_module("macp.v1.envelope_pb2")
rpcs: Any = import_module("macp.v1.core_pb2_grpc")


class Echo(rpcs.MACPRuntimeServiceServicer):  # type: ignore[misc]  # it has no types
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def Send(self, request: Any, context: Any) -> Any:  # noqa: N802
        os.write(self._file, request.SerializeToString() + b"\n")
        os.fsync(self._file)
        ack = envelopes.Ack(ok=True, message_id=request.envelope.message_id)
        return core.SendResponse(ack=ack)


async def main(path: str) -> None:
    server = import_module("grpc.aio").server()
    rpcs.add_MACPRuntimeServiceServicer_to_server(Echo(path), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
