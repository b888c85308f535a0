"""Metrics under the control plane's names: runs and messages from facts, the runtime, the process.

Counts begin with the process, as counters of Prometheus do. No label takes a value that a client
can make up without end: modes and messages that are not of the protocol count as `other`.
"""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping, Sized

from msgspec import UNSET, Struct

from batten.contract import facts
from batten.contract.envelope import Envelope, decode
from batten.contract.errors import BattenError, PeerError
from batten.journal.contract import Journal
from batten.serve.http.metrics import Histogram, Labels, Metrics, Number
from batten.serve.http.plane_watch import BREAKER_LEVELS, PlaneWatch
from batten.serve.http.sink_gauges import SinkGauges

_LOOK_EVERY_S = 10.0
_PAGE = 256
_MOST_RUNS = 10_000
_MOST_SIGNALS = 100
_FIRST_FACTS = 16
_OTHER = "other"
_MODES = frozenset(
    f"macp.mode.{name}.v1" for name in ("decision", "proposal", "task", "handoff", "quorum")
)
_TYPES = frozenset(
    kind.TYPE
    for kind in (
        facts.RunQueued,
        facts.RunStarted,
        facts.RunFinished,
        facts.RunFailed,
        facts.RunCancelled,
        facts.MacpSessionBound,
        facts.MacpSessionChanged,
        facts.MacpMessageAccepted,
        facts.MacpFrameObserved,
    )
)
_log = logging.getLogger("batten.http")


class _Run(Struct):
    kind: str = ""
    mode: str = ""
    has_started: bool = False
    is_bound: bool = False
    is_suspended: bool = False

    @property
    def label(self) -> str:
        """The mode of its session; what it does, for a run without one."""
        if self.kind != "coordination":
            return self.kind or _OTHER
        return self.mode if self.mode in _MODES else _OTHER


