"""The seam to any store: the promises of a journal.

`tests/journal/suite.py` checks them for each implementation:

- `append` is atomic. The journal assigns sequence, event id and time, and returns the
  stored bytes only after they are durable. Every later read returns the same bytes.
- Sequences of a run start at 0 and have no gaps, also with many writers and processes.
- Only the holder of the current fence appends execution facts; guests append guest facts.
- A run has one terminal fact. `tool.invoked` does not commit once a cancel is requested.
- The rows (run, session, request, artifact, ledger, lease) are a fold of the facts,
  written in the same transaction.
- Reading never writes and never blocks a writer.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, Unpack

from msgspec import Struct

from batten.contract.facts import Fact
from batten.contract.facts.approval import RequestClass
from batten.contract.facts.artifact import ArtifactKind, ArtifactStatus
from batten.contract.facts.run import RunKind, WorkspaceMode
from batten.contract.outcomes import Outcome, RunStatus
from batten.journal.budget import Budget
from batten.journal.filters import ArtifactFilters, FeedFilters, RunFilters, SessionFilters
from batten.journal.receipt import Receipt
from batten.journal.remains import Base
from batten.journal.upkeep import Damage, Measuring, Removing


class Stored(Struct, frozen=True, gc=False):
    """A fact with the place that the journal gave it."""

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
    """Inline bytes; None when the store already holds the body as a file."""


class NewRun(Struct, frozen=True, kw_only=True):
    """A run or session stream to create with its first facts."""

    run_id: str
    kind: RunKind
    worker_id: str = ""
    """Empty for a run that is only queued: it is created without a lease."""
    lease_s: float = 30.0
    task_id: str | None = None
    session_id: str | None = None
    alone: bool = False
    """Refuse it with `Conflict` while another run of its session has not ended, and with `NotFound`
    if the session was deleted."""
    first: bool = False
    """Refuse it like that also after an ended run of its session. It begins with `run.queued`."""


class Lease(Struct, frozen=True):
    """The right to execute a run until a time; the fence shuts out earlier holders."""

    run_id: str
    fence: int
    worker_id: str
    until: str


class RunRow(Struct, frozen=True, kw_only=True):
    """The state of a run, without reading its facts."""

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
    workspace_mode: WorkspaceMode
    priority: int
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
    lease_boot_ms: int
    """The end of the lease in milliseconds since the worker's machine started; 0 if unknown."""
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
        """The row's place in the list of sessions, for the next page."""
        return f"{self.updated_at} {self.session_id}"


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
    pinned: bool = False
    """Neither pruning nor retention removes its body."""
    deleted_at: str | None = None


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


IdKind = Literal["run", "stream", "session", "request", "artifact"]


