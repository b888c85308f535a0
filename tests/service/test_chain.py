"""The chain from a command in its sandbox to the user's files, by way of the service.

An agent may run its tests and nothing else, and no approver is asked. The tests look for every way
to the service that executes them, to let it work in the user's home without a sandbox.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.stage import Stage, bash, end, say
from tests.serve.http.wire import Answer
from tests.service.serving import Service
from tests.strangers import ORDINARY, python_path, readable_python
from tests.workspace.keepers import CONFINED, elsewhere

pytestmark = pytest.mark.attack

REFUSALS = {
    *("ConnectionRefusedError", "FileNotFoundError", "PermissionError", "OSError", 401, 403)
}
"""What an attempt may meet."""
ATTACK = """
import glob, http.client, json, os, socket, sys
home, user_home, model = sys.argv[1:4]
told = {}

class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)

def doors():
    path = os.path.join(home, "serve.sock")
    yield "serve.sock", lambda: Local(path, timeout=5)
    for port in sys.argv[4:]:
        for host in ("127.0.0.1", "::1"):
            yield f"tcp {host}", lambda: http.client.HTTPConnection(host, int(port), timeout=5)

def ask(open, method, path, body=None):
    headers = {"Host": "localhost", "Content-Type": "application/json"}
    connection = open()
    try:
        connection.request(method, path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()

task = {"prompt": "go", "workspace_mode": "in_place", "working_directory": user_home,
        "requested_model": model}
hook = {"url": "http://localhost:9/", "events": []}
asked = [("GET", "/audit"), ("GET", "/hecate/v1/tasks"), ("POST", "/webhooks", hook),
         ("POST", "/hecate/v1/tasks", task), ("GET", "/runs")]
for name, open_door in doors():
    for method, path, *body in asked:
        try:
            status, text = ask(open_door, method, path, *body)
        except Exception as error:
            told[f"{name} {method} {path}"] = type(error).__name__
            continue
        told[f"{name} {method} {path}"] = status
        if status < 300 and "tasks" in path and body:
            base = "/hecate/v1/tasks/" + json.loads(text)["data"]["id"]
            ask(open_door, "POST", base + "/start", {})
for pattern in ("*", "keys/*"):
    for path in filter(os.path.isfile, glob.glob(os.path.join(home, pattern))):
        try:
            open(path, "rb").close()
            told["read " + os.path.basename(path)] = "done"
        except OSError as error:
            told["read " + os.path.basename(path)] = type(error).__name__
try:
    open(os.path.join(user_home, ".bashrc"), "a").write("planted")
    told["write"] = "done"
except OSError as error:
    told["write"] = type(error).__name__
print(json.dumps(told))
"""


class Attacked(Service):
    """A service that executes hostile tests, and its owner as a client."""

    async def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        token = self.stage.home / "token"
        own = {"Authorization": f"Bearer {token.read_text().strip()}"} if token.exists() else {}
        return await super().request(method, path, body, {**own, **(headers or {})})


@asynccontextmanager
async def attacked(
    directory: Path, layer: str, user: str, *flags: str
) -> AsyncGenerator[tuple[Attacked, str]]:
    """A service whose agents may run `make test`, and a model that does. The directory is the home
    of its user.
    """
    allowed = ("--allow", "bash(make test)", "--sandbox", layer, "--no-runtime", *flags)
    stage = Stage(directory)
    service = Attacked(stage, allowed)
    if user == "ordinary" and os.geteuid() == 0:
        if (found := readable_python()) is None:
            pytest.skip("no interpreter that another user may execute")
        service.python, service.user = found, ORDINARY
        stage.environ["PYTHONPATH"] = python_path()
    elif user == "root" and os.geteuid() != 0:
        pytest.skip("we are not root")
    (directory / ".bashrc").write_text("# mine\n")
    line = f"echo planted >> {directory}/.bashrc"
    planting = stage.scenario([bash(line)], [say("done"), end()], name="planting")
    model = stage.scenario([bash("make test")], [say("done"), end()])
    port = stage.workspace / "port"
    (stage.workspace / "attack.py").write_text(ATTACK)
    line = f"@{service.python} attack.py {stage.home} {directory} {planting}"
    (stage.workspace / "Makefile").write_text(f"test:\n\t{line} $$(cat port)\n")
    port.touch()
    if service.user is not None:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, service.user, service.user)
    await service.start()
    try:
        port.write_text(service.url.rpartition(":")[2])
        yield service, model
    finally:
        await service.stop()


@pytest.mark.parametrize("flags", [(), ("--sandbox-network", "allow")], ids=["shut", "network"])
@pytest.mark.parametrize("user", ["root", "ordinary"])
@pytest.mark.parametrize("layer", CONFINED)
async def test_a_command_cannot_make_the_service_work_for_it(
    layer: str, user: str, flags: tuple[str, ...]
) -> None:
    with elsewhere() as directory:
        async with attacked(directory, layer, user, *flags) as (service, model):
            run = await service.started(model)
            assert (await run.ended())["status"] == "completed"
            (shown,) = [one for one in await run.events() if one["type"] == "tool.completed"]
            assert len(await service.get("/tasks")) == 1
            assert (await service.request("GET", "/webhooks")).json == []
        assert (directory / ".bashrc").read_text() == "# mine\n"
    told = msgspec.json.decode(shown["data"]["output"], type=dict[str, int | str])
    assert {asked: how for asked, how in told.items() if how not in REFUSALS} == {}
    assert {"serve.sock", "tcp", "write"} <= {asked.partition(" ")[0] for asked in told}
