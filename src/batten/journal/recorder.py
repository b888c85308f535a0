"""Appends one run's facts to the journal, redacted, in order and fenced.

Streamed text is redacted where it is cut (`batten.redact.stream`) and passes unchanged;
everything else is redacted here, so that no fact can miss it. The words of a model or a person are
not rewritten by guesses.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Unpack

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from batten.contract import facts
from batten.contract.envelope import Envelope, decode
from batten.contract.errors import NotFound, Refused
from batten.contract.facts import Fact
from batten.contract.facts.artifact import ArtifactKind
from batten.journal.contract import Body, BodyWriter, Journal, Lease, NewRun, Stored
from batten.journal.fitting import cut_to_fit, fits
from batten.journal.keeping import LARGEST_TEXT, ArtifactDetails, artifact_created, sealed_artifact
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey

Content = dict[str, bytes]
"""Plain bytes of artifacts, by artifact id."""

_log = logging.getLogger("batten.run")
_REDACTED_AS_STREAMS = frozenset(
    {
        facts.AssistantTextDelta,
        facts.AssistantTextComplete,
        facts.AssistantThinkingDelta,
        facts.AssistantThinkingComplete,
        facts.ToolShellOutputChunk,
    }
)
_AUTHORED = frozenset(
    {
        facts.ApprovalRequested,
        facts.ApprovalResolved,
        facts.AssistantFinalAnswer,
        facts.AssistantToolCallProposed,
        facts.ContextCompacted,
        facts.MacpPanelConvened,
        facts.MacpRunDescribed,
        facts.RequestClosed,
        facts.RequestOpened,
        facts.RunCancelled,
        facts.RunCancelRequested,
        facts.TaskCreated,
        facts.TaskUpdated,
        facts.ToolInvoked,
        facts.ToolShellCommand,
        facts.ToolTodoWriteUpdated,
        facts.UserMessage,
    }
)
"""Facts with the words of a model or a person."""
_AUTHORED_FIELDS = frozenset({"pattern", "query"})
"""Fields of other facts that repeat what a model wrote."""
AUTHORED_RESULTS = frozenset({"agent", "ask_user"})
"""Kinds of tools whose results are the words of a model or a person."""
_SHORTEST_SECRET = 6


def _unobserved(fact: Fact, content: Content) -> None:
    """For facts that are folded when they are read, not while they are written."""


class Recorder:
    """Appends one run's facts. `observe` receives each fact redacted and whole, with the content of
    its new artifacts; a reader that uses `whole_fact` sees the same later.
    """

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        *,
        task_id: str | None,
        redactor: Redactor,
        seal_key: Callable[[], SealKey],
        observe: Callable[[Fact, Content], None] = _unobserved,
    ) -> None:
        self.journal = journal
        self.lease = lease
        self.task_id = task_id
        self.redactor = redactor
        self._seal_key = seal_key
        self._observe = observe
        self._content: Content = {}
        """Bytes of `remember`, until the observer takes them."""
        self._unsent: tuple[list[Fact], list[Body]] | None = None
        self.hold: Callable[[], Awaitable[None]] | None = None
        """Renews expired leases; awaited before an effect begins."""
        self.created: list[Stored] = []
        """What was stored with the creation of the run, if this created it."""
        self.first_facts: list[Fact] = []
        """The facts of `created`."""
        self.call_ids: set[str] = set()
        """Ids of the tool calls of the run, its parent and its children."""

    @property
    def run_id(self) -> str:
        return self.lease.run_id

    @classmethod
    async def create(
        cls,
        journal: Journal,
        new: NewRun,
        facts: Sequence[Fact],
        first_words: "Callable[[Recorder], object]",
        *,
        redactor: Redactor,
        seal_key: Callable[[], SealKey],
        observe: Callable[[Fact, Content], None] = _unobserved,
        under: Lease | None = None,
        gather: Callable[[], Awaitable[None]] | None = None,
        of_session: Sequence[Fact] = (),
    ) -> "Recorder":
        """Create a run together with the facts that `first_words` records: all of them or none.

        `gather` lets others write too before the commit.
        """
        recorder = cls(
            journal,
            Lease(new.run_id, 0, new.worker_id, ""),
            task_id=new.task_id,
            redactor=redactor,
            seal_key=seal_key,
            observe=observe,
        )
        unsent = recorder._unsent = ([], [])
        first_words(recorder)
        recorder._unsent = None
        said, bodies = unsent
        recorder.first_facts = [*facts, *said]
        created = journal.create(
            new, recorder.first_facts, bodies=bodies, under=under, of_session=of_session
        )
        if gather is not None:
            await gather()
        lease, recorder.created = await created
        recorder.lease = lease or recorder.lease
        return recorder

    def record(self, *facts: Fact, bodies: tuple[Body, ...] = ()) -> Awaitable[list[Stored]]:
        """Append facts in order. They are queued; awaiting waits until they are durable."""
        clean = [redact_fact(fact, self.redactor) for fact in facts]
        stored = self._send([self._fitting(fact) for fact in clean], bodies)
        if _log.isEnabledFor(logging.DEBUG):
            self._log_types(clean)
        for fact in clean:
            self._observe(fact, self._content)
        return stored

    def _log_types(self, clean: list[Fact]) -> None:
        for fact in clean:
            if not isinstance(fact, facts.AssistantTextDelta):
                _log.debug("run=%s recorded %s", self.run_id, fact.type)

    def _fitting(self, fact: Fact) -> Fact:
        """The fact, cut if it is too large for an envelope."""
        if fits(fact):
            return fact
        whole = self.artifact(
            "tool_result_blob",
            msgspec.json.encode(fact),
            mime_type="application/json",
            summary=f"the whole of {fact.type}",
        )
        return cut_to_fit(fact, whole)

    def _send(self, facts: list[Fact], bodies: tuple[Body, ...]) -> Awaitable[list[Stored]]:
        if self._unsent is None:
            return self.journal.append(self.run_id, facts, fence=self.lease.fence, bodies=bodies)
        self._unsent[0].extend(facts)
        self._unsent[1].extend(bodies)
        return _Unsent()

    def artifact(
        self,
        kind: ArtifactKind,
        data: bytes | Body,
        *,
        tool_call_id: str | None = None,
        refused_bytes: int = 0,
        remember: bool = False,
        **details: Unpack[ArtifactDetails],
    ) -> str:
        """Store a body that is already free of secrets. Returns the artifact's id.

        `remember` hands the bytes to the observer, with the next fact that names the artifact.
        """
        body = self.journal.inline(data) if isinstance(data, bytes) else data
        created = artifact_created(kind, body, tool_call_id=tool_call_id, **details)
        artifact_id = created.artifact_id
        self.record(created, bodies=(body,))
        if remember and isinstance(data, bytes):
            self._content[artifact_id] = data
        if refused_bytes:
            self.record(
                facts.GapArtifactCapped(
                    artifact_id=artifact_id,
                    kept_bytes=body.size,
                    original_size_bytes=body.size + refused_bytes,
                    quota="artifact_bytes",
                )
            )
        return artifact_id

    def keep_long(
        self, text: str, kind: ArtifactKind, *, summary: str, remember: bool = True
    ) -> str | None:
        """Store the whole of a clean text that is too long for a fact; None if it is short."""
        if len(text) <= LARGEST_TEXT:
            return None
        return self.artifact(
            kind, text.encode(), mime_type="text/plain", summary=summary, remember=remember
        )

    async def body_writer(self) -> BodyWriter:
        return await self.journal.body_writer(task_id=self.task_id)

    def seal(
        self,
        data: bytes,
        *,
        summary: str,
        tool_call_id: str | None = None,
        remember: bool = False,
    ) -> str:
        """Store bytes encrypted, to get them back unchanged. Returns the artifact's id.

        `remember` hands the bytes to the observer, with the next fact that names the artifact.
        """
        created, body = sealed_artifact(
            self.journal,
            self._seal_key(),
            self.run_id,
            data,
            summary=summary,
            tool_call_id=tool_call_id,
        )
        self.record(created, bodies=(body,))
        if remember:
            self._content[created.artifact_id] = data
        return created.artifact_id

    def forget(self, artifact_id: str) -> None:
        """Drop remembered bytes that no fact will name."""
        self._content.pop(artifact_id, None)

    async def unseal(self, artifact_id: str) -> bytes:
        """The bytes of a sealed artifact of this session. Raises `Refused` without the key."""
        return await open_sealed(self.journal, self._seal_key(), artifact_id)


class _Unsent:
    """The receipt of a fact that is stored with the creation of its run; it cannot be awaited."""

    def __await__(self) -> Generator[Any, None, list[Stored]]:
        yield from ()
        raise RuntimeError("the run is not created yet")


async def whole_fact(fact: Fact, journal: Journal) -> Fact:
    """A fact as it was before it was cut to fit its envelope."""
    if fact.whole_artifact_id is UNSET:
        return fact
    whole = await load_artifact(journal, fact.whole_artifact_id)
    return msgspec.json.decode(whole, type=type(fact))


async def whole_envelope(stored: Stored, journal: Journal) -> Envelope:
    """A stored envelope with its whole fact."""
    envelope = decode(stored.body)
    if envelope.data.whole_artifact_id is UNSET:
        return envelope
    return msgspec.structs.replace(envelope, data=await whole_fact(envelope.data, journal))


def whole_envelope_now(stored: Stored, journal: Journal) -> Envelope:
    """Like `whole_envelope`, from a thread without an event loop."""
    envelope = decode(stored.body)
    fact: Fact = envelope.data
    if fact.whole_artifact_id is UNSET:
        return envelope
    whole = msgspec.json.decode(journal.load_now(fact.whole_artifact_id), type=type(fact))
    return msgspec.structs.replace(envelope, data=whole)


async def load_artifact(journal: Journal, artifact_id: str) -> bytes:
    """The whole body of an artifact."""
    row = await journal.artifact(artifact_id)
    if row is None:
        raise NotFound(f"no artifact {artifact_id}")
    return await journal.body(row.sha256)


async def open_sealed(journal: Journal, key: SealKey, artifact_id: str) -> bytes:
    """Decrypt a sealed artifact, which is bound to the run that made it."""
    row = await journal.artifact(artifact_id)
    if row is None:
        raise NotFound(f"no artifact {artifact_id}")
    try:
        sealed = await journal.sealed_body(row.sha256)
    except NotFound as error:
        raise Refused(
            f"the sealed body of {artifact_id} is not in this home: the bundle that its session was"
            " imported from left it out",
            code="seal_unavailable",
        ) from error
    return key.unseal(sealed, str(row.metadata["run_id"]).encode())


async def as_written(envelope: Envelope, journal: Journal, key: Callable[[], SealKey]) -> Envelope:
    """An envelope with the answer as the model wrote it, for the client that asked for it."""
    fact = envelope.data
    if isinstance(fact, facts.AssistantTextComplete | facts.AssistantFinalAnswer):
        sealed = fact.sealed_artifact_id
        if sealed is not UNSET:
            whole = written(fact, await open_sealed(journal, key(), sealed))
            return msgspec.structs.replace(envelope, data=whole)
    return envelope


def written(
    fact: facts.AssistantTextComplete | facts.AssistantFinalAnswer, unsealed: bytes
) -> Fact:
    """The fact with its unsealed content."""
    if isinstance(fact, facts.AssistantTextComplete):
        return msgspec.structs.replace(fact, text=unsealed.decode())
    return msgspec.structs.replace(fact, structured_output=msgspec.json.decode(unsealed))


def redact_fact(fact: Fact, redactor: Redactor) -> Fact:
    """The fact with the secrets in its texts replaced; the same object if there are none."""
    kind = type(fact)
    if kind in _REDACTED_AS_STREAMS:
        return fact
    if kind in _AUTHORED or getattr(fact, "kind", "") in AUTHORED_RESULTS:
        redactor = redactor.authored
    changes: dict[str, Any] = {}
    for place, value in enumerate(astuple(fact)):
        if isinstance(value, str):
            if len(value) >= _SHORTEST_SECRET:
                field = fact.__struct_fields__[place]
                own = redactor.authored if field in _AUTHORED_FIELDS else redactor
                clean = own.text(value)
                if clean != value:
                    changes[field] = clean
        elif isinstance(value, (dict, list)) and value:
            plain = msgspec.to_builtins(value)
            clean_value, paths = redactor.value(plain)
            if paths:
                changes[fact.__struct_fields__[place]] = _like(clean_value, value)
    return msgspec.structs.replace(fact, **changes) if changes else fact


def _like(clean: Any, original: Any) -> Any:
    """Restore the struct types of redacted builtins."""
    if isinstance(original, list) and original and isinstance(original[0], msgspec.Struct):
        return msgspec.convert(clean, list[type(original[0])])  # type: ignore[misc]
    return clean
