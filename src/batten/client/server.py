"""A service over HTTP: start runs, follow their events by cursor, answer their requests.

async with connect("http://127.0.0.1:8765") as server:
    result = await server.ask("Why does the build fail?", workspace="/srv/repo")
"""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from batten.client.frames import SILENT_S
from batten.client.history import RunInfo
from batten.client.home_service import default_home, token_for, with_address
from batten.client.result import Result
from batten.client.served import ServedResult
from batten.contract.envelope import Envelope, decode
from batten.contract.errors import CallerError, NotFound, PeerError
from batten.protocols.rows import MOST, PREFIX

if TYPE_CHECKING:
    from batten.client.link import Link

_TASKS = "/hecate/v1/tasks"


class PendingRequest(Struct, frozen=True, kw_only=True):
    """A question that a run waits for. `Server.allow` and `Server.deny` answer it."""

    request_id: str
    run_id: str
    request_class: str
    """`approval`, `user_input`, …"""
    tool_call_id: str
    summary: str
    digest: str
    """SHA-256 of what is asked."""
    deadline_at: datetime | None
    status: str
    decision: str | None
    by: str | None


class ArtifactInfo(Struct, frozen=True, kw_only=True):
    """Something that a run produced; `Server.body` reads it."""

    artifact_id: str
    run_id: str
    kind: str
    status: str
    size_bytes: int
    sha256: str
    mime_type: str
    summary: str
    created_at: datetime


class _Info(RunInfo, frozen=True, kw_only=True):
    """A run as the service lists it."""

    task_id: str | None


class _Runs(Struct, frozen=True):
    data: list[RunInfo]


class _Requests(Struct, frozen=True):
    data: list[PendingRequest]


class _Artifact(ArtifactInfo, frozen=True, kw_only=True):
    """An artifact as the service lists it."""

    deleted_at: str | None = None

    @property
    def is_readable(self) -> bool:
        return self.kind != "sealed" and self.deleted_at is None


class _Artifacts(Struct, frozen=True):
    data: list[_Artifact]


class _Patch(Struct, frozen=True):
    """A change to one file."""

    id: str
    reverted_at: str | None = None
    reverted_from_artifact_id: str = ""

    @property
    def is_in_force(self) -> bool:
        return self.reverted_at is None and not self.reverted_from_artifact_id


class _PatchItem(Struct, frozen=True):
    artifact: _Patch


class _Patches(Struct, frozen=True):
    data: list[_PatchItem]


class _Named(Struct, frozen=True):
    id: str


class _Reply(Struct, frozen=True):
    data: _Named


class _Page(Struct, frozen=True):
    data: list[msgspec.Raw]


