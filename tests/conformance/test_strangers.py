"""Programs that speak nothing of the kind: a finding in bounded time, and nothing left running."""

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from batten.conformance.runner import Runner
from batten.conformance.suites import PROTOCOLS, checks, gate
from tests.conformance.subjects import BATTEN, judged, ours

GREETED = "heddle.init.answered"


def conformance(*argv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [BATTEN, "conformance", *argv], capture_output=True, text=True, check=False
    )


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(text)
    return [sys.executable, "-I", str(path)]


def gone(pid: int) -> bool:
    """Whether a process that was killed is no longer there, once its parent has noticed."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("heddle",),
        ("heddle", "--"),
        ("heddle", "--", "/does/not/exist"),
        ("nonsense", "--", "true"),
        ("heddle", "--only", "nothing.like.it", "--", "true"),
        ("heddle", "--timeout", "0", "--", "true"),
        ("heddle", "--jobs", "x", "--", "true"),
        ("heddle", "--nonsense", "--", "true"),
        ("heddle", "--junit", "/does/not/exist.xml", "--", "true"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_64(argv: tuple[str, ...]) -> None:
    told = conformance(*argv)
    assert (told.returncode, told.stdout) == (64, "")
    assert told.stderr.startswith("batten: ")


def test_a_program_that_ends_at_once_fails_one_check_and_the_rest_is_not_tried(
    tmp_path: Path,
) -> None:
    junit = tmp_path / "report.xml"
    told = conformance("heddle", "--junit", str(junit), "--", "true")
    assert told.returncode == 1
    lines = told.stdout.splitlines()
    assert lines[0] == f"FAIL  {GREETED}"
    assert "it ended its output" in lines[2]
    number = len(checks("heddle"))
    assert lines[-1].startswith(f"heddle: 0 passed, 1 failed, {number - 1} skipped in ")
    suite = ET.parse(junit).getroot()
    assert (suite.get("failures"), suite.get("tests")) == ("1", str(number))
    (failure,) = suite.iter("failure")
    assert "init_ok" in (failure.get("message") or "")


def test_a_command_without_its_dashes_is_told_where_they_belong() -> None:
    assert "COMMAND stands behind `--`" in conformance("heddle", "cat").stderr


def test_words_that_mean_nothing_where_the_command_is_started_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text("exit 0\n")
    told = subprocess.run(
        [BATTEN, "conformance", "acp", "--", "sh", "agent.sh", "{nonsense}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert told.returncode == 1
    assert "for agent.sh write {here}/agent.sh" in told.stderr
    assert "{nonsense} stands for nothing here" in told.stderr


def test_a_reader_that_leaves_ends_the_suite_with_one_line() -> None:
    told = subprocess.Popen(
        [BATTEN, "conformance", "heddle", "--no-model", "--", *ours("heddle")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert told.stdout is not None
    told.stdout.readline()
    told.stdout.close()
    _, errors = told.communicate()
    line = b"batten: standard output is not complete: Broken pipe\n"
    assert (told.returncode, errors) == (1, line)


def test_a_report_holds_what_can_be_shown_whatever_the_program_says(tmp_path: Path) -> None:
    hostile = """