class BodyWriter(Protocol):
    """Streams one artifact body to the store without holding it in memory."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> Body:
        """Make the body durable. `refused_bytes` counts the part that a quota refused."""
        ...

    def discard(self) -> None: ...

    @property
    def refused_bytes(self) -> int: ...


class Log(Protocol):
    """The facts of every run, in order."""

    def create(
        self,
        new: NewRun,
        facts: Sequence[Fact],
        *,
        bodies: Sequence[Body] = (),
        under: Lease | None = None,
        of_session: Sequence[Fact] = (),
    ) -> Awaitable[tuple[Lease | None, list[Stored]]]:
        """Create a run and append its first facts. Its worker, if any, holds the first lease.

        `under` is the lease of the run's session: `FenceLost`, and no run, unless it is current.
        `of_session` are a guest's facts for the stream of its session: stored with the run or not.
        """
        ...

    def append(
        self,
        run_id: str,
        facts: Sequence[Fact],
        *,
        fence: int | None,
        bodies: Sequence[Body] = (),
        last_words: Sequence[Fact] = (),
    ) -> Receipt[list[Stored]]:
        """Append facts in one transaction; the order of calls is the order of facts.

        Queued when this returns, durable once awaited. Without a fence only guest facts are taken;
        the answer to a parked run's last request adds `run.queued`, or `last_words` and
        `run.cancelled` if it halts.
        """
        ...

    def append_unless(
        self,
        has: Callable[[ArtifactRow], bool],
        run_id: str,
        facts: Sequence[Fact],
        bodies: Sequence[Body] = (),
    ) -> Awaitable[ArtifactRow | None]:
        """Append guest facts, or return the artifact of the run for which `has` is true.

        Of equal calls, also in several processes, one appends. `has` may be called again.
        """
        ...

    async def read(self, run_id: str, *, after: int = -1, limit: int = 256) -> list[Stored]:
        """Facts with a sequence greater than `after`, in order; fewer than `limit` at the end."""
        ...

    async def feed(
        self, *, after: int = 0, limit: int = 256, **filters: Unpack[FeedFilters]
    ) -> list[Stored]:
        """Facts of all runs with a position greater than `after`."""
        ...

    async def position(self) -> int:
        """The position of the last fact that was stored; 0 before the first."""
        ...

    def follow(
        self, run_id: str, *, after: int = -1, types: frozenset[str] | None = None
    ) -> AsyncGenerator[list[Stored], None]:
        """Pages of facts past `after`, then each new page as it commits, in any process.

        No gap, no repeat. Ends only when the generator or the journal is closed. `types` selects
        facts by type; commits without one cause no wake-up.
        """
        ...

    def follow_feed(self, *, after: int = 0) -> AsyncGenerator[list[Stored], None]:
        """Like `follow` for the facts of all runs, in the order of positions."""
        ...


class Blocking(Protocol):
    """Calls for a thread while the event loop is blocked: the watchdog uses them.

    Each blocks its thread and needs no loop. All other code uses the asynchronous methods.
    """

    def append_now(
        self, run_id: str, facts: Sequence[Fact], *, fence: int | None, timeout_s: float = 10.0
    ) -> list[Stored]:
        """Append and wait until the facts are durable.

        Raises `StoreBusy` after `timeout_s`: the facts may or may not become durable then.
        """
        ...

    def read_now(self, run_id: str, *, after: int = -1, limit: int = 256) -> list[Stored]: ...

    def run_now(self, run_id: str) -> RunRow | None: ...

    def load_now(self, artifact_id: str) -> bytes:
        """The whole body of an artifact. Raises `NotFound`."""
        ...


class Leases(Protocol):
    """The right to execute a run."""

    def claim(self, run_id: str, worker_id: str, lease_s: float = 30.0) -> Awaitable[Lease]:
        """Hold a queued, parked or abandoned run. Raises `Conflict` while its worker lives."""
        ...

    def renew(self, lease: Lease, lease_s: float = 30.0) -> Awaitable[Lease]:
        """Extend a lease, even an expired one. Raises `FenceLost` if another worker claimed it."""
        ...

    def release(self, lease: Lease) -> Awaitable[None]:
        """Give up a lease. Does nothing if another worker has claimed the run."""
        ...

    def park(self, lease: Lease) -> Awaitable[bool]:
        """Give up the lease if the run waits for an answer, and return True.

        False if the last request was answered meanwhile, or a cancel requested: the worker keeps
        the lease. A task that is cancelled meanwhile gets True too: it can append no more.
        """
        ...


class Queue(Protocol):
    """Runs that wait for a worker."""

    async def queued(self, *, limit: int = 256) -> list[RunRow]:
        """Queued runs without a worker, in the order to claim them: by priority, then by age."""
        ...

    async def awaited(self, *, limit: int = 256) -> list[RunRow]:
        """The same of kind `coordination`, oldest first: they wait for a session, not a worker."""
        ...

    def follow_queue(self) -> AsyncGenerator[None, None]:
        """Yields at once, and when a run is queued or asks a panel, anywhere; ends when closed."""
        ...

    async def held(
        self, *, kind: RunKind | None = None, surface: str | None = None, limit: int = 1000
    ) -> list[RunRow]:
        """Unfinished runs and open sessions that have a worker, oldest first.

        `surface`: only runs of sessions that were opened there, without child runs.
        """
        ...


class Rows(Protocol):
    """The rows folded from facts, as of the last commit."""

    async def version(self) -> int:
        """A number that changes with every commit, in any process: equal ones, equal rows."""
        ...

    async def run(self, run_id: str) -> RunRow | None: ...

    async def length(self, run_id: str) -> int:
        """`next_sequence` of a run, cheaper than its row; 0 if there is no such run."""
        ...

    async def runs(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]
    ) -> list[RunRow]:
        """Newest first, without the streams of sessions. `after` is the last id of a page."""
        ...

    async def session(self, session_id: str) -> SessionRow | None: ...

    async def sessions(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[SessionFilters]
    ) -> list[SessionRow]:
        """Most recently used first. `after` is the `cursor` of the last row of the page before."""
        ...

    async def request(self, request_id: str) -> RequestRow | None: ...

    async def requests(self, run_id: str) -> list[RequestRow]: ...

    async def pending_requests(
        self, *, due_by: str | None = None, limit: int = 1000
    ) -> list[RequestRow]:
        """Unanswered requests of all runs without an ending, those of the newest runs first.

        `due_by`: only those whose deadline is at or before this time.
        """
        ...

    async def ids(self, kind: IdKind, first: str, last: str, *, limit: int = 10) -> list[str]:
        """Stored ids from `first` to `last`, in order. Streams: of runs and of sessions' own."""
        ...

    async def streams(self) -> int:
        """How many runs and session streams there are."""
        ...

    async def ledger(self, run_id: str) -> list[LedgerRow]: ...

    async def artifact(self, artifact_id: str) -> ArtifactRow | None: ...

    async def artifacts(
        self, run_id: str, *, kind: ArtifactKind | None = None
    ) -> list[ArtifactRow]:
        """All artifacts of a run, also sealed and deleted ones, oldest first."""
        ...

    async def public_artifacts(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[ArtifactFilters]
    ) -> list[ArtifactRow]:
        """Artifacts of all runs by id, newest first; without sealed and deleted ones.
        `after` is the id of the last one of the page before.
        """
        ...

    async def artifact_bytes(self, task_id: str) -> int:
        """The size of all public artifacts of a task."""
        ...


