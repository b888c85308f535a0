"""Creates the run of a descriptor: durable before it returns, and once for each idempotency key."""

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from batten.contract.errors import BattenError, CallerError, Conflict, NotFound
from batten.contract.facts import MacpRunDescribed, RunFailed
from batten.contract.ids import RunId, from_uuid, new_run_id
from batten.control.coordination.ids import journal_session
from batten.control.coordination.registries import FILE, Registries
from batten.control.coordination.run_facts import new_stream, queued
from batten.control.coordination.waiting import find_descriptor
from batten.control.described.agents import check_order, task_of, wrong
from batten.control.described.runtimes import unsupported_mode
from batten.control.tasks import Tasks
from batten.coordination.registry import BUILT_IN
from batten.journal.contract import NewRun
from batten.journal.recorder import Recorder, open_sealed, redact_fact
from batten.protocols.macp.descriptor import (
    CloneRun,
    RunDescriptor,
    abridged,
    check_session_id,
    cloned,
    concealed,
)
from batten.settings.control_plane import ControlPlaneSettings

KINDS = ("embedded", "rust", "agent")
LARGEST_DESCRIPTOR = 192 * 1024
"""Bytes of a descriptor in its fact, which views of the run hold; a larger one is sealed whole."""


class Made(Struct, frozen=True):
    """A run of the journal for a descriptor."""

    run_id: str
    session_id: str
    """On the protocol; empty for a run that was there."""
    is_new: bool


class Asker(Struct, frozen=True, kw_only=True):
    """Who asks for a run, and in which trace."""

    by: str
    traceparent: str = ""
    tracestate: str = ""
    """Sent on to a runtime elsewhere beside the trace."""
    cloned_from: str = ""


class _Described(Struct, frozen=True):
    """The fact that describes a run, before it is stored."""

    fact: MacpRunDescribed
    exact: bytes
    """The descriptor as it was sent."""
    is_clean: bool
    """Whether it holds no secret."""

    @property
    def clean(self) -> list[MacpRunDescribed]:
        return [self.fact] if self.is_clean else []

    def record_unless_clean(self, recorder: Recorder) -> None:
        if not self.is_clean:
            self.record(recorder)

    def record(self, recorder: Recorder) -> None:
        """Record it without secrets; the exact descriptor is sealed if it is another."""
        clean = redact_fact(self.fact, recorder.redactor)
        assert isinstance(clean, MacpRunDescribed)
        if msgspec.json.encode(clean.descriptor) != self.exact:
            sealed = recorder.seal(self.exact, summary="the descriptor of the run")
            clean = replace(clean, sealed_artifact_id=sealed)
        recorder.record(clean)


