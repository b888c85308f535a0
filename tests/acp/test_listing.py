"""Pages of sessions: every session once, and nothing that another surface opened."""

from pathlib import Path

from batten.protocols.acp.methods import SessionInfo
from batten.serve.acp.listing import list_sessions
from batten.session.session import Session
from batten.settings.contract import Settings
from tests.agent.stage import Stage, end, say


async def test_every_session_is_on_one_page_and_the_last_page_says_so(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    flags = ("--model", stage.scenario([say("ok"), end()]))
    settings = stage.settings(*flags)
    async with stage.parts(*flags) as parts:
        deps = await parts.run_deps(str(stage.workspace), settings, Settings())
        opened: list[str] = []
        for number in range(120):
            session = await Session.open(deps, settings, surface="acp" if number % 3 else "print")
            await session.close()
            if number % 3:
                opened.append(session.session_id)
        found: list[SessionInfo] = []
        cursor: str | None = None
        pages = 0
        while cursor is not None or not pages:
            page = await list_sessions(parts.journal, None, cursor)
            found += page.sessions
            cursor, pages = page.next_cursor, pages + 1
    assert pages == 3
    assert sorted(one.session_id for one in found) == sorted(opened)
    assert [one.updated_at for one in found] == sorted(
        (str(one.updated_at) for one in found), reverse=True
    )
