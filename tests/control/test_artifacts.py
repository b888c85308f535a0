"""Artifacts that clients add, also through several servers of one home."""

import asyncio
from pathlib import Path

from batten.control.artifacts import Artifacts
from batten.control.patches import Patches
from batten.control.tasks import Tasks
from batten.journal.sqlite import SqliteJournal
from batten.protocols.hecate.artifacts import CreateArtifact
from tests.control.given import Place, said


async def test_equal_requests_to_two_servers_make_one_artifact(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]))
    home = place.opener.home
    other = SqliteJournal.open(Path(home))
    both = [place.tasks, Tasks(other, home, place.base)]
    servers = [Artifacts(tasks, Patches(tasks)) for tasks in both]
    by_key = [
        CreateArtifact(kind="image", run_id=row.run_id, body_base64=b"%d" % n) for n in (1, 2)
    ]
    by_bytes = [
        CreateArtifact(kind="image", run_id=row.run_id, body_base64=b"x%d" % n) for n in range(10)
    ]
    asks = [(servers[n], one, "k") for n, one in enumerate(by_key)]
    asks += [(server, one, "") for one in by_bytes for server in servers]
    made = await asyncio.gather(
        *(server.create(one, by="ci", key=key) for server, one, key in asks)
    )
    assert len({one.row.artifact_id for one in made}) == 11
    assert sum(one.is_new for one in made) == 11
    assert await other.verify() == []
    other.close()
