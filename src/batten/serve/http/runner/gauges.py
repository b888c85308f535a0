"""Metrics of a hosted runner beside those of its requests."""

from collections.abc import Mapping

from batten.serve.http.metrics import Labels, Metrics, Number
from batten.serve.http.runner.service import RunnerService


def add_gauges(metrics: Metrics, service: RunnerService) -> None:
    """Let metrics tell of the runner, its session and its clients."""
    runner = service.runner

    def drains() -> Mapping[Labels, Number]:
        return {(("status", status),): count for status, count in service.drains.items()}

    metrics.gauge("batten_runner_ready", "1 if clients may attach.", lambda: int(runner.ready))
    metrics.gauge(
        "batten_runner_draining",
        "1 from the first accepted drain on.",
        lambda: int(runner.draining),
    )
    metrics.gauge(
        "batten_runner_session_open",
        "1 while the session has a process.",
        lambda: int(service.is_open),
    )
    metrics.gauge(
        "batten_runner_session_working",
        "1 while the session works on a prompt.",
        lambda: int(service.is_working),
    )
    metrics.gauge(
        "batten_runner_connections",
        "Connections to the session.",
        lambda: service.connection_count,
    )
    metrics.gauge(
        "batten_runner_subscriptions",
        "Subscriptions of those connections and of streams without one.",
        lambda: service.subscriber_count,
    )
    metrics.gauge(
        "batten_runner_pending_requests",
        "Requests that wait for a client's answer.",
        lambda: service.pending_count,
    )
    metrics.counter_of(
        "batten_runner_messages_total",
        "Messages of the session: the cursor of the last one.",
        lambda: service.cursor,
    )
    metrics.counter_of(
        "batten_runner_session_opens_total",
        "How often the session was opened.",
        lambda: service.opens,
    )
    metrics.counter_of("batten_runner_drains_total", "Drains, by how they ended.", drains)
