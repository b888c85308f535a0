"""`batten serve` as a real process with a home of its own, and a client for it."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.agent.stage import Stage
from tests.serve.http.wire import Answer, clients

PATIENCE_S = 60
Json = dict[str, Any]


class Service:
    """A server with its workers. It can be killed and started again on the same home."""

    python = sys.executable
    user: int | None = None
    """The user that it runs as; None for the one of the tests."""

    def __init__(self, stage: Stage, flags: tuple[str, ...]) -> None:
        self.stage = stage
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None
        self._is_shared = False
        self.url = ""

    async def start(self, *flags: str) -> None:
        """Start it; `flags` instead of those of the fixture."""
        assert not self._is_shared, "mark this test with own_service"
        with open(self.stage.directory / "serve.err", "ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *(self.python, "-P", "-m", "batten", "serve", "--port", "0", "--workers", "1"),
                *("--sandbox", "none", *(flags or self._flags)),
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
                env=self.stage.environ,
                cwd=self.stage.directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        self.url = line.decode().removeprefix("listening on ").strip()
        assert self.url.startswith("http"), (self.stage.directory / "serve.err").read_text()

    def beside(self, directory: Path) -> "Service":
        """The same server for a test with scenarios and a workspace of its own, which must not
        stop it.
        """
        stage = Stage(directory, {**self.stage.environ, "HOME": str(directory)})
        stage.home = self.stage.home
        found = Service(stage, self._flags)
        found.url = self.url
        found._is_shared = True
        return found

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """End it as an operator does; its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        assert not self._is_shared, "mark this test with own_service"
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(ProcessLookupError):
            process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            return await process.wait()

    async def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        return await self.request(method, f"/hecate/v1{path}", body, headers)

    async def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Ask for a path of any surface."""
        async with clients() as opened:
            connection = await opened.connect_to(self.url)
            return await connection.ask(method, path, body, headers)

    async def get(self, path: str) -> Any:
        """The `data` of an answer that must succeed."""
        return _data(await self.ask("GET", path))

    async def post(self, path: str, body: Any = None) -> Any:
        return _data(await self.ask("POST", path, {} if body is None else body))

    async def task(self, model: str, prompt: str = "go", **fields: Any) -> str:
        """Create a task in the workspace; its id."""
        asked = {
            "prompt": prompt,
            "workspace_mode": "in_place",
            "working_directory": str(self.stage.workspace),
            "requested_model": model,
            **fields,
        }
        created: Json = await self.post("/tasks", asked)
        return str(created["id"])

    async def started(self, model: str, prompt: str = "go", **fields: Any) -> "Run":
        """A run of a new task."""
        task_id = await self.task(model, prompt, **fields)
        run: Json = await self.post(f"/tasks/{task_id}/start")
        return Run(self, task_id, run["id"])


class Run:
    """One run, followed by its events."""

    def __init__(self, service: Service, task_id: str, run_id: str) -> None:
        self.service = service
        self.task_id = task_id
        self.run_id = run_id
        self.task_path = f"/tasks/{task_id}"
        self.path = f"{self.task_path}/runs/{run_id}"

    async def events(self) -> list[Json]:
        found: list[Json] = []
        while page := await self.service.get(f"{self.path}/events?limit=500&{_after(found)}"):
            found += page
        return found

    async def until(self, *types: str, where: Callable[[Json], bool] | None = None) -> Json:
        """The first event of these types, awaited."""
        found: list[Json] = []
        async with asyncio.timeout(PATIENCE_S):
            while True:
                page = await self.service.get(
                    f"{self.path}/events?limit=500&wait=20&{_after(found)}"
                )
                for event in page:
                    if event["type"] in types and (where is None or where(event)):
                        chosen: Json = event
                        return chosen
                found += page

    async def ended(self) -> Json:
        """The run once it has ended."""
        await self.until("run.finished", "run.failed", "run.cancelled")
        return await self.now()

    async def now(self) -> Json:
        run: Json = await self.service.get(self.path)
        return run

    async def task(self) -> Json:
        task: Json = await self.service.get(self.task_path)
        return task

    async def approval(self) -> Json:
        """The only pending approval, once the run is parked at it."""
        await self.until("approval.requested")
        (pending,) = await self.service.get(f"{self.task_path}/approvals?status=pending")
        found: Json = pending
        return found

    async def resolve(self, approval_id: str, decision: str, **more: Any) -> Answer:
        return await self.service.ask(
            "POST",
            f"{self.task_path}/approvals/{approval_id}/resolve",
            {"decision": decision, **more},
        )


def _after(found: list[Json]) -> str:
    return f"after_sequence={found[-1]['sequence'] if found else -1}"


def _data(answer: Answer) -> Any:
    assert answer.status in (200, 201), answer.body.decode()
    return answer.json["data"]


@asynccontextmanager
async def serving(
    directory: Path, *flags: str, environ: Mapping[str, str] | None = None
) -> AsyncGenerator[Service]:
    service = Service(Stage(directory, environ), flags)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()
