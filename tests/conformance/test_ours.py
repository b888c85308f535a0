"""Our own program keeps every promise of each protocol, and the report says so in all its forms."""

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from batten.conformance.suites import PROTOCOLS, checks
from tests.conformance.subjects import BATTEN, ours


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_check_passes_on_ours(tmp_path: Path, protocol: str) -> None:
    junit = tmp_path / "report.xml"
    flags = ["--strict", "--timeout", "60", "--jobs", "4", "--json", "--junit", str(junit)]
    told = subprocess.run(
        [BATTEN, "conformance", protocol, *flags, "--", *ours(protocol)],
        capture_output=True,
        check=False,
    )
    report = msgspec.json.decode(told.stdout)
    wrong = [one for one in report["results"] if one["finding"] != "passed"]
    assert wrong == []
    assert (told.returncode, told.stderr) == (0, b"")
    ids = [check.id for check in checks(protocol)]
    assert [one["id"] for one in report["results"]] == ids
    assert report["counts"] == {"passed": len(ids), "failed": 0, "warnings": 0, "skipped": 0}
    suite = ET.parse(junit).getroot()
    cases = [f"{one.get('classname')}.{one.get('name')}" for one in suite.iter("testcase")]
    assert cases == ids
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "0")


def test_a_program_that_plays_scenarios_needs_no_model_server() -> None:
    command = [BATTEN, "headless", "--protocol", "maestro", "--model", "scripted/{scenario}"]
    only = ["--timeout", "60", "--only", "maestro.*.denied"]
    told = subprocess.run(
        [BATTEN, "conformance", "maestro", *only, "--", *command], capture_output=True, check=False
    )
    assert told.stdout.decode().splitlines()[0] == "pass  maestro.approval.denied"
    assert told.returncode == 0