class Bodies(Protocol):
    """The bytes of artifacts."""

    async def body(self, sha256: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Stored bytes of a body, checked against the digest when read whole."""
        ...

    async def sealed_body(self, sha256: str) -> bytes:
        """A sealed body as this home's key opens it; that of an imported session is sealed again.

        Raises `NotFound` if the bundle it came in left it out.
        """
        ...

    def inline(self, data: bytes) -> Body:
        """A body for `append`; a large one is spooled to a local file first."""
        ...

    async def body_writer(self, *, task_id: str | None = None) -> BodyWriter:
        """A writer whose quota is the rest of the task's quota."""
        ...


class Upkeep(Protocol):
    """Pruning, verifying and closing."""

    def prune(
        self, run_id: str, *, before: int, reason: str, base_state: bytes | None = None
    ) -> Awaitable[Stored | None]:
        """Remove the facts below `before`, keep the caller's fold of them, append the marker."""
        ...

    async def base(self, run_id: str) -> Base | None:
        """The base of a pruned run; None for a run that was not pruned."""
        ...

    async def verify(self, run_id: str | None = None) -> list[Damage]:
        """Check chains, counts, rows and bodies, of one run or of all."""
        ...

    def close(self) -> None:
        """Wait for queued appends, then close the store."""
        ...


class Journal(
    Log, Blocking, Leases, Queue, Rows, Bodies, Budget, Upkeep, Removing, Measuring, Protocol
):
    """A whole store. Code that needs less of it takes a narrower Protocol."""
