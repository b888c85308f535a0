"""What a key with the scope operator cannot make the service run, read or connect to."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from batten.serve.http.keys import KeyStore
from tests.agent.stage import Stage, call, end, say
from tests.serve.http.wire import Answer, clients
from tests.service.serving import Json, Run, Service
from tests.service.test_patches import upload
from tests.tools.test_mcp import SERVERS
from tests.workspace.keepers import CONFINED

pytestmark = pytest.mark.attack

SERVICE_KEY = "a-key-of-the-service-0123456789"
SANDBOXED = ("--sandbox", "auto", "--allow-mcp-servers", "sandboxed")


class Operated(Service):
    """A service, and a client that has no more than an operator's key to it."""

    key = ""
    viewer = ""
    """The key of another client, which only reads."""

    async def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        async with clients() as opened:
            connection = await opened.connect_to(self.url)
            given = {"Authorization": f"Bearer {self.key}", **(headers or {})}
            return await connection.ask(method, path, body, given)

    async def refused(self, **fields: Any) -> tuple[int, str]:
        """The status and message of the error that a task meets, when created or started."""
        model = self.stage.scenario([say("Hello."), end()])
        wanted = {"prompt": "go", "requested_model": model, **fields}
        answer = await self.ask("POST", "/tasks", wanted)
        if answer.status == 200:
            task: Json = answer.json["data"]
            answer = await self.ask("POST", f"/tasks/{task['id']}/start")
        return answer.status, answer.error["message"]


@asynccontextmanager
async def operated(
    directory: Path, *flags: str, environ: dict[str, str] | None = None
) -> AsyncGenerator[Operated]:
    secrets = {"AUTH_API_KEYS": SERVICE_KEY, "SERVICE_DSN": "from-the-service"}
    stage = Stage(directory, {**secrets, **(environ or {})})
    service = Operated(stage, ("--auto-allow", "--no-runtime", *flags))
    _, service.key = KeyStore(str(stage.home)).create("op", "operator")
    _, service.viewer = KeyStore(str(stage.home)).create("reader", "viewer")
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


def program(script: str = "", **more: Any) -> Json:
    """A tool server that runs a script of the shell first."""
    line = f'{script}\nexec "{sys.executable}" "{SERVERS}" plain'
    return {"name": "own", "command": "/bin/sh", "args": ["-c", line], **more}


async def test_no_program_of_a_task_is_run_unless_the_service_allows_it(tmp_path: Path) -> None:
    server = program(f"touch {tmp_path}/ran")
    async with operated(tmp_path) as service:
        status, message = await service.refused(mcp_servers=[server])
        assert (status, "--allow-mcp-servers sandboxed" in message) == (403, True)
        far = {"name": "far", "url": "https://tools.example/mcp"}
        status, message = await service.refused(mcp_servers=[far])
        assert (status, "--allow-mcp-servers remote" in message) == (403, True)
    assert not (tmp_path / "ran").exists()


async def test_no_variable_is_given_to_a_tool_server_that_is_not_listed(tmp_path: Path) -> None:
    flags = (*SANDBOXED, "--allow-mcp-servers", "remote", "--allow-mcp-variable", "PLACE")
    far = {"name": "far", "url": "https://tools.example/"}
    servers = [program(env={"X": value}) for value in ("$AUTH_API_KEYS", "${SERVICE_DSN}", "$HOME")]
    servers += [{**far, "headers": {"X": value}} for value in ("$AUTH_API_KEYS", "$NOT_SET")]
    async with operated(tmp_path, *flags) as service:
        for server in servers:
            status, message = await service.refused(mcp_servers=[server])
            assert (status, "--allow-mcp-variable" in message) == (403, True), server
            assert SERVICE_KEY not in message


async def test_nothing_is_expanded_in_what_starts_a_program(tmp_path: Path) -> None:
    fields: list[Json] = [
        {"args": ["${AUTH_API_KEYS}"]},
        {"command": "${SHELL}"},
        {"env": {"X": "a${AUTH_API_KEYS}"}},
    ]
    async with operated(tmp_path, *SANDBOXED) as service:
        for field in fields:
            status, message = await service.refused(mcp_servers=[program() | field])
            assert (status, "write $NAME" in message) == (400, True), field


