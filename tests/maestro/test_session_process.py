"""The process of a hosted session, seen from its runner."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from batten.contract.errors import NotReady
from batten.serve.maestro.client_hub import ClientHub
from batten.serve.maestro.session_process import SessionProcess
from batten.serve.maestro.session_wire import Open, Over, line
from batten.serve.maestro.sharing import sharing_of
from tests.client.working import PATIENCE_S

OBEDIENT = f"""
import json, sys
for line in sys.stdin:
    if json.loads(line)["kind"] == "end":
        sys.stdout.write({line(Over()).decode()!r})
        break
"""


def session_process(directory: Path) -> SessionProcess:
    hub = ClientHub(sharing_of({}), None, time.time, 0, None)
    command = (sys.executable, "-c", OBEDIENT)
    opening = Open(session_id="chat_1", name="chat_1", exists=False)
    return SessionProcess(hub, command, os.environ, str(directory), opening)


async def test_a_session_that_is_to_end_while_its_process_starts_is_told(tmp_path: Path) -> None:
    process = session_process(tmp_path)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(process.run())
        await asyncio.sleep(0)  # it is being started
        assert process.pid is None
        await process.end()  # raises if the process had to be killed
        with pytest.raises(NotReady):
            await process.opened()


async def test_who_waits_for_a_session_that_is_cancelled_while_it_starts_is_told(
    tmp_path: Path,
) -> None:
    process = session_process(tmp_path)
    running = asyncio.create_task(process.run())
    await asyncio.sleep(0)
    assert process.pid is None
    running.cancel()
    async with asyncio.timeout(PATIENCE_S):
        for waiting in (process.opened(), process.end()):
            with pytest.raises(NotReady):
                await waiting
        await asyncio.wait([running])
