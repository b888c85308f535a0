"""Commands that may use the network are of the owner's user, and no service takes them for it."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from batten.client.home_service import home_token
from batten.workspace.network_mark import hold_mark, is_marked
from batten.workspace.sandbox import Mode
from tests.serve.http.wire import toy
from tests.strangers import ask_as
from tests.workspace.keepers import CONFINED, elsewhere, keeper_at, run

pytestmark = pytest.mark.attack

ASKS = """
exec 3<>/dev/tcp/127.0.0.1/{port}
printf 'GET /toy/page HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3
cat <&3
"""


@pytest.mark.parametrize("mode", CONFINED)
async def test_a_command_of_a_run_elsewhere_is_not_served_and_the_owner_still_is(
    tmp_path: Path, mode: Mode
) -> None:
    with elsewhere() as workspace:
        async with toy(tmp_path) as server, keeper_at(workspace, mode, network=True) as keeper:
            port = urlsplit(server.server.url).port
            assert port is not None
            told = await run(keeper, ASKS.format(port=port))
            assert told.stdout.startswith("HTTP/1.1 401"), told
            assert "commands of a run may use the network" in told.stdout
            assert "it is confined otherwise than Batten" in told.stdout
            assert home_token(str(tmp_path)) not in told.stdout
            owner = await asyncio.to_thread(ask_as, None, port, "/toy/page")
            assert (owner.status, '"operator"' in owner.body) == (200, True)
            assert (await server.ask("GET", "/toy/page")).status == 200


@pytest.mark.parametrize("mode", CONFINED)
async def test_the_network_is_marked_while_a_command_may_use_it(tmp_path: Path, mode: Mode) -> None:
    with elsewhere() as workspace:
        async with keeper_at(workspace, mode, network=True) as keeper:
            await run(keeper, "exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&-; true")
            assert is_marked()


def test_a_mark_is_there_as_long_as_one_holds_it() -> None:
    first, second = hold_mark(), hold_mark()
    first.close()
    assert is_marked()
    assert is_marked(), "looking takes nothing away"
    second.close()
