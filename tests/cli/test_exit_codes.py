"""Every documented exit code, from a real process; and none but 0 comes without a word."""

import os
import re
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from tests.agent.stage import Stage, Statement, bash, fail, say
from tests.models.server import answer
from tests.models.wire import anthropic_turn
from tests.protocols.transcripts import set_prices
from tests.session.processes import BATTEN, PATIENCE_S, environment, until

from .invoking import Said, Shell, serving

PAGE = Path(__file__).parents[2] / "docs" / "print-mode.md"
WELL = ([say("well")],)
FORMS = ["text", "json", "stream-json", "events"]
REAL = "json"
"""In this form each case is a process; in the others it is one only if its output is redirected."""


def documented() -> dict[int, str]:
    """Exit codes and subtypes of the page's table."""
    table = PAGE.read_text().partition("## Endings")[2].partition("\n\nExit code")[0]
    rows = re.findall(r"^\| (\d+) \| (?:`(\w+)`|none) \|", table, re.MULTILINE)
    return {int(code): subtype for code, subtype in rows}


class Case(Struct, frozen=True):
    """One way to an exit code."""

    frames: Sequence[list[Statement]] = ()
    """The model's; an answer if there are none."""
    flags: tuple[str, ...] = ()
    stdin: bytes = b""
    place: str = ""
    """A redirection of standard output."""
    has_frame: bool = True
    """Whether there is a result frame: not for a mistake in the flags."""


STREAM = ("--input-format", "stream-json")
NOWHERE = {"COMPAT_BASE_URL": "http://127.0.0.1:9"}
CASES: dict[int, dict[str, Case]] = {
    0: {"an answer": Case()},
    1: {
        "the model": Case([[fail("fatal", "no")]]),
        "a key": Case(flags=("--model", "anthropic/claude-opus-4")),
        "a time limit": Case([[bash("sleep 30")]], ("--max-seconds", "0.3", "--allow", "bash")),
        "a full disk": Case(place=">/dev/full", has_frame=False),
        "no output": Case(place=">&-", has_frame=False),
    },
    2: {
        "a schema": Case([[say("no")]] * 3, ("--json-schema", '{"type": "object"}')),
        "a denied call": Case([[bash("git push")], [say("x")]], ("--fail-on", "denied")),
    },
    64: {
        "a flag": Case(flags=("--unheard-of",), has_frame=False),
        "a number": Case(flags=("--max-turns", "x"), has_frame=False),
        "a line": Case(flags=STREAM, stdin=b"{}\n"),
    },
    66: {
        "a session": Case(flags=("--resume", "chat_nobody")),
        "no message": Case(flags=STREAM),
        "an attachment": Case(flags=("--attach", "nowhere")),
    },
    75: {"turns": Case([[bash("true")], [say("x")]], ("--max-turns", "1", "--allow", "bash"))},
    78: {
        "a model": Case(flags=("--model", "nobody/nothing")),
        "settings": Case(flags=("--settings", '{"model": 1}')),
        "input": Case(stdin=b"x" * (10 * 1024 * 1024)),
        "a price": Case(flags=("--model", "compat/x", "--max-budget-usd", "1", "--require-price")),
    },
}


def arguments(stage: Stage, case: Case, form: str) -> list[str]:
    prompt = () if STREAM[0] in case.flags else ("-p", "go")
    model = ("--model", stage.scenario(*(case.frames or WELL)))
    return [*prompt, "--sandbox", "none", "--output-format", form, *model, *case.flags]


def run(stage: Stage, case: Case, form: str) -> Said:
    said = subprocess.run(
        ["sh", "-c", f'exec "$@" {case.place}', "sh", BATTEN, *arguments(stage, case, form)],
        input=case.stdin,
        capture_output=True,
        env={**environment(stage), **NOWHERE},
        cwd=stage.workspace,
        timeout=PATIENCE_S,
        check=False,
    )
    return Said(said.returncode, said.stdout, said.stderr.decode())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("code", "name"), [(code, name) for code, cases in CASES.items() for name in cases]
)
def test_a_documented_code_is_the_code_and_says_why(
    shell: Shell, code: int, name: str, form: str
) -> None:
    case = CASES[code][name]
    if form == REAL or case.place:
        said = run(shell.stage, case, form)
    else:
        shell.set(**NOWHERE)
        said = shell(*arguments(shell.stage, case, form), stdin=case.stdin)
    if form in ("stream-json", "events") and case.place:
        # It is noticed while the run works, which is then cancelled.
        assert said.code in (code, 124)
    else:
        assert said.code == code, said.err
    if said.code:
        assert said.err.startswith("batten: ")
        assert "Traceback" not in said.err
    if form in ("json", "stream-json") and case.has_frame:
        assert said.result["subtype"] == documented()[code]


def test_every_documented_code_is_tried_here() -> None:
    tried = {*CASES, 124, 130, 137}
    assert set(documented()) == tried
    assert (documented()[124], documented()[130], documented()[137]) == (
        "cancelled", "", "budget_exceeded",
    )  # fmt: skip


