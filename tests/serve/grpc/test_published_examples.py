"""The examples that `macp-sdk-python` ships run against the runtime as they are printed.

Neither its wheel nor its source archive has a folder of examples. What there is: the Python blocks
of the package's description, and those of docstrings. They are taken from the installed package;
only the address is another one.
"""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import metadata
from textwrap import dedent, indent

from tests.serve.grpc.running import Server

ADDRESS = "127.0.0.1:50051"
HEADER = """
import asyncio, grpc
from macp_sdk import *
from macp_sdk.constants import *
"""


def description() -> str:
    return str(metadata("macp-sdk-python").json["description"])


def described() -> list[str]:
    """The Python blocks of the package's description, in order."""
    return re.findall(r"^```python\n(.*?)^```$", description(), re.DOTALL | re.MULTILINE)


def block_with(words: str) -> str:
    found = [block for block in described() if words in block]
    assert len(found) == 1, found
    return found[0]


def in_docstring(module: str, name: str) -> str:
    """The literal block of a docstring."""
    text = inspect.getdoc(getattr(import_module(f"macp_sdk.{module}"), name)) or ""
    found = re.search(r"::\n\n((?:    .*\n|\n)+)", f"{text}\n")
    assert found is not None, text
    return dedent(found[1])


def run(address: str, program: str) -> str:
    """What a program prints that must end well."""
    done = subprocess.run(
        [sys.executable, "-c", program.replace(ADDRESS, address)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_block_of_the_description_is_accounted_for() -> None:
    first_words = [block.strip().splitlines()[0] for block in described()]
    assert first_words == [
        "from macp_sdk import AuthConfig, DecisionSession, MacpClient",  # local
        "from macp_sdk import AuthConfig, DecisionSession, MacpClient",  # TLS, another host
        "session = DecisionSession(client)",
        "import asyncio",
        "from macp_sdk import ReceiptSigner, build_receipt, verify_receipt",  # not offered
    ]


def quick_start() -> str:
    """The first program of the description, in its two blocks."""
    return block_with(ADDRESS + '",\n    allow_insecure') + block_with("session = Decision")


def test_the_quick_start_decides(server: Server) -> None:
    program = quick_start()
    shown = "\nprint(session.metadata().metadata.state, session.decision_projection.phase)"
    state, _ = run(server.address, program + shown).split(maxsplit=1)
    assert int(state) == import_module("macp.v1.envelope_pb2").SESSION_STATE_RESOLVED


def test_the_asynchronous_quick_start_prints_what_is_printed_there(server: Server) -> None:
    printed = run(server.address, block_with("AsyncDecisionSession"))
    assert printed in description()
    assert "SESSION_STATE_RESOLVED" in printed


def test_the_client_of_a_docstring_connects(server: Server) -> None:
    example = indent(in_docstring("async_client", "AsyncMacpClient"), "    ")
    run(server.address, f"{HEADER}\nasync def main():\n{example}\nasyncio.run(main())")


def test_the_stream_of_a_docstring_reads_a_session(server: Server) -> None:
    example = in_docstring("async_client", "AsyncMacpStream").replace(
        "...", "seen.append(envelope)"
    )
    program = f"""{HEADER}
async def main():
    async with AsyncMacpClient(
        target="{ADDRESS}", allow_insecure=True, auth=AuthConfig.for_dev_agent("lead")
    ) as client:
        session = AsyncDecisionSession(client)
        await session.start(intent="x", participants=["lead"], ttl_ms=60_000)
        session_id, seen = session.session_id, []
        try:
{indent(example, "            ")}
        except MacpSdkError as error:
            pass
        print([one.message_type for one in seen])
asyncio.run(main())
"""
    assert run(server.address, program).strip() == "['SessionStart']"


def test_the_error_code_of_a_docstring_is_read(server: Server) -> None:
    example = in_docstring("client", "macp_error_code").replace("...", 'print("not found")')
    program = f"""{HEADER}
from macp_sdk.client import macp_error_code
client = MacpClient(
    target="{ADDRESS}", allow_insecure=True, auth=AuthConfig.for_dev_agent("lead")
)
session_id = new_session_id()
SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
{example}
"""
    assert run(server.address, program).strip() == "not found"
