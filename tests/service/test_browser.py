"""A browser's own `EventSource` follows a run through a restart of the server."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import bash, end, say
from tests.ports import free_port
from tests.service.browser import browsing, chromium
from tests.service.serving import Run, serving

FOLLOW = """
window.seen = [];
window.source = new EventSource(%s);
window.source.onmessage = event => {
    window.seen.push([event.lastEventId, event.data]);
    if (window.heard) window.heard();
};
window.source.onerror = () => { if (window.heard) window.heard(); };
window.until = done => new Promise(resolve => {
    window.heard = () => { if (done()) { window.heard = null; resolve(true); } };
    window.heard();
});
0
"""


def has(type_: str, count: int) -> str:
    """Waits in the page until so many events of this type have come."""
    mark = msgspec.json.encode(f'"type":"{type_}"').decode()
    return f"until(() => seen.filter(one => one[1].includes({mark})).length >= {count})"


@pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium")
async def test_an_event_source_follows_a_run_through_a_kill_of_the_server(tmp_path: Path) -> None:
    port = free_port()
    async with serving(tmp_path / "service", "--port", str(port)) as service:
        model = service.stage.scenario(
            [bash("echo one", "c0")], [bash("echo two", "c1")], [say("Done."), end()]
        )
        run = await service.started(model)
        async with browsing(tmp_path / "profile") as page:
            await page.open(f"{service.url}/healthz")
            address = msgspec.json.encode(f"/hecate/v1{run.path}/events").decode()
            await page.run(FOLLOW % address)
            await page.run(has("approval.requested", 1))

            await service.kill()
            await service.start("--port", str(port))

            await approve(run)
            await page.run(has("approval.requested", 2))
            await approve(run)
            await page.run(has("run.finished", 1))
            # The last answer is 204, and the browser stops asking.
            await page.run("until(() => source.readyState === EventSource.CLOSED)")
            seen: list[Any] = await page.run("seen")
    stored = await _stored(tmp_path / "service" / "home", run.run_id)
    assert [int(id_) for id_, _ in seen] == list(range(len(stored)))
    assert [data.encode() for _, data in seen] == stored


async def approve(run: Run) -> None:
    [pending] = await run.service.get(f"{run.task_path}/approvals?status=pending")
    assert (await run.resolve(pending["id"], "approve")).status == 200


async def _stored(home: Path, run_id: str) -> list[bytes]:
    journal = SqliteJournal.open(home, read_only=True)
    try:
        return [one.body for one in await journal.read(run_id, limit=1000)]
    finally:
        journal.close()