@pytest.mark.parametrize("layer", CONFINED)
async def test_a_program_of_a_task_runs_in_the_sandbox_and_sees_no_secret(
    layer: str, tmp_path: Path
) -> None:
    places = "outside", "home", "workspace"
    script = "\n".join(f"echo x > {tmp_path}/{place}/written" for place in places)
    (tmp_path / "outside").mkdir()
    names = ("AUTH_API_KEYS", "SERVICE_DSN", "X", "PLACE")
    asked = [call("mcp__own__environment", f"c{n}", name=name) for n, name in enumerate(names)]
    flags = ("--sandbox", layer, "--allow-mcp-servers", "sandboxed")
    granted = ("--allow-mcp-variable", "HARMLESS")
    environ = {"HARMLESS": "from-the-list", "PLACE": "not-on-it"}
    async with operated(tmp_path, *flags, *granted, environ=environ) as service:
        model = service.stage.scenario(asked, [say("done"), end()])
        server = program(script, env={"X": "$HARMLESS"})
        run = await service.started(model, mcp_servers=[server])
        assert (await run.ended())["status"] == "completed"
        events = await run.events()
    outputs = [one["data"]["output"] for one in events if one["type"] == "tool.completed"]
    assert outputs == ["(unset)", "(unset)", "from-the-list", "(unset)"]
    written = [place for place in places if (tmp_path / place / "written").exists()]
    assert written == ["workspace"]


async def test_a_program_of_a_task_changes_nothing_where_the_task_only_reads(
    tmp_path: Path,
) -> None:
    async with operated(tmp_path, *SANDBOXED) as service:
        model = service.stage.scenario([call("mcp__own__add", a=1, b=2)], [say("done"), end()])
        server = program(f"echo x > {service.stage.workspace}/written")
        run = await service.started(model, mcp_servers=[server], sandbox_read_only=True)
        assert (await run.ended())["status"] == "completed"
        assert not (service.stage.workspace / "written").exists()


async def test_a_task_cannot_take_the_name_of_a_tool_server_of_the_service(tmp_path: Path) -> None:
    config = '{"mcpServers": {"own": {"command": "/bin/false"}}}'
    async with operated(tmp_path, *SANDBOXED, "--mcp-config", config) as service:
        model = service.stage.scenario([say("done"), end()])
        run = await service.started(model, mcp_servers=[program()])
        ended = await run.ended()
    assert ended["status"] == "failed"
    assert "has the name of a tool server of the service" in ended["last_error"]


async def test_what_the_service_no_longer_allows_is_refused_when_the_run_begins(
    tmp_path: Path,
) -> None:
    async with operated(tmp_path, *SANDBOXED) as service:
        model = service.stage.scenario([say("done"), end()])
        task = await service.task(model, mcp_servers=[program(f"touch {tmp_path}/workspace/ran")])
        await service.stop()
        await service.start("--auto-allow", "--no-runtime")
        started: Json = await service.post(f"/tasks/{task}/start")
        ended = await Run(service, task, started["id"]).ended()
    assert ended["status"] == "failed"
    assert "--allow-mcp-servers sandboxed" in ended["last_error"]
    assert not (tmp_path / "workspace/ran").exists()


