"""`batten serve` hosts the runtime in a process of its own."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.coordination.published import sdk
from tests.ports import free_port
from tests.serve.grpc.running import grpc


@contextmanager
def serving(home: Path, *flags: str) -> Generator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "batten", "serve", "--workers", "0", *flags],
        env={**os.environ, "BATTEN_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline().startswith("listening on http://")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()
        process.stderr.close()


def connected(port: int) -> Any:
    """A client, once the runtime answers."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(timeout=20)
    return sdk.MacpClient(
        target=f"127.0.0.1:{port}",
        allow_insecure=True,
        auth=sdk.AuthConfig.for_dev_agent("lead"),
        default_timeout=20,
    )


def test_service_hosts_the_runtime_and_takes_it_along(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, "--port", "0", "--runtime-bind", f"127.0.0.1:{port}"):
        client = connected(port)
        session = sdk.DecisionSession(client)
        session.start(intent="hosted", participants=["lead"], ttl_ms=60_000)
        session.propose("p1", "merge")
        client.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_service_without_runtime_has_none(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0", "--no-runtime") as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
    assert not any(b"\0runtime\0" in command for command in commands)


def test_runtime_address_that_is_taken_is_a_reason_not_to_start(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-m", "batten", "serve", "--port", "0", "--runtime-bind", bind],
            env={**os.environ, "BATTEN_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert done.returncode == 78
    assert bind in done.stderr
