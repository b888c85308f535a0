"""Retention of a running service: old sessions go by themselves, and their paths say so."""

import asyncio
from pathlib import Path

from batten.contract.ids import to_uuid
from batten.journal.sqlite.database import new_connection
from tests.agent.stage import end, say
from tests.service.macp.test_edge import refused
from tests.service.serving import PATIENCE_S, serving
from tests.session.processes import batten

POLL_S = 0.1
OLD = "2020-01-01T00:00:00.000Z"


async def test_an_old_session_goes_after_the_start_and_a_new_one_stays(tmp_path: Path) -> None:
    environ = {"DATA_RETENTION_ENABLED": "true", "DATA_RETENTION_TTL_DAYS": "1"}
    async with serving(tmp_path) as service:
        talk = service.stage.scenario([say("Hi."), end()], name="talk")
        runs = [await service.started(talk) for _ in range(2)]
        for run in runs:
            await run.ended()
            shown = await service.request("GET", f"/runs/{to_uuid(run.run_id)}/state")
            assert shown.status == 200
        await service.stop()
        old, new = runs
        db = new_connection(str(service.stage.home / "journal.db"))
        db.execute("UPDATE runs SET ended_at = ? WHERE run_id = ?", (OLD, old.run_id))
        db.execute(
            "UPDATE sessions SET updated_at = ? WHERE session_id ="
            " (SELECT session_id FROM runs WHERE run_id = ?)",
            (OLD, old.run_id),
        )
        db.close()
        service.stage.environ.update(environ)
        await service.start()
        async with asyncio.timeout(PATIENCE_S):
            while (await service.ask("GET", old.path)).status != 404:
                await service.request("GET", "/audit")
                await asyncio.sleep(POLL_S)
        for path in ("", "/state", "/events"):
            answer = await service.request("GET", f"/runs/{to_uuid(old.run_id)}{path}")
            refused(answer, 404, "RUN_NOT_FOUND")
        assert (await new.now())["status"] == "completed"
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await service.request("GET", "/audit?action=retention.run")
                if found := answer.json["data"]:
                    break
                await asyncio.sleep(POLL_S)
        [entry] = found
        assert entry["actorType"] == "system"
        assert entry["details"]["removed"] == {"runs": 1, "audit": 0, "deliveries": 0}
        await service.stop()
        verified = await asyncio.to_thread(batten, service.stage, "verify")
        assert b"audit" not in verified.stdout
