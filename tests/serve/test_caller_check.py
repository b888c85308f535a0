"""Who is served at a Unix socket: processes that are confined as we are, and live."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from batten.serve.caller_check import why_refused
from batten.workspace.sandbox import Mode
from tests.workspace.keepers import CONFINED, keeper_at, run

pytestmark = pytest.mark.attack

CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
CONFINE = "import ctypes; assert not ctypes.CDLL(None).prctl(38, 1, 0, 0, 0);"
STAY = "print(flush=True); sys.stdin.read()"


@pytest.fixture
def listening() -> Generator[socket.socket]:
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.join(directory, "s"))
        made.listen()
        made.settimeout(20)
        yield made


@contextmanager
def calling(listening: socket.socket, program: str) -> Generator[socket.socket]:
    """Our end of the connection of a process that runs this program, once it has said a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, listening.getsockname()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        connection, _ = listening.accept()
        with connection:
            assert process.stdout.readline()
            yield connection
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def test_a_process_like_ours_is_served(listening: socket.socket) -> None:
    with calling(listening, CONNECT + STAY) as connection:
        assert why_refused(connection) == ""


@pytest.mark.parametrize("program", [CONFINE + CONNECT + STAY, CONNECT + CONFINE + STAY])
def test_a_confined_process_is_not(listening: socket.socket, program: str) -> None:
    with calling(listening, program) as connection:
        assert why_refused(connection) == "it is confined otherwise than Batten (NoNewPrivs)"


def test_a_process_that_execs_is_judged_as_it_is_now(listening: socket.socket) -> None:
    stay = "os.set_inheritable(s.fileno(), True); os.execv('/bin/sh', ['sh', '-c', 'echo; read x'])"
    with calling(listening, "import os;" + CONNECT + stay) as connection:
        assert why_refused(connection) == ""
    with calling(listening, "import os;" + CONNECT + CONFINE + stay) as connection:
        assert "NoNewPrivs" in why_refused(connection)


def test_a_connection_that_a_process_left_to_another_is_refused(listening: socket.socket) -> None:
    """Nothing tells how it was confined; the one that holds it now may be confined less."""
    leave = (
        "import os\nif os.fork(): os._exit(0)\n"
        "while os.getppid() == parent: pass\n" + STAY.replace("; ", "\n")
    )
    program = "import os; parent = os.getpid();" + CONNECT + "\n" + leave
    with calling(listening, program) as connection:
        assert why_refused(connection) == "it has ended"


def test_a_connection_handed_in_from_outside_is_judged_by_who_made_it(
    listening: socket.socket,
) -> None:
    """A confined process that hands its connection out gains nothing by who holds it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = (
            CONFINE
            + CONNECT
            + (
                f"given = socket.socket(fileno={theirs.fileno()});"
                "socket.send_fds(given, [b'x'], [s.fileno()]);" + STAY
            )
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program, listening.getsockname()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        connection, _ = listening.accept()
        with connection:
            _, (handed,), _, _ = socket.recv_fds(ours, 1, 1)
            assert "NoNewPrivs" in why_refused(connection)
            os.close(handed)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)


def test_another_user_is_refused(listening: socket.socket) -> None:
    if os.geteuid():
        pytest.skip("only root can become another user")
    path = listening.getsockname()
    os.chmod(os.path.dirname(path), 0o755)
    os.chmod(path, 0o666)
    with calling(listening, "import os, socket; os.setuid(65534);" + CONNECT + STAY) as connection:
        assert why_refused(connection) == "it belongs to another user"


@pytest.mark.parametrize("mode", CONFINED)
@pytest.mark.parametrize("network", [False, True])
async def test_a_command_in_its_sandbox_is_refused(
    tmp_path: Path, mode: Mode, network: bool
) -> None:
    """Also at a socket in its own workspace."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        listening.setblocking(False)

        async def answer() -> None:
            connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            with connection:
                connection.sendall(why_refused(connection).encode() or b"served")

        async with keeper_at(tmp_path, mode, network=network) as keeper:
            answering = asyncio.create_task(answer())
            told = await run(keeper, ["/usr/bin/python3", "-c", ASK, "s"])
            answering.cancel()
    assert told.stdout.startswith(("it is confined otherwise than Batten", "not connected"))


ASK = """
import socket, sys
try:
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
except OSError as error:
    print("not connected", error)
else:
    print(s.recv(1000).decode())
"""
