"""Sessions opened from a specification: each has settings and an environment of its own."""

import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from batten.agent.deps import RunDeps
from batten.agent.execution import Ended
from batten.agent.rules.verdict import Mode
from batten.agent.settings import RunSettings
from batten.contract.errors import CallerError
from batten.wiring.opener import SessionOpener
from batten.wiring.opening import OpenedSession
from batten.wiring.spec import SessionSpec
from tests.agent.stage import Stage, bash, end, fail, say
from tests.workspace.keepers import processes_mentioning

ALLOWED: Mode = "dontAsk"


def spec_at(stage: Stage, model: str, **environ: str) -> SessionSpec:
    return SessionSpec(
        environ={**stage.environ, **environ},
        surface="test",
        workspace=str(stage.workspace),
        models=(model,),
        mode=ALLOWED,
        sandbox="none",
    )


async def prompted(opened: OpenedSession) -> Ended:
    execution = await opened.session.prompt("go")
    return await execution.finish()


PATIENCE_S = 20


def keepers(workspace: Path) -> int:
    lines = (one for one in processes_mentioning(str(workspace)) if one.parent == os.getpid())
    return sum("keeper_process" in one.line for one in lines)


async def test_sessions_of_one_workspace_share_a_keeper_that_ends_with_the_last(
    stage: Stage,
) -> None:
    opener = SessionOpener(spec_at(stage, stage.scenario([bash("echo on")], [say("ok"), end()])))
    first, second = await opener.open(opener.base), await opener.open(opener.base)
    for opened in (first, second):
        assert (await prompted(opened)).outcome == "completed"
    assert keepers(stage.workspace) == 1
    await first.session.close()
    await first.close()
    assert (await prompted(second)).outcome == "completed"
    await second.session.close()
    await second.close()
    opener.close()
    assert keepers(stage.workspace) == 0


async def test_commands_are_limited_unless_settings_say_otherwise(stage: Stage) -> None:
    line = "echo $(ulimit -Hn) $(ulimit -f) >> limits"
    model = stage.scenario([bash(line)], [say("ok"), end()])
    free = shutil.disk_usage(stage.workspace).free
    for text in ("", '{"sandbox": {"open_files": 200, "file_mib": 3}}'):
        opener = SessionOpener(replace(spec_at(stage, model), settings=text or None))
        opened = await opener.open(opener.base)
        assert (await prompted(opened)).outcome == "completed"
        await opened.session.close()
        await opened.close()
        opener.close()
    usual, chosen = (stage.workspace / "limits").read_text().splitlines()
    files, size = map(int, usual.split())
    assert files <= 65536
    assert 0.25 * free < size * 1024 < 0.75 * free
    assert chosen == "200 3072"


async def test_commands_and_redaction_belong_to_the_session_not_to_the_process(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "process")
    monkeypatch.setenv("API_TOKEN", "secret-of-the-process")
    stage.scenario([bash("echo $USER > user")], [fail("fatal", "echoed secret-of-the-session")])
    model = f"scripted/{stage.directory}/scenario.json"
    opener = SessionOpener(spec_at(stage, model, USER="session", API_TOKEN="secret-of-the-session"))
    opened = await opener.open(opener.base)
    await prompted(opened)
    shown = opened.redact("secret-of-the-session, secret-of-the-process")
    await opened.session.close()
    await opened.close()
    opener.close()
    assert (stage.workspace / "user").read_text() == "session\n"
    assert "secret-of-the-session" not in shown
    assert "secret-of-the-process" in shown


async def test_literal_secrets_of_tool_servers_and_hooks_are_known(stage: Stage) -> None:
    server = {"command": "/nowhere", "env": {"SERVER_TOKEN": "literal-of-a-server"}}
    handler = {"type": "command", "command": "true", "env": {"HOOK_TOKEN": "literal-of-a-hook"}}
    settings = {"hooks": {"SessionEnd": [{"handlers": [handler]}]}}
    spec = replace(
        spec_at(stage, stage.scenario([say("ok"), end()])),
        mcp_servers={"away": server},
        settings=msgspec.json.encode(settings).decode(),
    )
    opener = SessionOpener(spec)
    opened = await opener.open(opener.base)
    shown = opened.redact("literal-of-a-server, literal-of-a-hook")
    await opened.session.close()
    await opened.close()
    opener.close()
    assert shown == "<redacted>, <redacted>"


async def test_a_resumed_session_keeps_what_the_specification_leaves_open(stage: Stage) -> None:
    opener = SessionOpener(spec_at(stage, stage.scenario([say("ok"), end()])))
    first = await opener.open(
        replace(opener.base, max_turns=7, max_output_tokens=70, temperature=0.5)
    )
    kept = first.session.settings
    await first.session.close()
    await first.close()
    silent = SessionSpec(
        environ=stage.environ, resume=first.session.session_id, sandbox="none", temperature=1.0
    )
    again = await opener.open(silent)
    assert (kept.max_turns, kept.max_output_tokens) == (7, 70)
    assert again.session.settings == replace(kept, temperature=1.0, max_turns=None)
    assert again.session.deps.workspace_path == str(stage.workspace.resolve())
    await again.session.close()
    await again.close()
    opener.close()


async def test_a_relative_path_starts_from_the_directory_of_the_specification(
    stage: Stage,
) -> None:
    model = stage.scenario([say("ok"), end()])
    opener = SessionOpener(spec_at(stage, model))
    gone = replace(opener.base, workspace="workspace", cwd="")
    with pytest.raises(CallerError, match="the current directory is gone"):
        await opener.open(gone)
    opened = await opener.open(replace(gone, cwd=str(stage.directory)))
    assert opened.session.deps.workspace_path == str(stage.workspace.resolve())
    await opened.session.close()
    await opened.close()
    opener.close()


async def test_a_journal_that_is_not_kept_has_nothing_to_resume(stage: Stage) -> None:
    opener = SessionOpener(replace(spec_at(stage, stage.scenario([say("ok"), end()])), save=False))
    with pytest.raises(CallerError, match="--no-save keeps nothing"):
        await opener.open(replace(opener.base, resume="chat_x"))
    opener.close()
    assert not stage.home.exists()


async def test_the_keeper_starts_before_anything_is_stored(stage: Stage) -> None:
    seen: list[int] = []

    def equip(deps: RunDeps, settings: RunSettings) -> RunDeps:
        until = time.monotonic() + PATIENCE_S
        while not keepers(stage.workspace) and time.monotonic() < until:
            time.sleep(0.01)  # nothing else of ours goes on meanwhile: it was started before
        seen.append(keepers(stage.workspace))
        return deps

    spec = replace(spec_at(stage, stage.scenario([say("ok"), end()])), equip=equip)
    opener = SessionOpener(spec, own_process=True)
    opened = await opener.open(spec)
    await opened.session.close()
    await opened.close()
    opener.close()
    assert seen == [1]
