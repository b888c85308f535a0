"""An observer follows sessions of a real runtime elsewhere, from before they open to their end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batten.contract import facts
from tests.control.observer.elsewhere import (
    describe,
    elsewhere,
    in_thread,
    observing,
    panel,
    transcript,
)
from tests.coordination.published import sdk
from tests.serve.grpc.running import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with elsewhere(tmp_path_factory.mktemp("elsewhere")) as started:
        yield started


async def test_d35_a_run_posted_before_its_session_is_followed_to_its_end(
    tmp_path: Path, server: Server
) -> None:
    session_id = sdk.new_session_id()
    async with observing(tmp_path, server.address) as here:
        run_id = await describe(here.journal, session_id)
        await here.until(run_id, facts.RunStarted.TYPE)
        with panel(server.address, session_id) as agents:
            await in_thread(agents.start)
            await in_thread(agents.propose, 1)
            await in_thread(agents.commit)
        row = await here.ended(run_id)
        assert row.status == "completed"
        events = await here.events(run_id)
        assert [event.type for event in events] == [
            "run.created",
            "run.started",
            "session.bound",
            *(["participant.seen"] * 3),
            "session.state.changed",
            "session.stream.opened",
            "artifact.created",
            "message.received",
            "message.received",
            "proposal.created",
            "message.received",
            "decision.finalized",
            "session.state.changed",
            "run.completed",
        ]
        seen = [event.data["messageId"] for event in events if event.type == "message.received"]
        assert seen == transcript(server, session_id, 3)
