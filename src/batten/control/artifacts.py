"""Artifacts for clients: create, find, list, pin and delete them; sealed ones are never given."""

import asyncio
import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, Conflict, NotFound
from batten.contract.facts import ArtifactCreated, ArtifactUpdated, Fact, GapArtifactCapped
from batten.contract.ids import new_artifact_id
from batten.control.patches import Patches
from batten.control.tasks import Tasks
from batten.journal.contract import ArtifactRow, Body, RunRow
from batten.journal.keeping import artifact_created, sealed_artifact
from batten.journal.recorder import redact_fact
from batten.protocols.hecate.artifacts import CREATED_ONCE, CreateArtifact, is_public
from batten.protocols.macp.artifacts import ATTACHED
from batten.redact.redactor import Redactor
from batten.wiring.quotas import bytes_of
from batten.workspace.patches import UNDER_REVIEW, encode, readable
from batten.workspace.patches import metadata as metadata_of

QUOTA_VARIABLE = "BATTEN_TASK_ARTIFACT_MIB"
_USUAL_QUOTA_MIB = 100
_OUR_METADATA = frozenset(
    {"sealed_artifact_id", "reverted_from_artifact_id", "auto_apply", CREATED_ONCE, ATTACHED}
)
"""Names that a client cannot give."""


class QuotaExceeded(CallerError):
    """A task has as many bytes of artifacts as its clients may add."""

    code = "quota_exceeded"


class Made(Struct, frozen=True):
    row: ArtifactRow
    run: RunRow
    is_new: bool
    """False if an equal one was there."""


