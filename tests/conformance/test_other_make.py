"""An agent of another make, on the official SDK: the suite finds its way, and its faults."""

import sys
from pathlib import Path

import pytest

from batten.conformance.runner import Runner
from batten.conformance.suites import checks

AGENT = [sys.executable, str(Path(__file__).with_name("sdk_agent.py"))]

FINDINGS = {
    "acp.initialize.answered": ("passed", ""),
    "acp.rpc.no_object": ("failed", "it ended its output"),
    "acp.session.load": ("skipped", "agentCapabilities does not have loadSession"),
    "acp.prompt.text": ("passed", ""),
    "acp.tools.lifecycle": ("passed", ""),
    "acp.tools.edit": ("skipped", "the model was offered no tool that can write"),
    "acp.permission.rejected": ("passed", ""),
    "acp.cancel.running": ("passed", ""),
    "acp.terminal.released": ("skipped", "the agent runs commands by itself"),
}


async def test_each_check_finds_what_is_so() -> None:
    chosen = [check for check in checks("acp") if check.id in FINDINGS]
    results = await Runner(AGENT, patience_s=20, jobs=3).run(chosen)
    assert {one.id: one.finding for one in results} == {
        check_id: finding for check_id, (finding, _) in FINDINGS.items()
    }
    for one in results:
        assert one.reason.startswith(FINDINGS[one.id][1])


@pytest.mark.soak
async def test_whatever_must_be_is_so() -> None:
    results = await Runner(AGENT, patience_s=20, jobs=3).run(checks("acp"))
    wrong = [one for one in results if one.finding == "failed" and one.level == "must"]
    assert wrong == []