import sys
sys.stdin.readline()
print('{"type":"\\\\u001b[2J<&>\\\\ufffe' + 'x' * 100000 + '","id":"\\\\u0000"}', flush=True)
print('\\x1b[2J\\x00', file=sys.stderr, flush=True)
"""
    junit = tmp_path / "report.xml"
    command = script(tmp_path, hostile)
    told = conformance("heddle", "--only", GREETED, "--junit", str(junit), "--", *command)
    assert told.returncode == 1
    assert told.stdout.replace("\n", "").isprintable()
    assert len(told.stdout) < 3000
    (failure,) = ET.parse(junit).getroot().iter("failure")
    assert "init_ok" in (failure.get("message") or "")


async def test_a_program_that_says_nothing_is_not_waited_for_long() -> None:
    result = await judged(["sleep", "600"], GREETED, 0.5)
    assert result.finding == "failed"
    assert "nothing was said for 0.5 s" in result.reason


async def test_a_program_that_never_reads_is_not_waited_for_long() -> None:
    result = await judged(["sleep", "600"], "acp.rpc.survives", 0.5)
    assert (result.finding, result.reason) == ("failed", "it read nothing for 0.5 s")


async def test_a_program_that_never_stops_writing_is_cut_off(tmp_path: Path) -> None:
    flood = 'import os\nline = b\'{"type":"event"}\\n\' * 4096\nwhile os.write(1, line): pass\n'
    result = await judged(script(tmp_path, flood), "heddle.eof.drains", 60)
    assert result.finding == "failed"
    assert "and did not stop" in result.reason


async def test_a_line_without_end_is_cut_off(tmp_path: Path) -> None:
    result = await judged(
        script(tmp_path, "import os\nwhile os.write(1, b'x' * 65536): pass\n"), GREETED, 60
    )
    assert result.finding == "failed"
    assert "it wrote a line of more than" in result.reason


async def test_a_program_that_ignores_signals_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batten.conformance.subject._ENDING_S", 0.2)
    pids = tmp_path / "pids"
    stubborn = f"""
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
child = os.fork()
if child:
    with open({str(pids)!r}, "w") as file:
        file.write(f"{{os.getpid()}} {{child}}")
    print("{{}}", flush=True)
while True:
    time.sleep(600)
"""
    result = await judged(script(tmp_path, stubborn), GREETED)
    assert result.finding == "failed"
    leader, child = map(int, pids.read_text().split())
    assert gone(leader)
    assert gone(child)


async def test_a_child_that_goes_its_own_way_and_holds_the_pipes_is_found(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    leaving = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    with open({str(pids)!r}, "w") as file:
        file.write(str(os.getpid()))
    print("{{}}", flush=True)
    time.sleep(600)
"""
    result = await judged(script(tmp_path, leaving), GREETED)
    assert result.finding == "failed"
    assert gone(int(pids.read_text()))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)], ids=["SIGINT", "SIGTERM"]
)
def test_a_suite_that_is_interrupted_leaves_nothing_running(
    tmp_path: Path, number: int, code: int
) -> None:
    pids = tmp_path / "pids"
    waiting = f"""
import os, sys
with open({str(pids)!r}, "w") as file:
    file.write(str(os.getpid()))
print("begun", flush=True)
sys.stdin.read()
"""
    told = subprocess.Popen(
        [BATTEN, "conformance", "acp", "--timeout", "600", "--", *script(tmp_path, waiting)],
        stdout=subprocess.PIPE,
    )
    while not (pids.exists() and pids.read_text()):
        assert told.poll() is None
        time.sleep(0.01)
    told.send_signal(number)
    output, _ = told.communicate()
    assert (output, told.returncode) == (b"", code)
    assert gone(int(pids.read_text()))


async def test_nothing_is_left_of_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    await judged(["cat"], GREETED, 0.5)
    assert os.listdir(tmp_path) == []


async def test_an_echo_of_what_we_say_is_no_conversation() -> None:
    runner = Runner(["cat"], patience_s=0.5, jobs=3)
    for protocol in PROTOCOLS:
        first, *others = await runner.run(checks(protocol), gate(protocol))
        assert (first.id, first.finding) == (gate(protocol), "failed")
        assert {one.finding for one in others} == {"skipped"}


def test_the_checks_can_be_listed_without_running_any() -> None:
    told = conformance("acp", "--list")
    assert told.returncode == 0
    listed = [line.partition(" ")[0] for line in told.stdout.splitlines()]
    assert listed == [check.id for check in checks("acp")]


def test_without_a_model_only_the_rest_is_checked() -> None:
    told = conformance("acp", "--only", "acp.cancel.*", "--no-model", "--json", "--", "true")
    report = msgspec.json.decode(told.stdout)
    skipped = [one["id"] for one in report["results"] if one["reason"] == "it needs a model"]
    assert "acp.cancel.running" in skipped
    assert "acp.cancel.idle" not in skipped


def test_checks_have_names_of_their_own_and_say_what_they_check() -> None:
    for protocol in PROTOCOLS:
        found = checks(protocol)
        ids = [check.id for check in found]
        assert len(ids) == len(set(ids)) >= 25
        assert ids[0] == gate(protocol)
        for check in found:
            assert check.id.startswith(f"{protocol}.")
            assert check.says.endswith(".")
            assert check.section