class DescribedRuns:
    """The described runs of one home."""

    def __init__(self, tasks: Tasks, settings: ControlPlaneSettings) -> None:
        self._tasks = tasks
        self._journal = tasks.journal
        self._settings = settings

    async def create(self, descriptor: RunDescriptor, asker: Asker) -> Made:
        """Queue the run of a checked descriptor, or find the one that its key has made.

        Raises `CallerError` for an unknown kind, `Conflict` for a session that has a run.
        """
        check_kind(descriptor)
        check_callback(descriptor)
        key = descriptor.idempotency_key
        run_id = new_run_id() if key is None else keyed_run_id(key)
        if key is not None and await self._journal.run(run_id) is not None:
            return Made(run_id, "", is_new=False)
        given = descriptor.session.session_id
        session_id = str(uuid4()) if given is UNSET else given
        if given is not UNSET:
            await self.check_free(session_id)
        try:
            await self._create(descriptor, run_id, session_id, asker)
        except Conflict as error:
            if error.code == "run_exists" and key is not None:
                return Made(run_id, "", is_new=False)
            raise
        return Made(run_id, session_id, is_new=True)

    async def clone(self, run_id: str, changes: CloneRun, asker: Asker) -> Made:
        """Queue a run like this one in a session of its own. Raises `CallerError` for a run that
        no client described.
        """
        stored = await self.descriptor(run_id)
        if stored is None:
            raise CallerError(
                "the run has no descriptor to clone: it was not created by POST /runs",
                code="VALIDATION_ERROR",
            )
        return await self.create(cloned(stored, changes), replace(asker, cloned_from=run_id))

    async def check(self, descriptor: RunDescriptor) -> list[str]:
        """Why `create` would refuse a descriptor."""
        found: list[str] = []
        checks = (check_session_id, check_kind, check_callback, self._check_agent, _check_size)
        for check in checks:
            try:
                check(descriptor)
            except BattenError as error:
                found.append(str(error))
        given = descriptor.session.session_id
        if given is not UNSET and not found:
            try:
                await self.check_free(given)
            except Conflict as error:
                found.append(str(error))
        return found

    def _check_agent(self, descriptor: RunDescriptor) -> None:
        if descriptor.runtime.kind == "agent":
            check_order(self._tasks, task_of(descriptor, by=""))

    async def check_free(self, session_id: str) -> None:
        """Raises `Conflict` if the session has a run."""
        row = await self._journal.session(journal_session(session_id))
        if row is not None and row.last_run_id is not None:
            raise _session_exists(session_id)

    async def _create(
        self, descriptor: RunDescriptor, run_id: RunId, session_id: str, asker: Asker
    ) -> None:
        described = self._described(descriptor, session_id, asker)
        if descriptor.runtime.kind == "agent":
            create = self._create_agent_run(descriptor, run_id, session_id, asker, described)
        else:
            endings = self._endings(descriptor)
            create = self._create_waiting_run(run_id, session_id, asker, described, endings)
        try:
            await create
        except Conflict as error:
            if error.code == "run_exists":
                raise
            raise _session_exists(session_id) from error

    def _described(self, descriptor: RunDescriptor, session_id: str, asker: Asker) -> "_Described":
        from batten.protocols.macp.normaliser import VERSION  # a server starts without it

        exact = msgspec.to_builtins(descriptor)
        exact["session"]["sessionId"] = session_id
        encoded = msgspec.json.encode(exact)
        settings = self._settings
        shown = abridged(concealed(exact), LARGEST_DESCRIPTOR)
        fact = MacpRunDescribed(
            session_id=session_id,
            descriptor=shown,
            normaliser=VERSION,
            redact=list(settings.macp_redact_patterns) or UNSET,
            by=asker.by or UNSET,
            elsewhere=is_elsewhere(descriptor, settings) or UNSET,
            cloned_from=asker.cloned_from or UNSET,
        )
        # One search of the whole text. An escaped character could hide a secret from it.
        plain = b"\\" not in encoded and shown is exact
        is_clean = plain and not self._tasks.redactor.authored.contains(encoded.decode())
        return _Described(fact, encoded, is_clean)

    async def _create_agent_run(
        self,
        descriptor: RunDescriptor,
        run_id: RunId,
        session_id: str,
        asker: Asker,
        described: "_Described",
    ) -> None:
        task = task_of(descriptor, by=asker.by)
        try:
            await self._tasks.start_described(
                task,
                run_id,
                journal_session(session_id),
                described.record,
                by=asker.by,
                traceparent=asker.traceparent,
                tracestate=asker.tracestate,
            )
        except Conflict:
            raise
        except CallerError as error:
            raise wrong(error) from error

    async def _create_waiting_run(
        self,
        run_id: RunId,
        session_id: str,
        asker: Asker,
        described: "_Described",
        endings: Sequence[RunFailed],
    ) -> None:
        def record(recorder: Recorder) -> None:
            described.record_unless_clean(recorder)
            recorder.record(*endings)

        identity = self._tasks.identity_beside(asker.tracestate)
        stream, opened = new_stream(session_id, self._tasks.identity)
        new = NewRun(
            run_id=run_id,
            kind="coordination",
            task_id=stream.task_id,
            session_id=stream.session_id,
            first=True,
        )
        stored = self._journal.create(stream, opened)
        try:
            await Recorder.create(
                self._journal,
                new,
                [queued(asker.by, asker.traceparent, identity), *described.clean],
                record,
                redactor=self._tasks.redactor,
                seal_key=self._tasks.seal_key,
                gather=self._tasks.gathering.wait,
            )
        except Conflict:
            with suppress(Conflict):
                await stored
                await self._remove(stream)
            raise
        with suppress(Conflict):  # left by a run that was refused
            await stored

    def _endings(self, descriptor: RunDescriptor) -> list[RunFailed]:
        """Why a session that opens here cannot: this runtime does not have its mode."""
        mode = descriptor.session.mode_name
        if mode in BUILT_IN or is_elsewhere(descriptor, self._settings):
            return []
        try:
            known = Registries(os.path.join(self._tasks.home, FILE)).modes.names
        except CallerError:  # the runtime that cannot read them says so
            return []
        return [] if mode in known else [_unsupported(mode, known)]

    async def _remove(self, stream: NewRun) -> None:
        """Remove the session of a run that another request has made first."""
        with suppress(NotFound):
            await self._journal.delete_session(stream.session_id or "", only_ended=True)

    async def descriptor(self, run_id: str) -> dict[str, Any] | None:
        """The descriptor of a run as its client sent it; None for a run without one."""
        fact = await find_descriptor(self._journal, run_id)
        if fact is None:
            return None
        if fact.sealed_artifact_id is UNSET:
            return fact.descriptor
        sealed = await open_sealed(self._journal, self._tasks.seal_key(), fact.sealed_artifact_id)
        exact: dict[str, Any] = msgspec.json.decode(sealed)
        return exact


