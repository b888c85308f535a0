"""The runtime tells Prometheus what it does."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.coordination.published import sdk
from tests.ports import free_port
from tests.serve.grpc.running import Server, running


@pytest.fixture
def at() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def measured(tmp_path: Path, at: str) -> Iterator[Server]:
    with running(tmp_path, MACP_METRICS_ADDR=at) as server:
        yield server


def series(at: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{at}/metrics", timeout=20) as answer:
        assert answer.headers["content-type"] == "text/plain; version=0.0.4"
        lines = answer.read().decode().splitlines()
    values = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in values}


def test_messages_sessions_and_streams_are_counted(measured: Server, at: str) -> None:
    mode = '{mode="macp.mode.decision.v1"}'
    with closing(measured.client("lead")) as lead:
        session = sdk.DecisionSession(lead)
        session.start(intent="count", participants=["lead"], ttl_ms=60_000)
        session.propose("p1", "merge")
        with pytest.raises(sdk.MacpAckError):
            session.propose("p1", "again")
        stream = session.open_stream()
        stream.send_subscribe(session.session_id)
        stream.read(timeout=20)
        during = series(at)
        stream.close()
        session.commit(action="decision.selected", authority_scope="tests", reason="x")
    after = series(at)
    assert during['macp_sessions{state="open"}'] == during["macp_open_streams"] == 1
    assert after['macp_sessions{state="resolved"}'] == 1
    expected = {
        "macp_messages_accepted_total": 3,
        "macp_messages_rejected_total": 1,
        "macp_commitments_accepted_total": 1,
        "macp_sessions_started_total": 1,
        "macp_sessions_resolved_total": 1,
        "macp_ack_duration_seconds_count": 4,
    }
    assert {name: after[name + mode] for name in expected} == expected
    assert after["macp_replay_mismatches_total"] == 0


def test_names_from_outside_make_no_series(measured: Server, at: str) -> None:
    with closing(measured.client("lead")) as lead:
        for number in range(3):
            envelope = sdk.build_envelope(
                mode=f"no.such.mode.{number}",
                message_type="Nonsense",
                session_id=sdk.new_session_id(),
                sender="lead",
                payload=b"",
            )
            with pytest.raises(sdk.MacpAckError):
                lead.send(envelope)
    assert series(at)['macp_messages_rejected_total{mode="other"}'] == 3


def test_other_paths_are_not_found(measured: Server, at: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{at}/", timeout=20)
    assert refused.value.code == 404
    refused.value.close()
