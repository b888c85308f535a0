"""What the runtime counts for Prometheus: the published runtime's names, and a few beside them."""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from batten.control.coordination.answers import Lifecycle
from batten.control.coordination.runtime import Runtime
from batten.coordination.envelope import Message
from batten.serve.http.metrics import Histogram, Labels, Metrics

_ACK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_ENDINGS = {
    "CREATED": "started",
    "RESOLVED": "resolved",
    "EXPIRED": "expired",
    "CANCELLED": "cancelled",
    "SUSPENDED": "suspended",
    "RESUMED": "resumed",
}


class RuntimeCounts:
    """Counts of one runtime since it was started, by mode."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._messages: dict[str, Counter[str]] = {"accepted": Counter(), "rejected": Counter()}
        self._commitments: dict[str, Counter[str]] = {"accepted": Counter(), "rejected": Counter()}
        self._sessions: dict[str, Counter[str]] = {word: Counter() for word in _ENDINGS.values()}
        self._acks = Histogram(_ACK_S)
        self._streams = 0
        runtime.on_change = self._changed

    def answered(self, message: Message, after_s: float, *, is_accepted: bool) -> None:
        """Count a message by how it was answered, and how long that took."""
        mode, word = self._mode(message.mode.strip()), "accepted" if is_accepted else "rejected"
        self._acks.observe((("mode", mode),), after_s)
        self._messages[word][mode] += 1
        if message.message_type == "Commitment":
            self._commitments[word][mode] += 1

    @contextmanager
    def stream(self) -> Generator[None]:
        """Count an open stream or watch."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def _mode(self, name: str) -> str:
        """Names from outside do not become series."""
        return name if self._runtime.registries.modes.has(name) else "other"

    def _changed(self, change: Lifecycle) -> None:
        self._sessions[_ENDINGS[change.kind]][change.session.descriptor.mode] += 1

    def add_to(self, metrics: Metrics) -> None:
        for what, kinds in (("messages", self._messages), ("commitments", self._commitments)):
            for word, counts in kinds.items():
                name = f"macp_{what}_{word}_total"
                metrics.counter_of(name, f"{what} {word}".capitalize() + ", by mode.", _by(counts))
        for word, counts in self._sessions.items():
            metrics.counter_of(
                f"macp_sessions_{word}_total", f"Sessions {word}, by mode.", _by(counts)
            )
        metrics.counter_of(
            "macp_replay_mismatches_total",
            "Stored sessions that could not be folded again.",
            lambda: self._runtime.replay_mismatches,
        )
        metrics.gauge("macp_sessions", "Sessions in memory, by state.", self._states)
        metrics.gauge("macp_open_streams", "Open streams and watches.", lambda: self._streams)
        metrics.histogram(
            "macp_ack_duration_seconds", "Time until a message is answered.", self._acks
        )

    def _states(self) -> dict[Labels, int]:
        found = Counter(session.state for session in self._runtime.known())
        return {(("state", state.lower()),): count for state, count in sorted(found.items())}


def _by(counts: Counter[str]) -> Callable[[], dict[Labels, int]]:
    return lambda: {(("mode", mode),): count for mode, count in sorted(counts.items())}
