"""The seam to any store: what a journal promises, whatever it is written on.

Promises, which `tests/journal/suite.py` checks for each implementation:

- `append` is atomic. The journal assigns sequence, event id and time, and answers with
  the stored bytes only after they are durable. The same bytes are read ever after.
- Sequences of a run start at 0 and have no holes, also with many writers and processes.
- Only the holder of the current fence appends execution facts; guests append guest facts.
- A run has one terminal fact. `tool.invoked` does not commit once a cancel is requested.
- The rows (run, session, request, artifact, ledger, lease) are a fold of the facts,
  written in the same transaction.
- Reading never writes and never blocks a writer.
"""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Any, Literal, Protocol, TypedDict, Unpack

from msgspec import Struct

from batten.contract.facts import Fact
from batten.contract.facts.approval import RequestClass
from batten.contract.facts.artifact import ArtifactKind, ArtifactStatus
from batten.contract.facts.run import RunKind
from batten.contract.outcomes import Outcome, RunStatus


class Stored(Struct, frozen=True, gc=False):
    """A fact once the journal has given it a place."""

    position: int
    """Its place in the whole store: the cursor of the cross-run feed."""
    run_id: str
    sequence: int
    type: str
    body: bytes
    """The envelope, exactly as stored and served."""


class Body(Struct, frozen=True):
    """Bytes of an artifact, written before or together with the fact that names them."""

    sha256: str
    size: int
    data: bytes | None
    """Inline bytes; None when the body is a file of the store already."""


class NewRun(Struct, frozen=True, kw_only=True):
    """A stream to be created with its first facts."""

    run_id: str
    kind: RunKind
    worker_id: str = ""
    """Empty for a run that is only queued: it is created without a lease."""
    lease_s: float = 30.0
    task_id: str | None = None
    session_id: str | None = None


class Lease(Struct, frozen=True):
    """The right to execute a run, until a time; the fence shuts out whoever held it before."""

    run_id: str
    fence: int
    worker_id: str
    until: str


class RunRow(Struct, frozen=True, kw_only=True):
    """What is known of a run without reading its facts."""

    run_id: str
    kind: RunKind
    status: RunStatus
    outcome: Outcome | None
    task_id: str | None
    session_id: str | None
    prior_run_id: str | None
    parent_run_id: str | None
    model: str | None
    provider: str | None
    workspace_path: str
    prompt: str
    """The beginning of its first user message."""
    next_sequence: int
    base_sequence: int
    """The first sequence still stored."""
    turns: int
    cost_micros_usd: int
    cost_unknown: bool
    cancel_requested: bool
    fence: int
    worker_id: str
    lease_until: str
    created_at: str
    ended_at: str | None


class SessionRow(Struct, frozen=True, kw_only=True):
    session_id: str
    task_id: str
    workspace_path: str
    surface: str
    settings: dict[str, Any]
    """All `session.configured` facts, merged."""
    last_run_id: str | None
    created_at: str
    updated_at: str
    closed: bool
    forked_from: str | None
    forked_at_run_id: str | None

    @property
    def cursor(self) -> str:
        """Where the row is in the list of sessions: for the page that follows it."""
        return f"{self.updated_at} {self.session_id}"


class RunFilters(TypedDict, total=False):
    """Which runs to list; a filter that is None counts as absent."""

    status: RunStatus | None
    kind: RunKind | None
    workspace_path: str | None
    task_id: str | None
    session_id: str | None
    parent_run_id: str | None
    model: str | None
    since: str | None
    """The earliest `created_at`."""
    until: str | None
    """The first `created_at` that is too late."""


class SessionFilters(TypedDict, total=False):
    """Which sessions to list; a filter that is None counts as absent."""

    workspace_path: str | None
    task_id: str | None
    surface: str | None
    since: str | None
    """The earliest `updated_at`."""
    until: str | None
    """The first `updated_at` that is too late."""


class RequestRow(Struct, frozen=True, kw_only=True):
    request_id: str
    run_id: str
    request_class: RequestClass
    tool_call_id: str
    summary: str
    digest: str
    deadline_at: str | None
    resolvers: tuple[str, ...]
    status: Literal["pending", "answered", "failed", "timed_out", "cancelled"]
    decision: str | None
    by: str | None
    answer: dict[str, Any]


