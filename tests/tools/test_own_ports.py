"""Tools never connect to a port of Batten itself, however it is named."""

import socket
import subprocess
import sys
from collections.abc import Generator
from ipaddress import ip_address
from pathlib import Path

import pytest

from batten.contract.errors import Refused
from batten.tools.outbound import Outbound
from batten.tools.own_ports import is_own_port, own_port
from tests.serve.http.wire import toy
from tests.strangers import AS_ROOT
from tests.tools.web_server import web_server

pytestmark = pytest.mark.attack

ALL = ("127.0.0.0/8", "::1/128", "localhost", "0.0.0.0/8", "::/96", "loopback")


@pytest.fixture
def port() -> Generator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        with own_port(listening.getsockname()[1]):
            yield listening.getsockname()[1]


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"]
)
def test_an_own_port_is_known_at_every_address_of_this_machine(port: int, address: str) -> None:
    assert is_own_port(ip_address(address), port)
    assert not is_own_port(ip_address(address), 1)


def test_the_same_port_of_another_machine_is_another(port: int) -> None:
    assert not is_own_port(ip_address("192.0.2.1"), port)
    assert not is_own_port(ip_address("2001:db8::1"), port)


def test_a_port_is_free_for_tools_again_when_nothing_listens(port: int) -> None:
    with own_port(port):
        assert is_own_port(ip_address("127.0.0.1"), port)
    assert is_own_port(ip_address("127.0.0.1"), port)  # another listener has it
    with own_port(2):
        assert is_own_port(ip_address("127.0.0.1"), 2)
    assert not is_own_port(ip_address("127.0.0.1"), 2)


def test_a_port_of_another_process_and_user_is_known_until_it_is_killed() -> None:
    program = (
        "import os, sys; from batten.tools.own_ports import own_port\n"
        "with own_port(3):\n"
        "    if not os.getuid(): os.setuid(65534)\n"
        "    print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert is_own_port(ip_address("127.0.0.1"), 3)
        other.kill()
    assert not is_own_port(ip_address("127.0.0.1"), 3)


@AS_ROOT
def test_a_port_of_another_network_namespace_is_another(port: int) -> None:
    program = (
        "import ctypes, sys; from ipaddress import ip_address;"
        "from batten.tools.own_ports import is_own_port;"
        "assert not ctypes.CDLL(None).unshare(0x40000000);"
        f"sys.exit(is_own_port(ip_address('127.0.0.1'), {port}))"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"])
async def test_a_tool_is_refused_whatever_is_allowed(tmp_path: Path, host: str) -> None:
    async with toy(tmp_path) as server:
        port = server.server.url.rpartition(":")[2]
        outbound = Outbound((*ALL, host.strip("[]")))
        with pytest.raises(Refused, match="a port of Batten itself") as raised:
            await outbound.send("POST", f"http://{host}:{port}/toy/notes", body=b"{}")
        assert raised.value.code == "address_refused"


async def test_a_redirect_to_an_own_port_is_refused(tmp_path: Path) -> None:
    async with toy(tmp_path) as server, web_server() as pages:
        url = pages.redirect("/", f"{server.server.url}/toy/page")
        with pytest.raises(Refused, match="a port of Batten itself"):
            await Outbound(ALL).send("GET", url)