class Server:
    """A connection to a service.

    Raises `Unreachable`, `NoReply` or `ServerRefused` if it does not do what is asked, `PeerError`
    if it is no service of Batten, `NotFound` and `Conflict` for what it says of the request.
    """

    def __init__(self, link: "Link") -> None:
        self._link = link

    async def start(
        self,
        prompt: str,
        *,
        workspace: str | os.PathLike[str] | None = None,
        model: str | None = None,
        system: str | None = None,
        budget_usd: float | None = None,
        mode: Literal["in_place", "clone", "worktree"] = "in_place",
        task: dict[str, Any] | None = None,
    ) -> str:
        """Create a task and start it; the id of its run. It goes on without this client.

        `workspace` is an absolute path on the machine of the service; without one the run works in
        an empty directory. `task` has further fields of `POST /hecate/v1/tasks`.
        """
        fields: dict[str, Any] = {"prompt": prompt, **(task or {})}
        if workspace is not None:
            fields |= {"working_directory": os.fspath(workspace), "workspace_mode": mode}
        given = {"requested_model": model, "system_prompt": system}
        fields |= {name: value for name, value in given.items() if value is not None}
        if budget_usd is not None:
            fields["budget_micros_usd"] = round(budget_usd * 1_000_000)
        made = await self._link.post(_TASKS, _Reply, fields)
        return (await self._link.post(f"{_TASKS}/{made.data.id}/start", _Reply)).data.id

    async def go_on(self, run_id: str, prompt: str) -> str:
        """Continue an ended run with another prompt; the id of the new run."""
        path = await self._path(run_id)
        return (await self._link.post(f"{path}/continue", _Reply, {"prompt": prompt})).data.id

    async def ask(
        self,
        prompt: str,
        *,
        workspace: str | os.PathLike[str] | None = None,
        model: str | None = None,
        system: str | None = None,
        budget_usd: float | None = None,
    ) -> Result:
        """Start a run and wait for its result."""
        run_id = await self.start(
            prompt, workspace=workspace, model=model, system=system, budget_usd=budget_usd
        )
        return await self.result(run_id)

    async def result(self, run_id: str) -> Result:
        """How a run ended; waits until it has."""
        fold = ServedResult(run_id)
        async with aclosing(self.events(run_id, follow=True)) as events:
            async for event in events:
                fold.observe(event)
                if fold.result is not None:
                    return fold.result
        raise NotFound(f"the ending of {run_id} is not stored any more")

    async def events(
        self, run_id: str, *, after: int = -1, follow: bool = False
    ) -> AsyncGenerator[Envelope, None]:
        """The stored events of a run above a sequence, with `data` as a typed fact.

        With `follow` it goes on to the end of the run, also through a restart of the service. Close
        it (`aclosing`) if you stop before its end.
        """
        path = f"{await self._path(run_id)}/events"
        if follow:
            async with aclosing(self._link.frames(path, after=after)) as pages:
                async for frames in pages:
                    for frame in frames:
                        yield _envelope(frame.data)
            return
        while True:
            query = {"after_sequence": after, "limit": MOST}
            page = (await self._link.get(path, _Page, query)).data
            for body in page:
                envelope = _envelope(bytes(body))
                after = envelope.sequence
                yield envelope
            if len(page) < MOST:
                return

    async def runs(
        self,
        *,
        workspace: str | os.PathLike[str] | None = None,
        session: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[RunInfo]:
        """The newest runs first, those that fit all filters. `after` is the last run of the page
        before.
        """
        found: list[RunInfo] = []
        while len(found) < limit:
            size = min(limit - len(found), MOST)
            query = {
                "workspace_path": None if workspace is None else os.fspath(workspace),
                "session_id": session,
                "since": _time(since),
                "until": _time(until),
                "after": after,
                "limit": size,
            }
            page = (await self._link.get(f"{PREFIX}/runs", _Runs, query)).data
            found += page
            if len(page) < size:
                break
            after = page[-1].run_id
        return found

    async def run(self, run_id: str) -> RunInfo:
        return await self._link.get(f"{PREFIX}/runs/{run_id}", RunInfo)

    async def requests(self, run_id: str | None = None) -> list[PendingRequest]:
        """Unanswered requests, of one run or of all."""
        query = {"run_id": run_id}
        found = (await self._link.get(f"{PREFIX}/requests", _Requests, query)).data
        return [request for request in found if request.status == "pending"]

    async def allow(
        self,
        request: PendingRequest,
        note: str = "",
        *,
        scope: Literal["once", "session"] = "once",
    ) -> None:
        """Approve a call, or answer a question with `note`. Raises `Conflict` if another answer was
        first. `session` approves every such call of the task.
        """
        await self._answer(request, "approve", note, halt=False, scope=scope)

    async def deny(self, request: PendingRequest, note: str = "", *, halt: bool = False) -> None:
        """Refuse; the agent is told and goes on, unless `halt` ends the run."""
        await self._answer(request, "reject", note, halt=halt)

    async def _answer(
        self,
        request: PendingRequest,
        decision: str,
        note: str,
        *,
        halt: bool,
        scope: str = "once",
    ) -> None:
        task = (await self._row(request.run_id)).task_id
        path = f"{_TASKS}/{task}/approvals/{request.request_id}/resolve"
        body = {
            "decision": decision,
            "note": note,
            "scope": scope,
            "halt": halt,
            "digest": request.digest,
        }
        await self._link.post(path, dict[str, Any], body)

    async def cancel(self, run_id: str, reason: str = "") -> None:
        """Ask a run to end; one that has ended stays as it is."""
        path = f"{await self._path(run_id)}/cancel"
        await self._link.post(path, dict[str, Any], {"reason": reason})

    async def artifacts(self, run_id: str) -> list[ArtifactInfo]:
        """What a run produced, the oldest first: without what is sealed, or was deleted."""
        query = {"run_id": run_id}
        found = (await self._link.get(f"{PREFIX}/artifacts", _Artifacts, query)).data
        return [one for one in found if one.is_readable]

    async def body(self, artifact_id: str) -> bytes:
        """The bytes of an artifact."""
        return await self._link.fetch("GET", f"/hecate/v1/artifacts/{artifact_id}/raw")

    async def diff(self, run_id: str, *, proposed: bool = False) -> bytes:
        """What a run changed and nobody reverted, as unified diffs in order; or what it proposes.

        Without files that only commands changed: `workspace.changed_by_command` names those.
        """
        path = f"{await self._path(run_id)}/patches"
        query = {"status": "proposed" if proposed else "applied"}
        patches = [item.artifact for item in (await self._link.get(path, _Patches, query)).data]
        bodies = [await self.body(patch.id) for patch in patches if patch.is_in_force]
        return b"".join(bodies)

    async def _row(self, run_id: str) -> _Info:
        return await self._link.get(f"{PREFIX}/runs/{run_id}", _Info)

    async def _path(self, run_id: str) -> str:
        return f"{_TASKS}/{(await self._row(run_id)).task_id}/runs/{run_id}"


@asynccontextmanager
async def connect(
    server: str = "",
    *,
    key: str = "",
    silent_s: float = SILENT_S,
    patience_s: float = 60.0,
) -> AsyncGenerator[Server, None]:
    """A service at `http://HOST:PORT`, `https://…` or `unix:PATH`; default: `BATTEN_SERVER`.

    `key` is an API key; default: `BATTEN_SERVER_KEY`, else the token of our home, if its service
    listens at that address. `silent_s` is the longest wait for an answer;
    a followed run waits `patience_s` for a service that is gone.
    """
    address = server or os.environ.get("BATTEN_SERVER", "")
    if not address:
        raise CallerError("no service is named: connect('http://HOST:PORT'), or BATTEN_SERVER")
    if address == "local":
        raise CallerError(
            "`local` is for `batten -p`; connect to a service of this machine by its URL, or by"
            " unix:PATH with the path of serve.sock below its home"
        )
    key = key or os.environ.get("BATTEN_SERVER_KEY", "")
    if not key:
        home = default_home(os.environ)
        address = with_address(address, home)
        key = token_for(address, home)
    from batten.client.link import Link  # its HTTP client takes long to import

    link = Link(address, key, silent_s=silent_s, patience_s=patience_s)
    try:
        yield Server(link)
    finally:
        await link.close()


def _envelope(body: bytes) -> Envelope:
    try:
        return decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise PeerError(f"the service sends what is no event: {error}") from error


def _time(moment: datetime | None) -> str | None:
    """A time as the journal writes it."""
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