class ArtifactRow(Struct, frozen=True, kw_only=True):
    artifact_id: str
    run_id: str
    kind: ArtifactKind
    status: ArtifactStatus
    size_bytes: int
    sha256: str
    mime_type: str
    summary: str
    tool_call_id: str | None
    metadata: dict[str, Any]
    created_at: str
    applied_at: str | None
    reverted_at: str | None


class LedgerRow(Struct, frozen=True, kw_only=True):
    """One model call and its price."""

    run_id: str
    sequence: int
    task_id: str | None
    turn_index: int
    """0 for a compaction."""
    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_micros_usd: int | None
    price_as_of: str | None


class Spend(Struct, frozen=True):
    """What a task has used, over all its runs."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros_usd: int = 0
    cost_unknown: bool = False
    reserved_micros_usd: int = 0
    """Held by other runs of the task for calls they are making now."""


class Base(Protocol):
    """Where a pruned run begins now."""

    @property
    def sequence(self) -> int: ...

    @property
    def state(self) -> bytes | None:
        """What the pruner wanted kept."""
        ...


class BodyWriter(Protocol):
    """Streams one artifact body to the store without holding it in memory."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> Body:
        """Make it durable. A quota that refused the rest is said in `refused_bytes`."""
        ...

    def discard(self) -> None: ...

    @property
    def refused_bytes(self) -> int: ...


class Damage(Struct, frozen=True):
    """One thing `verify` found wrong."""

    run_id: str
    sequence: int | None
    message: str


class Log(Protocol):
    """The facts of every run, in order."""

    def create(
        self,
        new: NewRun,
        facts: Sequence[Fact],
        *,
        bodies: Sequence[Body] = (),
        under: Lease | None = None,
    ) -> Awaitable[tuple[Lease | None, list[Stored]]]:
        """Create a run and append its first facts. Its worker, if any, holds the first lease.

        `under` is the lease of the run's session: `FenceLost`, and no run, unless it is current.
        """
        ...

    def append(
        self,
        run_id: str,
        facts: Sequence[Fact],
        *,
        fence: int | None,
        bodies: Sequence[Body] = (),
    ) -> Awaitable[list[Stored]]:
        """Append facts in one transaction; the order of calls is the order of facts.

        The facts are on their way when this returns; awaiting the result waits until they
        are durable. Without a fence only guest facts are taken. A guest's answer that leaves a
        parked run nothing to wait for is followed by `run.queued`.
        """
        ...

    async def read(self, run_id: str, *, after: int = -1, limit: int = 256) -> list[Stored]:
        """Facts with a sequence greater than `after`, in order; fewer than `limit` at the end."""
        ...

    async def feed(self, *, after: int = 0, limit: int = 256) -> list[Stored]:
        """Facts of all runs with a position greater than `after`."""
        ...

    def follow(
        self, run_id: str, *, after: int = -1, types: frozenset[str] | None = None
    ) -> AsyncGenerator[list[Stored], None]:
        """Pages of facts past `after`, then each new page as it commits, here or in another
        process: no gap, no repeat. It ends only when it, or the journal, is closed.

        With `types` only facts of these types, and no wake-up for a commit without one.
        """
        ...

    def follow_feed(self, *, after: int = 0) -> AsyncGenerator[list[Stored], None]:
        """As `follow`, the facts of all runs, past a position and in the order of positions."""
        ...


class Blocking(Protocol):
    """What a thread uses while the event loop does not answer: the watchdog's last words.

    Each call blocks its thread and needs no loop. Everything else uses the asynchronous methods.
    """

    def append_now(
        self, run_id: str, facts: Sequence[Fact], *, fence: int | None, timeout_s: float = 10.0
    ) -> list[Stored]:
        """Append and wait until it is durable.

        `StoreBusy` after `timeout_s`: then it is not known whether it will be.
        """
        ...

    def read_now(self, run_id: str, *, after: int = -1, limit: int = 256) -> list[Stored]:
        """As `read`."""
        ...

    def run_now(self, run_id: str) -> RunRow | None:
        """As `run`."""
        ...

    def load_now(self, artifact_id: str) -> bytes:
        """The whole body of an artifact; `NotFound` without one."""
        ...


