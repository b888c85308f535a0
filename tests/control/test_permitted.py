"""What a task may ask for, over what the operator of the service allows."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.contract.errors import CallerError, Refused
from batten.contract.facts import (
    PolicyToolBlocked,
    RunFailed,
    ToolCompleted,
    ToolFailed,
    ToolShellExited,
)
from batten.control.specification import of_task
from batten.protocols.hecate.creation import new_task
from batten.protocols.hecate.tasks import CreateTask
from batten.wiring.spec import TaskGrants
from tests.agent.stage import Stage, bash, call, say
from tests.tools.test_mcp import SERVERS
from tests.workspace.keepers import LANDLOCK

from .service import BY, Service, serving

SHELL = {"execution_kind": "shell"}


async def refused(service: Service, code: str, **fields: Any) -> str:
    """The error that creating this task meets."""
    with pytest.raises((CallerError, Refused)) as met:
        await service.create(**fields)
    assert met.value.code == code
    return str(met.value)


def test_the_profile_for_coding_adds_a_prompt_before_the_tasks_own(stage: Stage) -> None:
    def told(profile: str) -> str | None:
        wanted = {"prompt": "go", "system_prompt": "Be brief.", "execution_profile": profile}
        task = new_task(msgspec.convert(wanted, CreateTask), by=BY)
        return of_task(stage.spec(), task).append_system

    assert told("repo_local") == "Be brief."
    coding = told("coding_agent") or ""
    assert "repository" in coding
    assert coding.endswith("\n\nBe brief.")


async def test_a_task_gets_no_network_that_the_service_does_not_have(stage: Stage) -> None:
    wanted = {**SHELL, "shell_command": "true", "sandbox_network": True}
    async with serving(stage, "--auto-allow") as service:
        assert "--sandbox-network allow" in await refused(service, "forbidden", **wanted)
    async with serving(stage, "--auto-allow", "--sandbox-network", "allow") as service:
        assert (await service.run(**wanted)).status == "completed"


async def test_an_allowed_root_is_the_tasks_own_or_the_services(
    stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / "shared/below").mkdir(parents=True)
    wanted = {**SHELL, "shell_command": "true"}
    async with serving(stage, "--auto-allow", "--add-dir", str(tmp_path / "shared")) as service:
        for path in ("/etc", str(tmp_path), str(tmp_path / "shared/../home")):
            await refused(service, "forbidden", **wanted, sandbox_allowed_root=path)
        below = str(tmp_path / "shared/below")
        task = await service.create(**wanted, sandbox_allowed_root=below)
        row = await service.tasks.start(task, by=BY)
        assert (await service.ended(row.run_id)).status == "completed"
        own = str(stage.workspace)
        await service.create(**wanted, working_directory=own, sandbox_allowed_root=own)


@pytest.mark.parametrize("sandbox", [LANDLOCK])
async def test_nothing_in_a_read_only_workspace_can_be_changed(stage: Stage, sandbox: str) -> None:
    (stage.workspace / "a").write_text("whole\n")
    model = stage.scenario(
        [call("write_file", file_path="a", content="x"), bash("echo x > a"), bash("cat a")],
        [say("done")],
    )
    there = {
        "working_directory": str(stage.workspace),
        "workspace_mode": "in_place",
        "sandbox_read_only": True,
    }
    async with serving(stage, "--auto-allow", "--sandbox", sandbox) as service:
        row = await service.run(prompt="go", requested_model=model, **there)
        assert row.status == "completed"
        blocked = await service.fact(row.run_id, PolicyToolBlocked)
        assert "may be read but not written" in blocked.reason
        facts = [envelope.data for envelope in await service.envelopes(row.run_id)]
        exits = [fact.exit_code for fact in facts if isinstance(fact, ToolShellExited)]
        assert exits == [1, 0]
        row = await service.run(**SHELL, shell_command="rm a", **there)
        assert (await service.fact(row.run_id, RunFailed)).code == "command_failed"
        written = {"execution_kind": "file", "file_path": "a", "file_content": "x"}
        row = await service.run(**written, **there)
        assert (await service.fact(row.run_id, RunFailed)).code == "permission_denied"
    assert (stage.workspace / "a").read_text() == "whole\n"


async def test_a_read_only_task_needs_a_sandbox(service: Service) -> None:
    wanted = {**SHELL, "shell_command": "true", "sandbox_read_only": True}
    assert "--sandbox none" in await refused(service, "invalid_request", **wanted)


async def test_a_task_brings_rules_but_never_undoes_those_of_the_service(stage: Stage) -> None:
    flags = ("--deny", "Bash(rm *)", "--ask", "Bash(make *)")
    async with serving(stage, *flags) as service:
        row = await service.run(**SHELL, shell_command="touch a", allow=["Bash(touch *)"])
        assert row.status == "completed"
        row = await service.run(**SHELL, shell_command="rm a", allow=["Bash"])
        assert (await service.fact(row.run_id, RunFailed)).code == "permission_denied"
        task = await service.create(**SHELL, shell_command="make a", allow=["Bash"])
        row = await service.tasks.start(task, by=BY)
        await service.parked(row.run_id)
        await service.tasks.cancel(task, row.run_id, by=BY)
        row = await service.run(**SHELL, shell_command="touch a", allow=["Bash"], deny=["Bash"])
        assert (await service.fact(row.run_id, RunFailed)).code == "permission_denied"
        await refused(service, "invalid_request", **SHELL, shell_command="true", allow=["No(x)"])
        await refused(service, "invalid_request", **SHELL, shell_command="true", deny=["Bash("])


@pytest.mark.parametrize(
    ("flags", "allowed", "forbidden"),
    [
        ((), ["plan", "default", "acceptEdits", "auto"], ["dontAsk"]),
        (("--permission-mode", "plan"), ["plan"], ["default", "acceptEdits", "auto", "dontAsk"]),
        (("--permission-mode", "dontAsk"), ["plan", "default", "dontAsk"], []),
    ],
)
async def test_a_task_chooses_among_the_modes_that_its_service_allows(
    stage: Stage, flags: tuple[str, ...], allowed: list[str], forbidden: list[str]
) -> None:
    wanted = {**SHELL, "shell_command": "touch a"}
    async with serving(stage, *flags) as service:
        for mode in allowed:
            await service.create(**wanted, permission_mode=mode)
        for mode in forbidden:
            await refused(service, "forbidden", **wanted, permission_mode=mode)


async def test_a_stricter_mode_than_the_services_asks_again(stage: Stage) -> None:
    async with serving(stage, "--auto-allow") as service:
        task = await service.create(
            **SHELL, shell_command="touch a", permission_mode="default", approval_timeout_s=60
        )
        row = await service.tasks.start(task, by=BY)
        request = await service.parked(row.run_id)
        assert request.deadline_at is not None
        assert request.deadline_at < (await service.row(row.run_id)).created_at[:10] + "U"
        await service.tasks.cancel(task, row.run_id, by=BY)
        row = await service.run(**SHELL, shell_command="touch a", permission_mode="plan")
        assert (await service.fact(row.run_id, RunFailed)).code == "permission_denied"


async def test_line_47_max_turns_of_the_task_or_of_the_service_ends_the_run(stage: Stage) -> None:
    frames = [[bash(f"echo {number}")] for number in range(5)]
    model = stage.scenario(*frames, [say("done")])
    async with serving(stage, "--auto-allow", "--max-turns", "3") as service:
        for wanted, turns in ((2, 2), (0, 3), (4, 3)):
            row = await service.run(prompt="go", requested_model=model, max_turns=wanted)
            assert (await service.fact(row.run_id, RunFailed)).code == "max_turns_exceeded"
            assert row.turns == turns


async def test_timeout_ms_bounds_every_command_of_an_agent(stage: Stage) -> None:
    model = stage.scenario([call("bash", command="sleep 600", timeout=900)], [say("done")])
    async with serving(stage, "--auto-allow") as service:
        row = await service.run(prompt="go", requested_model=model, timeout_ms=200)
        assert row.status == "completed"
        assert "tool.timed_out" in await service.types(row.run_id)


async def test_a_task_without_a_usable_model_is_not_started(stage: Stage) -> None:
    async with serving(stage) as service:
        for model in ("", "anthropic/claude-sonnet-4-6", "compat/x"):
            task = await service.create(prompt="go", requested_model=model)
            with pytest.raises(CallerError) as met:
                await service.tasks.start(task, by=BY)
            assert met.value.code == "model_not_configured"
            assert await service.journal.runs(task_id=task) == []


async def test_a_requested_provider_is_the_one_that_is_used(tmp_path: Path) -> None:
    # Nothing listens there: the runs are only queued.
    nowhere = {"OPENROUTER_API_KEY": "k", "OPENROUTER_BASE_URL": "http://127.0.0.1:9"}
    stage = Stage(tmp_path, nowhere)
    model = stage.scenario([say("done")])
    own, path = "anthropic/claude-sonnet-4-5", model.removeprefix("scripted/")
    async with serving(stage, "--model", model) as service:
        for asked, provider, used in (
            ({"requested_provider": "scripted"}, "scripted", path),
            ({"requested_provider": "scripted", "requested_model": path}, "scripted", path),
            ({"requested_provider": "scripted", "requested_model": model}, "scripted", path),
            ({"requested_provider": "openrouter", "requested_model": own}, "openrouter", own),
        ):
            row = await service.tasks.start(await service.create(prompt="go", **asked), by=BY)
            assert (row.provider, row.model) == (provider, used)
        for asked in (
            {"requested_provider": "nonesuch"},
            {"requested_provider": "openrouter"},
            {"requested_provider": "nonesuch", "requested_model": path},
        ):
            task = await service.create(prompt="go", **asked)
            with pytest.raises(CallerError) as met:
                await service.tasks.start(task, by=BY)
            assert met.value.code in ("model_not_configured", "config")
            assert await service.journal.runs(task_id=task) == []


SANDBOXED = ("--auto-allow", "--sandbox", "auto")
GRANTS = TaskGrants(servers=("sandboxed",), variables=("PLACE", "MISSING"))


def server(policy: str = "auto", **env: str) -> dict[str, Any]:
    return {
        "name": "own",
        "command": sys.executable,
        "args": [SERVERS, "plain"],
        "env": env,
        "approval_policy": policy,
    }


async def test_line_57_a_servers_secrets_are_sealed_and_its_references_read_when_it_runs(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, {"PLACE": "from-the-service"})
    secret = "s3cr3t-of-the-server-0123"
    model = stage.scenario([call("mcp__own__environment", name="TAKEN_TOKEN")], [say("done")])
    wanted = {"prompt": "go", "requested_model": model}
    async with serving(stage, *SANDBOXED, grants=GRANTS) as service:
        row = await service.run(**wanted, mcp_servers=[server(OWN=secret, TAKEN_TOKEN="$PLACE")])
        assert row.status == "completed"
        # The server saw the value; the journal shows it as little as the literal one.
        assert (await service.fact(row.run_id, ToolCompleted)).output == "<redacted>"
        stored = b"".join(path.read_bytes() for path in stage.home.rglob("*") if path.is_file())
        assert b"$PLACE" in stored
        assert secret.encode() not in stored
        assert b"from-the-service" not in stored
        row = await service.run(**wanted, mcp_servers=[server(OWN="$MISSING")])
        failed = await service.fact(row.run_id, RunFailed)
        assert failed.code == "mcp_variable_unset"
        assert "MISSING" in failed.message
        hidden = {**server(), "args": ["${HOME}"]}
        assert "$NAME" in await refused(service, "invalid_request", **wanted, mcp_servers=[hidden])


async def test_line_44_a_blocked_server_is_not_called_and_the_run_goes_on(stage: Stage) -> None:
    model = stage.scenario([call("mcp__own__die")], [say("done")])
    async with serving(stage, *SANDBOXED, grants=GRANTS) as service:
        row = await service.run(prompt="go", requested_model=model, mcp_servers=[server("block")])
        assert row.status == "completed"
        blocked = await service.fact(row.run_id, PolicyToolBlocked)
        assert (blocked.mcp_server, blocked.mcp_tool, blocked.result) == ("own", "die", "blocked")
        assert blocked.reason == "approval_policy=block"
        for tool, end in (("die", ToolFailed), ("fail", ToolCompleted)):
            model = stage.scenario([call(f"mcp__own__{tool}")], [say("done")], name=tool)
            row = await service.run(prompt="go", requested_model=model, mcp_servers=[server()])
            assert row.status == "completed"
            ended = await service.fact(row.run_id, end)
            assert ended.result == ("failed" if tool == "die" else "tool_error")


@pytest.mark.parametrize(
    ("tool", "command"), [("add", "/bin/false"), ("nonesuch", sys.executable), ("add", "")]
)
async def test_line_44_a_call_of_a_blocked_server_is_blocked_also_if_it_could_not_run(
    stage: Stage, tool: str, command: str
) -> None:
    model = stage.scenario([call(f"mcp__own__{tool}", wrong=True)], [say("done")])
    blocking = server("block") | ({"command": command} if command else {})
    async with serving(stage, *SANDBOXED, grants=GRANTS) as service:
        row = await service.run(prompt="go", requested_model=model, mcp_servers=[blocking])
        assert row.status == "completed"
        blocked = await service.fact(row.run_id, PolicyToolBlocked)
        assert (blocked.mcp_server, blocked.mcp_tool, blocked.result) == ("own", tool, "blocked")
        assert (blocked.kind, blocked.reason) == ("mcp", "approval_policy=block")
        assert not {"tool.invoked", "tool.failed"} & set(await service.types(row.run_id))


async def test_line_45_a_gated_server_waits_before_it_is_called(stage: Stage) -> None:
    model = stage.scenario([call("mcp__own__add", a=1, b=2)], [say("done")])
    async with serving(stage, *SANDBOXED, grants=GRANTS) as service:
        task = await service.create(
            prompt="go", requested_model=model, mcp_servers=[server("require_approval")]
        )
        row = await service.tasks.start(task, by=BY)
        request = await service.parked(row.run_id)
        assert "tool.invoked" not in await service.types(row.run_id)
        await service.answer(request, granted=True)
        assert (await service.ended(row.run_id)).status == "completed"
        assert (await service.fact(row.run_id, ToolCompleted)).output == "3"


async def test_line_46_an_unknown_tool_and_bad_arguments_are_results(stage: Stage) -> None:
    model = stage.scenario([call("nonesuch"), call("bash", wrong=1)], [say("done")])
    async with serving(stage, "--auto-allow") as service:
        row = await service.run(prompt="go", requested_model=model)
        assert row.status == "completed"
        assert (await service.types(row.run_id)).count("tool.failed") == 2