class Artifacts:
    """The artifacts of one journal."""

    def __init__(self, tasks: Tasks, patches: Patches) -> None:
        self._tasks = tasks
        self._patches = patches
        self._journal = tasks.journal
        self._quota = quota_bytes(tasks.environ)

    async def find(self, artifact_id: str) -> tuple[ArtifactRow, RunRow]:
        """A public artifact and its run. Raises `NotFound`."""
        row = await self._journal.artifact(artifact_id)
        run = None if row is None else await self._journal.run(row.run_id)
        if row is None or run is None or not is_public(row):
            raise NotFound(f"there is no artifact {artifact_id}")
        return row, run

    async def find_in_run(
        self, task_id: str, run_id: str, artifact_id: str
    ) -> tuple[ArtifactRow, RunRow]:
        """A public artifact of this run of this task. Raises `NotFound`."""
        run = await self._tasks.run(task_id, run_id)
        row = await self._journal.artifact(artifact_id)
        if row is None or row.run_id != run_id or not is_public(row):
            raise NotFound(f"run {run_id} has no artifact {artifact_id}")
        return row, run

    async def create(self, asked: CreateArtifact, *, by: str, key: str = "") -> Made:
        """Store a client's artifact in a run, or find the one that it made before.

        Raises `NotFound` for an unknown run, `CallerError` for a patch without a path, and
        `QuotaExceeded`, which the run records too.
        """
        run = await self._journal.run(asked.run_id)
        if run is None or run.kind == "session" or asked.task_id not in (UNSET, run.task_id):
            of_task = "" if asked.task_id is UNSET else f" of task {asked.task_id}"
            raise NotFound(f"there is no run {asked.run_id}{of_task}")
        path = asked.metadata.get("target_path")
        if asked.kind == "patch" and not (isinstance(path, str) and path):
            raise CallerError("metadata.target_path is missing: the file that the patch changes")
        once = sha256(key.encode()).hexdigest() if key else ""
        return await self._create(run, asked, by=by, once=once)

    async def _create(self, run: RunRow, asked: CreateArtifact, *, by: str, once: str) -> Made:
        data = _clean(self._tasks.redactor, asked)
        body = await asyncio.to_thread(self._journal.inline, data)

        def is_it(row: ArtifactRow) -> bool:
            if row.kind != asked.kind or not is_public(row):
                return False
            is_repeated = once and row.metadata.get(CREATED_ONCE) == once
            is_of_call = once and asked.tool_call_id and row.tool_call_id == asked.tool_call_id
            return bool(is_repeated or is_of_call or row.sha256 == body.sha256)

        for row in await self._journal.artifacts(run.run_id, kind=asked.kind):
            if is_it(row):
                return Made(row, run, is_new=False)
        await self._check_room(run, body.size)
        metadata = {name: asked.metadata[name] for name in asked.metadata.keys() - _OUR_METADATA}
        if once:
            metadata[CREATED_ONCE] = once
        facts: list[Fact] = []
        bodies = [body]
        if asked.kind == "patch":
            sealed_fact, sealed, described = await self._exact_patch(run, asked)
            facts.append(sealed_fact)
            bodies.append(sealed)
            metadata |= described
        created = artifact_created(
            asked.kind,
            body,
            mime_type=asked.media_type(),
            summary=asked.summary,
            status="proposed" if asked.kind == "patch" else "created",
            tool_call_id=asked.tool_call_id,
            metadata=metadata,
        )
        facts.append(redact_fact(replace(created, by=by), self._tasks.redactor))

        made = await self._journal.append_unless(is_it, run.run_id, facts, bodies)
        if made is not None:
            return Made(made, run, is_new=False)
        row, _ = await self.find(created.artifact_id)
        return Made(row, run, is_new=True)

    async def attach(
        self, run: RunRow, label: str, given: Mapping[str, Any], inline: Any, *, by: str
    ) -> ArtifactRow:
        """Attach an artifact of the control plane to a run, without known secrets.

        Two equal ones are two. Raises `QuotaExceeded`.
        """
        authored = self._tasks.redactor.authored
        data = b"" if inline is None else msgspec.json.encode(authored.value(inline)[0])
        body = await asyncio.to_thread(self._journal.inline, data)
        await self._check_room(run, body.size)
        created = artifact_created(
            "tool_result_blob",
            body,
            mime_type="application/json",
            summary=label,
            metadata={ATTACHED: {**given, "has_inline": inline is not None}},
        )
        fact = redact_fact(replace(created, by=by), self._tasks.redactor)
        await self._journal.append(run.run_id, [fact], fence=None, bodies=[body])
        row, _ = await self.find(created.artifact_id)
        return row

    async def _exact_patch(
        self, run: RunRow, asked: CreateArtifact
    ) -> tuple[ArtifactCreated, Body, dict[str, Any]]:
        """A client's patch as the exact change of its file, sealed, and what describes it."""
        path = str(asked.metadata["target_path"])
        exact = await self._patches.exact_body(run, path, asked.body_base64)
        real = os.path.realpath(os.path.join(run.workspace_path, exact.path))
        if why := self._tasks.workspaces.unfit(os.path.dirname(real)):
            raise CallerError(f"{path} is in a directory that {why}", code="path_refused")
        sealed_fact, sealed = sealed_artifact(
            self._journal,
            self._tasks.seal_key(),
            run.run_id,
            encode(exact),
            summary=f"exact patch of {exact.path}",
            tool_call_id=asked.tool_call_id,
        )
        described = {
            **metadata_of(exact, readable(exact).stats),
            **UNDER_REVIEW,
            "sealed_artifact_id": sealed_fact.artifact_id,
        }
        return sealed_fact, sealed, described

    async def _check_room(self, run: RunRow, size: int) -> None:
        if run.task_id is None:
            return
        used = await self._journal.artifact_bytes(run.task_id)
        if used + size <= self._quota:
            return
        capped = GapArtifactCapped(
            artifact_id=new_artifact_id(),
            kept_bytes=0,
            original_size_bytes=size,
            quota="task_artifact_bytes",
        )
        await self._journal.append(run.run_id, [capped], fence=None)
        raise QuotaExceeded(
            f"task {run.task_id} has {used} bytes of artifacts, and may have {self._quota}: delete "
            f"some of them, or start the service with a larger {QUOTA_VARIABLE}"
        )

    async def pin(self, artifact_id: str, *, pinned: bool, by: str) -> tuple[ArtifactRow, RunRow]:
        """Pin an artifact, or take the pin away."""
        row, run = await self.find(artifact_id)
        if row.pinned != pinned:
            change = ArtifactUpdated(artifact_id, "pinned", row.pinned, pinned, by=by)
            try:
                await self._journal.append(run.run_id, [change], fence=None)
            except Conflict as error:
                if error.code != "artifact_changed":  # else another client did the same
                    raise
        return await self.find(artifact_id)

    async def delete(self, artifact_id: str, *, by: str) -> None:
        """Delete an artifact: it is no longer listed or given. Raises `Conflict` if pinned.

        Its bytes go with its run, which may need them to go on.
        """
        row, run = await self.find(artifact_id)
        gone = ArtifactUpdated(artifact_id, "deleted_at", None, timestamp(), by=by)
        try:
            await self._journal.append(run.run_id, [gone], fence=None)
        except Conflict as error:
            if error.code != "artifact_changed":
                raise
            raise NotFound(f"there is no artifact {row.artifact_id}") from error


def _clean(redactor: Redactor, asked: CreateArtifact) -> bytes:
    """The body without known secrets, if it is text, whatever type the client gave it."""
    try:
        return redactor.authored.text(asked.body_base64.decode()).encode()
    except UnicodeDecodeError:
        return asked.body_base64


def quota_bytes(environ: Mapping[str, str]) -> int:
    """The most bytes of artifacts of a task for a client to add to."""
    return bytes_of(environ, QUOTA_VARIABLE, _USUAL_QUOTA_MIB)
