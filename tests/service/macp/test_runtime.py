"""What the runtime is and keeps, over HTTP: the runtime beside the service, and one elsewhere."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from batten.control.observer.contract import RuntimeFault
from batten.control.observer.hosted import HostedRuntime
from batten.serve.http.macp.observing import Observing
from batten.settings.control_plane import ControlPlaneSettings
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec
from tests.control.observer.elsewhere import OBSERVER, elsewhere
from tests.service.serving import PATIENCE_S, Service, serving

FREELY = {"THROTTLE_LIMIT": "0"}
POLICY: dict[str, Any] = {
    "policyId": "policy.fraud.majority-veto",
    "mode": "macp.mode.decision.v1",
    "description": "Majority voting with veto support",
    "rules": {
        "voting": {
            "algorithm": "majority",
            "threshold": 0.5,
            "quorum": {"type": "count", "value": 2},
        },
        "objection_handling": {"block_severity_vetoes": True, "veto_threshold": 1},
        "commitment": {"authority": "initiator_only", "require_vote_quorum": True},
    },
    "schemaVersion": 1,
}


async def once_healthy(service: Service, but: Any = None) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await service.request("GET", "/runtime/health")
            assert answer.status == 200
            told: dict[str, Any] = answer.json
            if told["ok"] and told != but:
                return told
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def beside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """A service whose runtime listens where the system chose."""
    home = tmp_path_factory.mktemp("beside")
    async with serving(home, "--runtime-bind", "127.0.0.1:0", environ=FREELY) as service:
        await once_healthy(service)
        yield service


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def ask(service: Service, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await service.request(method, path, body)
    assert answer.status == status, answer.body
    return answer.json


async def test_the_runtime_beside_the_service_tells_what_it_is(beside: Service) -> None:
    healthy = await once_healthy(beside)
    assert healthy["runtimeKind"] == "rust"
    assert healthy["detail"].startswith("connected to 127.0.0.1:")
    manifest = await ask(beside, "GET", "/runtime/manifest")
    assert manifest["agentId"] == "macp-runtime"
    assert "macp.mode.decision.v1" in manifest["supportedModes"]
    modes = await ask(beside, "GET", "/runtime/modes")
    assert [one["mode"] for one in modes][:2] == ["macp.mode.decision.v1", "macp.mode.proposal.v1"]
    assert modes[0]["terminalMessageTypes"] == ["Commitment"]
    assert await ask(beside, "GET", "/runtime/roots") == []


async def test_a_policy_is_registered_told_and_removed(beside: Service) -> None:
    policy_id = POLICY["policyId"]
    one = f"/runtime/policies/{policy_id}"
    assert await ask(beside, "POST", "/runtime/policies", POLICY, 201) == {"ok": True}
    again = await ask(beside, "POST", "/runtime/policies", POLICY, 201)
    assert again["ok"] is False
    assert policy_id in again["error"]
    told = await ask(beside, "GET", one)
    assert told.pop("registeredAtUnixMs") > 0
    assert told == POLICY
    listed = await ask(beside, "GET", "/runtime/policies?mode=macp.mode.decision.v1")
    assert policy_id in [one["policyId"] for one in listed]
    others = await ask(beside, "GET", "/runtime/policies?mode=macp.mode.task.v1")
    assert policy_id not in [one["policyId"] for one in others]
    assert await ask(beside, "DELETE", one) == {"ok": True}
    gone = await ask(beside, "DELETE", one)
    assert gone["ok"] is False
    assert gone["error"]
    missing = await ask(beside, "GET", one, status=404)
    assert missing["errorCode"] == "NOT_FOUND"
    assert missing["metadata"] == {"grpcCode": 5}
    audit = (await ask(beside, "GET", "/audit?resource=policy"))["data"]
    done = [(entry["actor"], entry["action"], entry["resourceId"]) for entry in reversed(audit)]
    # Of the client: the service that asks the runtime for it is not another one.
    assert done == [
        ("operator", action, policy_id) for action in ("policy.registered", "policy.unregistered")
    ]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"policyId": "  "}, "policyId"),
        ({"policyId": "policy.default"}, "policy.default"),
        ({"schemaVersion": 0}, "schemaVersion"),
        ({"rules": {"voting": {"algorithm": "weighted"}}}, "weights"),
        ({"rules": {"voting": {"algorithm": "supermajority"}}}, "threshold"),
        ({"rules": {"voting": {"algorithm": "supermajority", "threshold": 0.5}}}, "threshold"),
        ({"rules": {"commitment": {"authority": "designated_role"}}}, "designated_roles"),
        ({"rules": {"voting": {"algorithm": "a coin"}}}, "INVALID_POLICY_DEFINITION"),
    ],
)
async def test_a_policy_that_no_runtime_takes_is_refused(
    beside: Service, changed: dict[str, Any], named: str
) -> None:
    body = {**POLICY, "policyId": "policy.bad", **changed}
    refused = await ask(beside, "POST", "/runtime/policies", body, 400)
    assert refused["errorCode"] == "INVALID_POLICY_DEFINITION"
    assert named in refused["message"]


@pytest.mark.parametrize("changed", [{"rules": [1]}, {"rules": "x"}, {"extra": 1}, {"mode": 1}])
async def test_a_policy_of_another_shape_is_refused(
    beside: Service, changed: dict[str, Any]
) -> None:
    refused = await ask(beside, "POST", "/runtime/policies", {**POLICY, **changed}, 400)
    assert refused["errorCode"] == "VALIDATION_ERROR"


async def test_a_hung_runtime_may_have_done_it_and_its_next_process_is_found(
    tmp_path: Path,
) -> None:
    environ = {**FREELY, "RUNTIME_REQUEST_TIMEOUT_MS": "500"}
    async with serving(tmp_path, "--runtime-bind", "127.0.0.1:0", environ=environ) as service:
        before = await once_healthy(service)
        runtime = _child_of(service.pid, b"runtime")
        os.kill(runtime, signal.SIGSTOP)
        late = await ask(service, "POST", "/runtime/policies", POLICY, 504)
        assert late["errorCode"] == "RUNTIME_TIMEOUT"
        [entry] = (await ask(service, "GET", "/audit?resource=policy"))["data"]
        details = {"mode": POLICY["mode"], "answer": "none"}
        assert (entry["action"], entry["details"]) == ("policy.registered", details)
        os.kill(runtime, signal.SIGKILL)
        after = await once_healthy(service, but=before)
        assert after["detail"] != before["detail"]


async def test_d7_a_runtime_that_is_down_opens_the_breaker_until_it_is_reset(
    tmp_path: Path,
) -> None:
    dead = {
        **FREELY,
        "RUNTIME_ADDRESS": "127.0.0.1:1",
        "RUNTIME_ALLOW_INSECURE": "true",
        "RUNTIME_CIRCUIT_BREAKER_THRESHOLD": "3",
        "SESSION_DISCOVERY_ENABLED": "false",
    }
    async with serving(tmp_path, environ=dead) as service:
        for _ in range(3):
            down = await ask(service, "GET", "/runtime/manifest", status=503)
            assert down["errorCode"] == "RUNTIME_UNAVAILABLE"
        refused = await ask(service, "GET", "/runtime/modes", status=503)
        assert refused["errorCode"] == "CIRCUIT_BREAKER_OPEN"
        unwell = await ask(service, "GET", "/runtime/health")
        assert (unwell["ok"], unwell["runtimeKind"]) == (False, "rust")
        told = await ask(service, "GET", "/admin/circuit-breaker/history?window=1h")
        assert told["state"] == "OPEN"
        assert [(one["state"], one["reason"]) for one in told["history"]] == [
            ("CLOSED", "initial"),
            ("OPEN", "3 consecutive failures"),
        ]
        later = await ask(
            service, "GET", "/admin/circuit-breaker/history?window=1h&since=2100-01-01T00:00:00Z"
        )
        assert later["history"] == []
        bad = await ask(service, "GET", "/admin/circuit-breaker/history?since=soon", status=400)
        assert bad["errorCode"] == "VALIDATION_ERROR"
        reset = await ask(service, "POST", "/admin/circuit-breaker/reset")
        assert reset == {"status": "ok", "state": "CLOSED"}
        again = await ask(service, "GET", "/runtime/roots", status=503)
        assert again["errorCode"] == "RUNTIME_UNAVAILABLE"


async def test_a_service_without_a_runtime_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, "--no-runtime", environ=FREELY) as service:
        told = await ask(service, "GET", "/runtime/manifest", status=503)
        assert told["errorCode"] == "RUNTIME_UNAVAILABLE"
        assert "RUNTIME_ADDRESS" in told["message"]
        assert (await ask(service, "GET", "/runtime/health"))["ok"] is False


async def test_a_runtime_that_is_about_to_start_is_not_told_as_missing() -> None:
    opener = SessionOpener(SessionSpec(environ={}))
    link = Observing(opener, ControlPlaneSettings(), HostedRuntime()).link
    with pytest.raises(RuntimeFault, match="does not run yet: try again in a moment"):
        await link.client()


async def test_without_the_right_to_keep_registries_a_policy_is_forbidden(tmp_path: Path) -> None:
    with elsewhere(tmp_path / "elsewhere") as runtime:
        weak = {
            **FREELY,
            "RUNTIME_ADDRESS": runtime.address,
            "RUNTIME_ALLOW_INSECURE": "true",
            "RUNTIME_BEARER_TOKEN": "weak-token",
        }
        async with serving(tmp_path / "here", environ=weak) as service:
            refused = await ask(service, "POST", "/runtime/policies", POLICY, 403)
            assert refused["errorCode"] == "FORBIDDEN"


async def test_a_runtime_elsewhere_gets_the_rule_under_the_name_it_knows(tmp_path: Path) -> None:
    with elsewhere(tmp_path / "elsewhere") as runtime:
        named = {
            **FREELY,
            "RUNTIME_ADDRESS": runtime.address,
            "RUNTIME_ALLOW_INSECURE": "true",
            "RUNTIME_BEARER_TOKEN": OBSERVER,
        }
        async with serving(tmp_path / "here", environ=named) as service:
            assert (await ask(service, "POST", "/runtime/policies", POLICY, 201))["ok"]
            told = await ask(service, "GET", f"/runtime/policies/{POLICY['policyId']}")
            assert told["rules"]["objection_handling"] == {
                "block_severity_vetoes": True,
                "critical_severity_vetoes": True,
                "veto_threshold": 1,
            }


def _child_of(pid: int, command: bytes) -> int:
    """The child process with this word in its command line."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if command in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError(f"no child {command!r}")