class PlaneCounts:
    """Counts of facts, kept by a cursor over the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._position = -1
        self._busy = asyncio.Lock()
        self._runs: dict[str, _Run] = {}
        """Runs that have not ended, the newest of them."""
        self.transitions: Counter[str] = Counter()
        self.durations = Histogram((0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0))
        self.inbound: Counter[tuple[str, str]] = Counter()
        """By mode and type of message."""
        self.signals: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()
        """What became of streams of a runtime elsewhere: `opened`, `reconnecting`, `recovered`."""

    async def run(self) -> None:
        """Until cancelled: count what happens, so that nobody who asks has to wait for it."""
        self._position = await self._journal.position()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                await self.catch_up()
            except BattenError as error:
                _log.warning("runs are not counted: %s", error)

    async def catch_up(self) -> None:
        """Count the facts since the last time."""
        async with self._busy:
            until = await self._journal.position()
            if self._position < 0:
                self._position = until
            while page := await self._journal.feed(
                after=self._position, until=until, types=_TYPES, limit=_PAGE
            ):
                for stored in page:
                    try:
                        envelope = decode(stored.body)
                    except PeerError:
                        continue
                    await self._count(envelope)
                self._position = page[-1].position
                await asyncio.sleep(0)
            self._position = until

    async def _count(self, envelope: Envelope) -> None:
        fact = envelope.data
        if isinstance(fact, facts.RunQueued) and envelope.sequence <= 1:
            self._learn(self._begin(envelope.run_id), fact)
            self._enter("queued")
            return
        run = self._runs.get(envelope.run_id) or await self._recalled(envelope)
        match fact:
            case facts.RunStarted() if not run.has_started:
                self._enter("starting", *(() if run.kind == "coordination" else ("running",)))
            case facts.MacpSessionBound() if not run.is_bound:
                self._enter("binding_session", "running")
            case facts.MacpSessionChanged():
                self._session_is(run, fact.state)
            case facts.MacpMessageAccepted():
                self._hear(run.label, fact.message_type, fact.body)
            case facts.MacpFrameObserved():
                self._observe(run, fact)
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                self._end(run, fact)
                self._runs.pop(envelope.run_id, None)
            case _:
                pass
        self._learn(run, fact)

    async def _recalled(self, envelope: Envelope) -> _Run:
        """A run that began before this process did, or was forgotten."""
        run = self._begin(envelope.run_id)
        for stored in await self._journal.read(envelope.run_id, limit=_FIRST_FACTS):
            if stored.sequence >= envelope.sequence:
                break
            try:
                self._learn(run, decode(stored.body).data)
            except PeerError:
                continue
        return run

    def _begin(self, run_id: str) -> _Run:
        if len(self._runs) >= _MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        run = self._runs[run_id] = _Run()
        return run

    def _learn(self, run: _Run, fact: facts.Fact) -> None:
        match fact:
            case facts.RunQueued():
                run.kind = fact.kind
            case facts.RunStarted():
                run.has_started = True
            case facts.MacpSessionBound():
                run.mode, run.is_bound = fact.mode, True
            case facts.MacpFrameObserved(kind="session_snapshot"):
                run.mode, run.is_bound = str(fact.detail.get("modeName") or run.mode), True
            case _:
                pass

    def _enter(self, *statuses: str) -> None:
        self.transitions.update(statuses)

    def _session_is(self, run: _Run, state: str) -> None:
        """The state of a session was told; it may be the one it had."""
        if state == "SUSPENDED" and not run.is_suspended:
            run.is_suspended = True
            self._enter("suspended")
        elif state == "OPEN" and run.is_suspended:
            run.is_suspended = False
            self._enter("running")

    def _observe(self, run: _Run, fact: facts.MacpFrameObserved) -> None:
        if fact.kind == "session_snapshot" and not run.is_bound:
            self._enter("binding_session", "running")
            self.streams["opened"] += 1
        elif fact.kind == "session_snapshot":
            state = str(fact.detail.get("state", ""))
            self._session_is(run, state.removeprefix("SESSION_STATE_"))
        elif fact.kind == "envelope":
            self._hear(run.label, fact.message_type or "", fact.detail)
        elif fact.kind == "stream_status":
            status = str(fact.detail.get("status"))
            if status in ("opened", "reconnecting", "recovered"):
                self.streams[status] += 1

    def _hear(self, mode: str, message_type: str, body: Mapping[str, object]) -> None:
        from batten.protocols.macp.messages import TYPES  # with the first message

        is_known = message_type in TYPES or message_type == "SessionStart"
        self.inbound[mode, message_type if is_known else _OTHER] += 1
        if TYPES.get(message_type) == "signal.emitted":
            name = str(body.get("signalType") or body.get("signal_type") or "")[:64]
            if name not in self.signals and len(self.signals) >= _MOST_SIGNALS:
                name = _OTHER
            self.signals[name] += 1

    def _end(
        self, run: _Run, fact: facts.RunFinished | facts.RunFailed | facts.RunCancelled
    ) -> None:
        match fact:
            case facts.RunFinished():
                status = "completed"
            case facts.RunFailed():
                status = "failed"
            case facts.RunCancelled():
                status = "cancelled"
        self._enter(status)
        if status != "cancelled" and fact.duration_ms is not UNSET:
            labels = (("terminal_status", status), ("mode_name", run.label))
            self.durations.observe(labels, fact.duration_ms / 1000)


class PlaneGauges:
    """Adds the control plane's series to the metrics of a service."""

    def __init__(
        self,
        counts: PlaneCounts,
        watch: PlaneWatch,
        streams: Sized,
        sinks: SinkGauges,
    ) -> None:
        """`streams`: those that clients read."""
        self._counts = counts
        self._watch = watch
        self._streams = streams
        self._sinks = sinks

    def add_to(self, metrics: Metrics) -> None:
        counts, watch = self._counts, self._watch
        metrics.before(counts.catch_up)
        metrics.gauge(
            "active_sse_connections", "Clients that read a stream.", self._streams.__len__
        )
        metrics.gauge(
            "active_runtime_streams",
            "Streams of a runtime elsewhere that are read.",
            lambda: watch.active_streams,
        )
        metrics.counter_of(
            "run_state_transitions_total",
            "Runs that reached a status.",
            lambda: {(("status", name),): count for name, count in counts.transitions.items()},
        )
        metrics.histogram(
            "macp_run_duration_seconds", "Runs that completed or failed.", counts.durations
        )
        metrics.histogram("grpc_call_duration_seconds", "Calls to the runtime.", watch.calls)
        metrics.counter_of(
            "macp_inbound_messages_total", "Messages of sessions.", self._inbound_messages
        )
        metrics.counter_of(
            "macp_outbound_messages_total",
            "Sessions of a runtime elsewhere that were subscribed to.",
            lambda: {
                (("category", "observer"), ("status", "subscribed")): counts.streams["opened"]
            },
        )
        metrics.counter_of(
            "macp_signals_total",
            "Signals, by their type.",
            lambda: {(("signal_type", name),): count for name, count in counts.signals.items()},
        )
        self._add_runtime(metrics)
        metrics.counter_of(
            "macp_webhook_deliveries_total", "Messages to webhooks.", self._deliveries
        )
        _add_process(metrics)

    def _add_runtime(self, metrics: Metrics) -> None:
        counts, watch = self._counts, self._watch
        metrics.gauge(
            "circuit_breaker_state",
            "0 closed, 1 half open, 2 open.",
            lambda: BREAKER_LEVELS[watch.breaker.state] if watch.breaker else 0,
        )
        for name, read in (
            ("success", lambda: watch.breaker.successes if watch.breaker else 0),
            ("failures", lambda: watch.breaker.failures if watch.breaker else 0),
        ):
            about = "Calls that the circuit breaker counted."
            metrics.counter_of(f"macp_circuit_breaker_{name}_total", about, read)
        metrics.counter_of(
            "macp_stream_reconnects_total",
            "Streams of a runtime that were lost.",
            lambda: counts.streams["reconnecting"],
        )
        metrics.counter_of(
            "macp_recovery_total",
            "Runs that were gone on with after a restart.",
            lambda: {(("status", "success"),): counts.streams["recovered"]},
        )

    def _inbound_messages(self) -> Mapping[Labels, Number]:
        return {
            (("mode", mode), ("message_type", message_type)): count
            for (mode, message_type), count in self._counts.inbound.items()
        }

    def _deliveries(self) -> Mapping[Labels, Number]:
        return {(("status", status),): count for status, count in self._sinks.webhooks.items()}


def _add_process(metrics: Metrics) -> None:
    """What every exporter tells of its process."""
    began = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + _start_time_s()
    metrics.counter_of("process_cpu_seconds_total", "CPU time used.", time.process_time)
    metrics.gauge(
        "process_start_time_seconds", "When the process started.", lambda: round(began, 2)
    )
    metrics.gauge("process_resident_memory_bytes", "Memory in use.", _resident_bytes)
    metrics.gauge("process_open_fds", "Open files.", lambda: len(os.listdir("/proc/self/fd")))


def _start_time_s() -> float:
    """When the process started, in seconds since boot."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