@pytest.mark.parametrize("flags", [(), ("--allow-task-dir", "granted")], ids=["usual", "listed"])
async def test_no_run_writes_where_other_programs_of_the_user_execute_what_they_find(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    home = tmp_path / "user"
    tools = tmp_path / "tools"
    for folder in (home / ".config/fish", home / "work", tools, tmp_path / "granted"):
        folder.mkdir(parents=True)
    linked = tmp_path / "link"
    linked.symlink_to(home)
    unfit = [tmp_path, home, home / ".config", home / ".config/fish", linked, linked / ".config"]
    unfit += [tools, Path("/"), Path("/etc"), Path("/usr/lib")]
    environ = {"HOME": str(home), "PATH": f"{tools}:/usr/bin:/bin"}
    async with operated(tmp_path, *flags, environ=environ) as service:
        for place in map(str, unfit):
            here = {"working_directory": place, "workspace_mode": "in_place"}
            status, message = await service.refused(**here)
            assert (status, "--allow-task-dir" in message) == (400, True), place
            copied = {"working_directory": place, "sandbox_allowed_root": place}
            assert (await service.refused(**copied))[0] == 403, place
            described = agent_run(workingDirectory=place, workspaceMode="in_place")
            answer = await service.request("POST", "/runs", described)
            assert (answer.status, "--allow-task-dir" in answer.json["message"]) == (400, True)


async def test_a_service_may_name_the_only_directories_of_its_tasks(tmp_path: Path) -> None:
    home = tmp_path / "user"
    (home / ".dotfiles/below").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    flags = ("--allow-task-dir", str(home / ".dotfiles"))
    async with operated(tmp_path, *flags, environ={"HOME": str(home)}) as service:
        for mode in ("clone", "in_place"):
            model = service.stage.scenario([say("done"), end()])
            named = str(home / ".dotfiles/below")
            run = await service.started(model, working_directory=named, workspace_mode=mode)
            assert (await run.ended())["status"] == "completed"
            elsewhere = {"working_directory": str(tmp_path / "elsewhere"), "workspace_mode": mode}
            status, message = await service.refused(**elsewhere)
            assert (status, "in none of the directories" in message) == (400, True)


async def test_a_viewer_learns_nothing_of_the_directories_that_runs_could_use(
    tmp_path: Path,
) -> None:
    async with operated(tmp_path) as service:
        described = agent_run(workingDirectory=str(tmp_path / "none"), workspaceMode="in_place")
        assert (await service.request("POST", "/runs/validate", described)).status == 200
        service.key = service.viewer
        assert (await service.request("POST", "/runs/validate", described)).status == 403


async def test_an_old_run_in_a_home_opens_no_way_to_write_there(tmp_path: Path) -> None:
    home = tmp_path / "user"
    (home / ".config/fish").mkdir(parents=True)
    (home / "work").mkdir()
    for name in (".config/fish/config.fish", "notes", "work/notes"):
        (home / name).write_text("one\n")
    environ = {"HOME": str(home)}
    async with operated(tmp_path, "--allow-task-dir", str(home), environ=environ) as service:
        model = service.stage.scenario([say("done"), end()])
        run = await service.started(model, working_directory=str(home))
        assert (await run.ended())["status"] == "completed"
        await service.stop()
        await service.start("--auto-allow", "--no-runtime")
        for name, code in ((".config/fish/config.fish", 400), ("notes", 400), ("work/notes", 201)):
            answer = await upload(service, run, name, "one", "two")
            assert answer.status == code, answer.body
            assert code == 201 or answer.error["code"] == "path_refused"
        again: Json = await service.post(f"{run.path}/continue", {"prompt": "more"})
        ended = await Run(service, run.task_id, again["id"]).ended()
        assert (ended["status"], "holds the home directory" in ended["last_error"]) == (
            "failed",
            True,
        )


@pytest.mark.parametrize("spelling", ["mcpServers", "mcp_servers"])
async def test_a_described_run_brings_no_program_either(spelling: str, tmp_path: Path) -> None:
    async with operated(tmp_path, *SANDBOXED) as service:
        body = agent_run(
            model=service.stage.scenario([say("done"), end()]),
            workingDirectory=str(service.stage.workspace),
            workspaceMode="in_place",
            **{spelling: [program(f"touch {tmp_path}/workspace/ran")]},
        )
        answer = await service.request("POST", "/runs", body)
        assert answer.status == 202, answer.body
        feed = await service.ask("GET", "/events?event_type=run.finished,run.failed&wait=20")
        assert [one["type"] for one in feed.json["data"]] == ["run.finished"]
    assert not (tmp_path / "workspace/ran").exists()


def agent_run(**metadata: Any) -> Json:
    return {
        "mode": "live",
        "runtime": {"kind": "agent"},
        "session": {
            "modeName": "macp.mode.task.v1",
            "modeVersion": "1.0.0",
            "configurationVersion": "config.default",
            "ttlMs": 60_000,
            "participants": [{"id": "agent"}],
            "metadata": {"prompt": "go", **metadata},
        },
    }