class Leases(Protocol):
    """Who executes a run."""

    def claim(self, run_id: str, worker_id: str, lease_s: float = 30.0) -> Awaitable[Lease]:
        """Hold a run that is queued, parked or abandoned: `Conflict` while its worker lives."""
        ...

    def renew(self, lease: Lease, lease_s: float = 30.0) -> Awaitable[Lease]:
        """Hold it longer, also if it ran out; `FenceLost` once another worker has claimed it."""
        ...

    def release(self, lease: Lease) -> Awaitable[None]:
        """Give up a lease. One that another worker has claimed meanwhile stays as it is."""
        ...

    def park(self, lease: Lease) -> Awaitable[bool]:
        """Give up the lease if the run waits for an answer, and return True.

        False if the last request was answered meanwhile: the lease is kept, the run goes on.
        """
        ...


class Rows(Protocol):
    """The rows that facts are folded into, as of the last commit."""

    async def run(self, run_id: str) -> RunRow | None: ...

    async def runs(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]
    ) -> list[RunRow]:
        """Newest first; streams of kind `session` are not runs.

        `after` is the id of the last run of the page before.
        """
        ...

    async def session(self, session_id: str) -> SessionRow | None: ...

    async def sessions(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[SessionFilters]
    ) -> list[SessionRow]:
        """Most recently used first. `after` is the `cursor` of the last row of the page before."""
        ...

    async def request(self, request_id: str) -> RequestRow | None: ...

    async def requests(self, run_id: str) -> list[RequestRow]: ...

    async def pending_requests(self, *, limit: int = 1000) -> list[RequestRow]:
        """The requests of all runs that have no answer yet, those of the newest runs first."""
        ...

    async def ledger(self, run_id: str) -> list[LedgerRow]: ...

    async def artifact(self, artifact_id: str) -> ArtifactRow | None: ...

    async def artifacts(
        self, run_id: str, *, kind: ArtifactKind | None = None
    ) -> list[ArtifactRow]: ...


class Bodies(Protocol):
    """The bytes of artifacts."""

    async def body(self, sha256: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Stored bytes of a body, checked against their digest when read whole."""
        ...

    def inline(self, data: bytes) -> Body:
        """A body for `append`; a large one is spooled to a local file, never sent from here."""
        ...

    async def body_writer(self, *, task_id: str | None = None) -> BodyWriter:
        """A writer whose quota is what the task has left."""
        ...


class Budget(Protocol):
    """What a task has spent, and what its runs hold for calls they are making."""

    def reserve(
        self, task_id: str, run_id: str, micros_usd: int, limit_micros_usd: int
    ) -> Awaitable[Spend | None]:
        """Hold money for one call. None if the task has spent, or others hold, more than the limit.

        The reservation ends with the run's next ledger row, with `unreserve`, or with the run.
        """
        ...

    def unreserve(self, run_id: str) -> Awaitable[None]: ...

    async def spend(self, task_id: str, *, but_run: str | None = None) -> Spend:
        """What a task spent; reservations of `but_run` are not counted."""
        ...


class Upkeep(Protocol):
    """Forgetting, checking and closing."""

    def prune(
        self, run_id: str, *, before: int, reason: str, base_state: bytes | None = None
    ) -> Awaitable[Stored | None]:
        """Remove the facts with a sequence below `before`, keep a base, append the marker.

        `base_state` is kept beside the base for the caller: its own fold of what is removed.
        """
        ...

    async def base(self, run_id: str) -> Base | None:
        """Where a pruned run begins; None for a run that was not pruned."""
        ...

    async def verify(self, run_id: str | None = None) -> list[Damage]:
        """Check chains, counts, rows and bodies; of all runs, if none is named."""
        ...

    def collect_bodies(self, *, grace_s: float = 3600.0) -> Awaitable[int]:
        """Free the bodies that no artifact needs; returns how many."""
        ...

    def close(self) -> None:
        """Wait for what was appended, then close the store."""
        ...


class Journal(Log, Blocking, Leases, Rows, Bodies, Budget, Upkeep, Protocol):
    """A whole store. A part that needs less of it names the narrower Protocol."""
