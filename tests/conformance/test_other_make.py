"""An agent of another make, on the official SDK: the suite finds its way, and its faults."""

import sys
from pathlib import Path

import pytest

from batten.conformance.runner import Runner
from batten.conformance.suites import checks

AGENT = [sys.executable, str(Path(__file__).with_name("sdk_agent.py"))]

FINDINGS = {
    "acp.rpc.no_object": ("failed", "it ended its output"),
    "acp.session.load": ("skipped", "agentCapabilities does not have loadSession"),
    "acp.tools.edit": ("skipped", "the model was offered no tool that can write"),
    "acp.permission.rejected": ("passed", ""),
}


async def test_each_check_finds_what_is_so() -> None:
    chosen = [check for check in checks("acp") if check.id in FINDINGS]
    results = await Runner(AGENT, patience_s=60, jobs=3).run(chosen)
    assert {one.id: one.finding for one in results} == {
        check_id: finding for check_id, (finding, _) in FINDINGS.items()
    }
    for one in results:
        assert one.reason.startswith(FINDINGS[one.id][1])


@pytest.mark.soak
async def test_of_what_must_be_it_only_lacks_servers_of_the_client() -> None:
    results = await Runner(AGENT, patience_s=60, jobs=3).run(checks("acp"))
    wrong = [one.id for one in results if one.finding == "failed" and one.level == "must"]
    assert wrong == ["acp.session.mcp_stdio"]