@contextmanager
def working(
    stage: Stage, form: str, *more: str
) -> "Generator[subprocess.Popen[bytes], None, None]":
    """A process whose run has begun a command, which ends when `go` is written to."""
    for name in ("begun", "go"):
        os.mkfifo(stage.workspace / name)
    stubborn = bash("trap '' TERM; echo x > begun; cat go")
    model = stage.scenario([stubborn], [bash("exec tail -f /dev/null")], [say("x")])
    flags = ("--model", model, "--allow", "bash", "--sandbox", "none", "--output-format", form)
    with subprocess.Popen(
        [BATTEN, "-p", "go", *flags, *more],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(stage), cwd=stage.workspace,
    ) as process:  # fmt: skip
        try:
            (stage.workspace / "begun").read_text()
            yield process
        finally:
            process.kill()


HASTY = ("--settings", '{"sandbox": {"grace_s": 0.1}}')
"""A command that ignores the signal is not waited for."""


@pytest.mark.parametrize("form", FORMS)
def test_124_is_a_signal(stage: Stage, form: str) -> None:
    with working(stage, form, *HASTY) as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 124
    assert err == b"batten: cancelled: SIGTERM\n"
    if form in ("json", "stream-json"):
        assert msgspec.json.decode(out.splitlines()[-1])["subtype"] == documented()[124]


@pytest.mark.parametrize("form", ["stream-json", "events"])
def test_124_is_a_reader_that_went_away(stage: Stage, form: str) -> None:
    with working(stage, form) as process:
        assert process.stdout is not None
        process.stdout.close()
        (stage.workspace / "go").write_text("")
        assert process.stderr is not None
        err = process.stderr.read().decode()
        assert process.wait(PATIENCE_S) == 124
    assert err.splitlines() == [
        "batten: cancelled: output closed",
        "batten: standard output is not complete: Broken pipe",
    ]


def test_two_signals_before_the_run_leave_the_result_frame_whole(stage: Stage) -> None:
    """As of a supervisor that signals a process and its group."""
    argv = [BATTEN, "-p", "--model", stage.scenario([say("x")]), "--output-format", "json"]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(stage),
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"batten: waiting for standard input\n"
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 124
    assert msgspec.json.decode(out)["subtype"] == "cancelled"
    assert err == b"batten: cancelled: before the run began\n"


def test_130_is_a_second_interrupt(stage: Stage) -> None:
    # The command outlives the time in which the second signal comes, also on a slow machine.
    patient = ("--settings", '{"sandbox": {"grace_s": 60}}')
    with working(stage, "events", *patient) as process:
        process.send_signal(signal.SIGINT)
        until(process, "run.cancel_requested")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert err == b"batten: interrupted: a second time, so the process ends at once\n"


@pytest.mark.parametrize("form", FORMS)
def test_137_is_a_budget_that_is_spent(shell: Shell, form: str) -> None:
    set_prices(shell)
    step = answer(anthropic_turn(calls=[("c1", "todo_write", {"todos": []})]))
    with serving(shell, [step]) as server:
        said = subprocess.run(
            [BATTEN, "-p", "go", "--model", "anthropic/m", "--max-budget-usd", "0.01",
             "--output-format", form],
            env={**environment(shell.stage), **server.environ(),
                 "BATTEN_PRICES": os.environ["BATTEN_PRICES"]},
            stdin=subprocess.DEVNULL, capture_output=True, cwd=shell.stage.workspace,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert said.returncode == 137
    assert said.stderr.startswith(b"batten: budget: $0.02")
    if form in ("json", "stream-json"):
        assert msgspec.json.decode(said.stdout.splitlines()[-1])["subtype"] == documented()[137]


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_into_a_closed_pipe_is_said(stage: Stage, form: str) -> None:
    model = stage.scenario([say("well")])
    said = subprocess.run(
        ["bash", "-c", '"$@" | true; exit ${PIPESTATUS[0]}', "bash",
         BATTEN, "-p", "go", "--model", model, "--output-format", form],
        stdin=subprocess.DEVNULL, capture_output=True, env=environment(stage),
        cwd=stage.workspace, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert said.returncode in (1, 124)
    assert b"standard output is not complete: Broken pipe" in said.stderr


@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["runs", "--json"]])
@pytest.mark.parametrize("place", [">/dev/full", ">&-"])
def test_a_word_that_cannot_be_written_is_said_to_be_lost(
    stage: Stage, argv: list[str], place: str
) -> None:
    run(stage, Case(), "text")
    said = subprocess.run(
        ["sh", "-c", f'exec "$@" {place}', "sh", BATTEN, *argv],
        capture_output=True, env=environment(stage), timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert said.returncode == 1
    assert said.stderr.startswith(b"batten: ")


@pytest.mark.parametrize("argv", [["runs"], ["events", "last"], ["help"], ["--help"], ["version"]])
def test_a_command_into_a_closed_pipe_says_why_it_failed(stage: Stage, argv: list[str]) -> None:
    run(stage, Case(), "text")
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        said = subprocess.run(
            [BATTEN, *argv], stdin=subprocess.DEVNULL, stdout=closed, stderr=subprocess.PIPE,
            env=environment(stage), timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert said.returncode == 1
    assert said.stderr == b"batten: standard output is not complete: Broken pipe\n"
