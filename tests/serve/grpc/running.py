"""`batten runtime` as a process, and clients of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.coordination.published import sdk

grpc: Any = import_module("grpc")
stubs: Any = import_module("macp.v1.core_pb2_grpc")


class Server:
    """A running runtime."""

    def __init__(self, home: Path, flags: Sequence[str], environ: dict[str, str]) -> None:
        self.home = home
        # A shell may hold tokens of another runtime.
        clean = {name: value for name, value in os.environ.items() if "MACP" not in name}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "batten", "runtime", *flags],
            env={**clean, "BATTEN_HOME": str(home), **environ},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), line
        self.address = line.split()[-1]

    def client(self, name: str, **options: Any) -> Any:
        """A client in development: its name is its token."""
        auth = sdk.AuthConfig.for_dev_agent(name)
        return sdk.MacpClient(
            target=self.address, allow_insecure=True, auth=auth, default_timeout=20, **options
        )

    def bearer(self, token: str, sender: str) -> Any:
        auth = sdk.AuthConfig.for_bearer(token, expected_sender=sender)
        return sdk.MacpClient(
            target=self.address, allow_insecure=True, auth=auth, default_timeout=20
        )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


@contextmanager
def running(home: Path, *flags: str, **environ: str) -> Generator[Server]:
    server = Server(home, ["--bind", "127.0.0.1:0", "--rate-limit", "0", *flags], environ)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()


@contextmanager
def plain_stub(server: Server) -> Generator[Any]:
    """The generated stub, without the SDK's checks."""
    with grpc.insecure_channel(server.address) as channel:
        yield stubs.MACPRuntimeServiceStub(channel)


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("home")) as started:
        yield started