def check_kind(descriptor: RunDescriptor) -> None:
    """Raises `CallerError` for a kind of runtime that there is not."""
    kind = descriptor.runtime.kind
    if kind not in KINDS:
        raise CallerError(
            f"runtime provider '{kind}' is not registered: use one of {', '.join(KINDS)}",
            code="VALIDATION_ERROR",
        )


def check_callback(descriptor: RunDescriptor) -> None:
    """Raises `CallerError` for a callback that no request can be sent to."""
    callback = descriptor.metadata.get("cancelCallback")
    if callback is None:
        return
    from batten.tools.outbound import check_url

    try:
        check_url(callback["url"])
    except CallerError as error:
        where = "session.metadata.cancelCallback.url"
        raise CallerError(f"{where}: {error}", code="VALIDATION_ERROR") from error


def _check_size(descriptor: RunDescriptor) -> None:
    abridged(msgspec.to_builtins(descriptor), LARGEST_DESCRIPTOR)


def is_elsewhere(descriptor: RunDescriptor, settings: ControlPlaneSettings) -> bool:
    """Whether the session opens on a runtime that is not the one of this home."""
    return descriptor.runtime.kind == "rust" and bool(settings.runtime_address)


def keyed_run_id(key: str) -> RunId:
    """The run of an idempotency key: the same in every process, so the journal keeps it unique."""
    digest = sha256(b"macp idempotency key " + key.encode()).digest()
    # With the bits of a UUID made from a name: clients check what they get for a UUID.
    return RunId(from_uuid(str(UUID(bytes=digest[:16], version=5)), "run"))


def _unsupported(mode: str, known: Sequence[str]) -> RunFailed:
    return RunFailed(
        code="MODE_NOT_SUPPORTED",
        message=unsupported_mode(mode, known),
        retriable=False,
        outcome="config",
        turns=0,
        cost_micros_usd=0,
        duration_ms=0,
    )


def _session_exists(session_id: str) -> Conflict:
    return Conflict(
        f"session {session_id} has a run already: give another session.sessionId, or none",
        code="SESSION_ALREADY_EXISTS",
    )
