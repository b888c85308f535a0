"""A server follows a session elsewhere while the server, the runtime and the way between them are
killed, stopped and cut: every canonical event once, numbered without gaps.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from batten.contract import facts
from tests.conftest import Tell
from tests.control.observer.elsewhere import in_thread, panel
from tests.service.macp.describing import DescribedPlane, descriptor
from tests.service.macp.harming import HARMS, campaigning
from tests.service.serving import Service, serving


async def test_harm_of_every_kind_loses_repeats_and_renumbers_nothing(tmp_path: Path) -> None:
    async with campaigning(tmp_path, seed=7) as campaign:
        run_id, talk = await campaign.followed()
        for harm in HARMS:
            await asyncio.to_thread(talk.hear, 5)
            await campaign.harm(harm)
        assert await campaign.check(run_id, talk) >= 5 * len(HARMS)


@pytest.mark.soak
async def test_a_hundred_kills_and_cuts_lose_repeat_and_renumber_nothing(
    tmp_path: Path, tell: Tell
) -> None:
    messages = runs = 0
    async with campaigning(tmp_path, seed=20261117) as campaign:
        while sum(campaign.harms.values()) < 100:
            run_id, talk = await campaign.followed()
            for _ in range(10):
                await asyncio.sleep(campaign.random.uniform(0.0, 0.8))
                await campaign.harm(campaign.random.choice(HARMS))
            messages += await campaign.check(run_id, talk)
            runs += 1
        tell(runs=runs, messages=messages, **campaign.harms)


async def test_a_run_is_posted_opened_elsewhere_cancelled_and_told(tmp_path: Path) -> None:
    async with campaigning(tmp_path, seed=1) as campaign:
        plane = DescribedPlane(campaign.service)
        body = descriptor("lead", "ann", "ben")
        body["runtime"]["kind"] = "rust"
        made = await plane.create(body)
        with panel(campaign.runtime.server.address, made["sessionId"]) as agents:
            await in_thread(agents.start)
            await plane.until(made["runId"], "running")
            await in_thread(agents.propose, 1)
            await in_thread(agents.session.cancel)
            record = await plane.until(made["runId"], "cancelled", "completed", "failed")
        assert record["status"] == "cancelled"
        assert record["runtimeKind"] == "rust"
        types = await plane.types(made["runId"])
        assert types.count("message.received") == 2
        assert types[-2:] == ["session.state.changed", "run.cancelled"]


async def test_a_run_is_validated_against_the_modes_of_the_runtime_elsewhere(
    tmp_path: Path,
) -> None:
    async with campaigning(tmp_path, seed=4) as campaign:
        plane = DescribedPlane(campaign.service)
        body = descriptor("lead", "ann")
        body["runtime"]["kind"] = "rust"
        told = await plane.post("/runs/validate", body)
        assert (told["valid"], told["warnings"]) == (True, [])
        assert "macp.mode.decision.v1" in told["runtime"]["supportedModes"]
        assert told["runtime"]["capabilities"]["sessions"]["watchSessions"] is True
        body["session"]["modeName"] = "macp.mode.chess.v1"
        told = await plane.post("/runs/validate", body)
        assert told["valid"] is False
        assert "macp.mode.chess.v1" in told["errors"][0]
        campaign.proxy.target = ""
        campaign.proxy.cut()
        told = await plane.post("/runs/validate", body)
        assert (told["valid"], told["runtime"]["reachable"]) == (True, False)
        assert told["warnings"][0].startswith("Runtime not reachable: ")


async def test_what_the_runtime_elsewhere_refuses_is_told_with_its_status(tmp_path: Path) -> None:
    async with campaigning(tmp_path, seed=6) as campaign:
        plane = DescribedPlane(campaign.service)
        body = descriptor("lead", "ann", "ben", metadata={"cancellationDelegated": True})
        body["runtime"]["kind"] = "rust"
        made = await plane.create(body)
        with panel(campaign.runtime.server.address, made["sessionId"]) as agents:
            await in_thread(agents.start)
            await plane.until(made["runId"], "running")
            for action in ("cancel", "suspend"):
                answer = await plane.posted(f"/runs/{made['runId']}/{action}")
                assert (answer.status, answer.json["errorCode"]) == (403, "FORBIDDEN")
                assert answer.json["metadata"] == {"grpcCode": 7}
            record = await plane.get(f"/runs/{made['runId']}")
            assert record["status"] == "running"
            same = await plane.post(f"/runs/{made['runId']}/resume")
            assert (same["id"], same["status"]) == (record["id"], "running")
            campaign.proxy.target = ""
            campaign.proxy.cut()
            for action in ("cancel", "suspend"):
                answer = await plane.posted(f"/runs/{made['runId']}/{action}")
                assert (answer.status, answer.json["errorCode"]) == (503, "RUNTIME_UNAVAILABLE")
                assert answer.json["metadata"] == {"grpcCode": 14}


async def test_option_b_cancels_the_session_elsewhere_if_its_policy_lets_the_observer(
    tmp_path: Path,
) -> None:
    async with campaigning(tmp_path, seed=5) as campaign:
        plane = DescribedPlane(campaign.service)
        policy = {
            "policyId": "policy.delegated",
            "mode": "macp.mode.decision.v1",
            "rules": {
                "commitment": {
                    "authority": "designated_role",
                    "designated_roles": ["macp-control-plane"],
                }
            },
        }
        assert (await plane.post("/runtime/policies", policy))["ok"]
        body = descriptor("lead", "ann", "ben", metadata={"cancellationDelegated": True})
        body["runtime"]["kind"] = "rust"
        made = await plane.create(body)
        address = campaign.runtime.server.address
        options = {"policy_version": "policy.delegated"}
        with panel(address, made["sessionId"], **options) as agents:
            await in_thread(agents.start)
            await plane.until(made["runId"], "running")
            record = await plane.post(f"/runs/{made['runId']}/cancel", {"reason": "enough"})
            assert record["status"] == "cancelled"
            assert await in_thread(lambda: agents.state) == "CANCELLED"


async def test_a_server_that_follows_sessions_stops_within_its_grace(tmp_path: Path) -> None:
    """The original never ended: its watches were awaited and not closed."""
    async with campaigning(tmp_path, seed=2) as campaign:
        run_id, talk = await campaign.followed()
        await asyncio.to_thread(talk.hear, 5)
        async with asyncio.timeout(15):
            assert await campaign.service.stop() == 0
        await campaign.service.start()
        assert await campaign.check(run_id, talk) > 5


async def test_without_the_packages_of_the_runtime_the_server_says_what_to_install(
    tmp_path: Path,
) -> None:
    absent = tmp_path / "absent" / "grpc"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ImportError('not installed')")
    environ = {
        "PYTHONPATH": str(absent.parent),
        "RUNTIME_ADDRESS": "127.0.0.1:1",
        "RUNTIME_ALLOW_INSECURE": "true",
    }
    async with serving(tmp_path, "--workers", "0", "--no-runtime", environ=environ) as service:
        answer = await service.request("GET", "/runtime/manifest")
        assert answer.status == 503
        assert answer.json["errorCode"] == "RUNTIME_UNAVAILABLE"
        assert "install batten[runtime]" in answer.json["message"]
        assert (await service.request("GET", "/runtime/health")).json["ok"] is False
        assert (await service.request("GET", "/healthz")).status == 200


async def test_another_server_goes_on_while_the_first_is_stopped_and_is_not_disturbed_by_it(
    tmp_path: Path,
) -> None:
    async with campaigning(tmp_path, seed=3, BATTEN_LEASE_S="1.5") as campaign:
        first = campaign.service
        run_id, talk = await campaign.followed()
        await asyncio.to_thread(talk.hear, 5)
        second = Service(first.stage, ("--workers", "0", "--no-runtime"))
        await second.start()
        try:
            await asyncio.to_thread(campaign.stop_between_writes, first.pid)
            await campaign.until(run_id, frozenset({facts.RunStarted.TYPE}), 2)
            await asyncio.to_thread(talk.hear, 5)
            os.kill(first.pid, signal.SIGCONT)
            await asyncio.to_thread(talk.hear, 5)
            assert await campaign.check(run_id, talk) > 10
        finally:
            os.kill(first.pid, signal.SIGCONT)
            await second.stop()
