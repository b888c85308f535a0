"""A run on a real terminal: what people see while it works, and what it leaves behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batten.contract.marks import plain
from tests.agent.stage import Stage, Statement, bash, call, end, fail, say
from tests.models.server import Fault, answer, cut
from tests.models.wire import anthropic_start, anthropic_text_block, anthropic_turn, sse
from tests.session.processes import BATTEN, batten, environment

from .invoking import Shell, serving
from .watching import Watched, watch, watching

FLAGS = ("--sandbox", "none", "--permission-mode", "acceptEdits", "--allow", "bash(*)")
EDIT = call("write_file", path="a.txt", content="one\ntwo\n")
CHANGE = call("edit_file", file_path="a.txt", old_string="two", new_string="zwei")


def flags(stage: Stage, *frames: list[Statement]) -> tuple[str, ...]:
    return ("-p", "go", "--model", stage.scenario(*frames), *FLAGS)


def rows(watched: Watched) -> list[str]:
    """The screen from the line about the run to its ending, without blanks and durations."""
    _, _, rest = watched.text.partition("\n\n")
    rest, _, _ = rest.partition("\nNext: ")
    kept = [row for row in rest.split("\n") if row and not row.startswith("✓")]
    return [re.sub(r" · [\d.]+ m?s$", "", row) for row in kept]


def test_each_call_of_a_message_has_its_result_below_it(stage: Stage) -> None:
    (stage.workspace / "b.txt").write_text("x\n")
    watched = watch(
        stage, *flags(stage, [say("I look."), bash("echo hi"), call("glob", pattern="*.txt")],
                      [say("All well.")]),
    )  # fmt: skip
    assert rows(watched) == [
        "I look.", "● bash echo hi", "  │ hi", "  └ ok", "● glob *.txt", "  └ 1 files",
        "All well.",
    ]  # fmt: skip


def test_an_edit_is_a_diff_in_colour(stage: Stage) -> None:
    watched = watch(stage, *flags(stage, [EDIT], [CHANGE], [say("Done.")]))
    assert watched.color("+one") == watched.color("+zwei") == "green"
    assert watched.color("-two") == "red"
    assert watched.color("@@ -1,2 +1,2 @@") == "cyan"


def test_a_failing_command_shows_why(stage: Stage) -> None:
    numbers = "".join(f"{number}\n" for number in range(100))
    (stage.workspace / "log").write_text(f"{numbers}E   assert 1 == 2\n{numbers}")
    watched = watch(stage, *flags(stage, [bash("cat log; exit 1")], [say("It fails.")]))
    assert watched.color("E   assert 1 == 2") == "red"
    assert watched.color("exited with status 1") == "red"
    assert watched.text.count("exited with status 1") == 1


def test_text_streams_and_the_answer_is_shown_once(stage: Stage) -> None:
    slow = {"kind": "delay", "ms": 60_000}
    model = flags(stage, [say("I begin now, and then "), slow, say("nothing.")])
    with watching(stage, *model) as watched:
        watched.until(lambda one: "I begin now, and" in one.text)
        assert watched.process.poll() is None
    watched = watch(stage, *flags(stage, [say("The one answer.")]))
    assert watched.text.count("The one answer.") == 1


def test_a_status_line_says_what_is_awaited_and_goes_away(stage: Stage) -> None:
    command = "until [ -e go ]; do sleep 0.02; done"
    with watching(stage, *flags(stage, [bash(command)], [say("Done.")])) as watched:
        watched.until(lambda one: "sleep 0.02; done · " in one.text.split("\n")[-1])
        status = watched.text.split("\n")[-1]
        assert re.search(r" · \d+s · ↑ \d+ ↓ \d+ tokens · ", status)
        assert status.endswith("tokens · $0.0000")
        assert watched.cursor == (len(watched.text.split("\n")) - 1, 0)
        (stage.workspace / "go").touch()
        assert watched.end() == 0
    assert "tokens · $" not in watched.text
    assert rows(watched)[0] == f"● bash {command}"
    assert rows(watched)[-2:] == ["  └ ok", "Done."]


def test_files_that_a_command_changed_are_named_below_it(stage: Stage) -> None:
    watched = watch(stage, *flags(stage, [bash("echo 1 >made.txt")], [say("Done.")]))
    assert "  │ changed by the command: made.txt" in rows(watched)


def test_files_that_a_command_changed_come_after_all_its_output(stage: Stage) -> None:
    command = "echo 1 >made.txt; seq 40"
    watched = watch(stage, *flags(stage, [bash(command)], [say("Done.")]))
    shown = rows(watched)
    end = shown.index("  └ ok")
    assert shown[end - 2 : end] == ["  │ 40", "  │ changed by the command: made.txt"]


def test_a_denial_and_a_retry_are_seen(stage: Stage) -> None:
    broken = fail("transient", "too busy", times=1)
    model = flags(stage, [broken, call("web_fetch", url="http://x.example/")], [say("No.")])
    watched = watch(stage, *model)
    assert "↻ retry 1 of" in watched.text
    assert "too busy" in watched.text
    assert watched.color("denied:") == "red"


def test_an_answer_that_broke_off_is_void_and_shown_again(stage: Stage, shell: Shell) -> None:
    begun = sse(anthropic_start(), *anthropic_text_block(0, "Half of ")[:-1], named=True)
    replies = [cut(begun, Fault.RESET), answer(anthropic_turn("The answer."))]
    argv = ("-p", "go", "--model", "anthropic/claude-sonnet-4-5", "--sandbox", "none")
    with (
        serving(shell, replies) as server,
        watching(stage, *argv, environ=server.environ()) as watched,
    ):
        assert watched.end() == 0
    assert rows(watched)[:2] == ["Half of", "↻ the answer so far is void"]
    assert rows(watched)[2].startswith("↻ retry 1 of ")
    assert rows(watched).count("The answer.") == 1


def test_a_failed_run_is_reported_once(stage: Stage) -> None:
    watched = watch(stage, *flags(stage, [fail("fatal", "the key is wrong")]))
    assert watched.process.returncode == 1
    assert watched.text.count("the key is wrong") == 1


@pytest.mark.parametrize("columns", [40, 60, 79])
def test_a_narrow_terminal_is_not_overrun(stage: Stage, columns: int) -> None:
    model = flags(
        stage,
        [say("日本語の文章です。" * 8), bash("echo " + "word " * 40), bash("echo 価格 && exit 3")],
        [say("Some words of an answer that is longer than the terminal is wide. " * 3)],
    )
    watched = watch(stage, *model, columns=columns)
    assert "exited with status 3" in watched.text
    words = "Some words of an answer that is longer than the terminal is wide."
    assert watched.text.replace("\n", " ").count(words) == 3


def test_a_window_made_narrower_leaves_no_torn_status_behind(stage: Stage) -> None:
    command = "until [ -e go ]; do sleep 0.02; done"
    with watching(stage, *flags(stage, [bash(command)], [say("Done.")]), columns=100) as watched:
        watched.until(lambda one: "tokens · $" in one.text)
        watched.resize(45)
        watched.until(lambda one: "· 1s" in one.text)
        (stage.workspace / "go").touch()
        assert watched.end() == 0
    assert "Done." in rows(watched)
    assert "tokens" not in watched.text


@pytest.mark.parametrize(
    ("how", "code"),
    [("key", 124), (signal.SIGTERM, 124), (signal.SIGKILL, -9)],
)
def test_the_terminal_is_usable_after_every_end(
    stage: Stage, how: str | signal.Signals, code: int
) -> None:
    with watching(stage, *flags(stage, [bash("sleep 60")], [say("x")])) as watched:
        watched.until(lambda one: "bash sleep 60 ·" in one.text)
        if isinstance(how, signal.Signals):
            watched.process.send_signal(how)
        else:
            watched.press(b"\x03")
        assert watched.end() == code
    assert not watched.is_cursor_hidden
    assert b"\x1b[?" not in watched.raw  # no mode is set, so none is left
    assert watched.cursor[1] == 0
    if code == 124:
        assert "tokens · $" not in watched.text
        assert watched.text.count("SIG") == 1


def test_a_second_interrupt_leaves_no_status_line(stage: Stage) -> None:
    model = stage.scenario([bash("trap '' TERM INT; sleep 60")], [say("x")])
    with watching(stage, "-p", "go", "--model", model, *FLAGS) as watched:
        watched.until(lambda one: "sleep 60 ·" in one.text)
        watched.press(b"\x03")
        watched.until(lambda one: "Cancelling" in one.text)
        watched.press(b"\x03")
        assert watched.end() == 130
    assert "tokens · $" not in watched.text


def test_a_waiting_approval_says_how_to_answer(stage: Stage) -> None:
    model = stage.scenario([bash("touch made")], [say("x")])
    argv = ("-p", "go", "--model", model, "--sandbox", "none", "--ask-operator")
    with watching(stage, *argv) as watched:
        watched.until(lambda one: "Waiting for approval" in one.text)
        listed = watch(stage, "requests")
        assert listed.color("approval") == "brown"
        assert "touch made" in listed.text
        words = next(row for row in watched.text.split("\n") if "batten answer" in row).split()
        batten(stage, "answer", words[3], "allow")
        assert watched.end() == 0
    assert rows(watched) == [
        "● bash touch made", "  │ needs approval", f"  │ batten answer {words[3]} allow|deny",
        "  │ approved by operator", "  │ changed by the command: made", "  └ ok", "x",
    ]  # fmt: skip


def test_a_child_run_has_a_line_for_each_of_its_calls(stage: Stage) -> None:
    stage.scenario([bash("echo hi"), bash("exit 3")], [say("Found.")], name="child")
    model = stage.scenario(
        [call("agent", prompt="look", description="Look around")], [say("Done.")],
        children={"look": "child.json"},
    )  # fmt: skip
    watched = watch(stage, "-p", "go", "--model", model, *FLAGS)
    shown = rows(watched)
    assert shown[0] == "● agent Look around"
    assert shown[1].startswith("  │ child run run_")
    assert shown[2:4] == [
        "  │ bash echo hi · exited with status 0", "  │ bash exit 3 · exited with status 3",
    ]  # fmt: skip
    assert shown[-1] == "Done."


def test_a_line_of_ours_does_not_tear_the_status_line(stage: Stage, shell: Shell) -> None:
    replies = [answer(anthropic_turn("The answer."))]
    argv = ("-p", "go", "--model", "anthropic/claude-nobody-knows", "--sandbox", "none")
    with (
        serving(shell, replies) as server,
        watching(stage, *argv, environ=server.environ()) as watched,
    ):
        assert watched.end() == 0
    (warning,) = [row for row in watched.text.split("\n") if "batten:" in row]
    assert warning.startswith("batten: ")
    assert "tokens" not in warning
    assert rows(watched).count("The answer.") == 1


ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b2K\u202e"


def test_nothing_a_model_or_a_tool_wrote_commands_the_terminal(stage: Stage) -> None:
    model = flags(
        stage,
        [say(f"say {ESCAPE} x"), bash("printf '\\033]52;c;ZXZpbA==\\007\\033[2Jout\\n'; exit 1"),
         call("write_file", path="a.txt", content=ESCAPE), call(f"evil{ESCAPE}", x=ESCAPE)],
        [say(f"bye {ESCAPE}"), end("limit_exceeded")],
    )  # fmt: skip
    watched = watch(stage, *model)
    ours = (b"\x1b[J", *(f"\x1b[{code}m".encode() for code in ("0", "1", "2", "31", "32", "33",
            "36", "1;31", "1;33", "1;36", "2;31")))  # fmt: skip
    left = watched.raw.replace(b"\r", b"")
    for sequence in ours:
        left = left.replace(sequence, b"")
    assert "owned" in watched.text
    assert plain(left.decode()) == left.decode()


def test_an_answer_with_a_secret_is_shown_as_it_was_said(stage: Stage) -> None:
    secret = "zq8-live-0123456789-abcdefghij"
    argv = flags(stage, [say(f"The key is {secret}")])
    watched = watch(stage, *argv, SERVICE_TOKEN=secret)
    assert rows(watched) == ["The key is <redacted>", f"The key is {secret}"]


def test_no_colour_where_none_is_wanted(stage: Stage) -> None:
    argv = flags(stage, [EDIT], [say("Done.")])
    assert b"\x1b[32m" in watch(stage, *argv).raw
    # No style at all, in the status line neither; only its erasing is left.
    assert re.search(rb"\x1b\[[0-9;]*m", watch(stage, *argv, NO_COLOR="1").raw) is None
    assert re.search(rb"\x1b\[[0-9;]*m", watch(stage, *argv, "--color", "never").raw) is None
    assert b"\x1b[32m" in watch(stage, *argv, "--color", "always", NO_COLOR="1").raw


def test_a_dumb_terminal_gets_text_alone(stage: Stage) -> None:
    watched = watch(stage, *flags(stage, [say("I look."), EDIT], [say("Done.")]), TERM="dumb")
    assert b"\x1b" not in watched.raw
    assert rows(watched) == [
        "I look.", "● write_file a.txt", "  │ @@ -0,0 +1,2 @@", "  │ +one", "  │ +two",
        "  └ Wrote 8 bytes to a.txt", "Done.",
    ]  # fmt: skip


def test_quiet_is_the_answer_alone(stage: Stage) -> None:
    argv = flags(stage, [say("I look."), bash("true")], [say("Done.")])
    assert watch(stage, *argv, "--quiet").raw == b"Done.\r\n"


def test_verbose_cuts_nothing_and_shows_times(stage: Stage) -> None:
    argv = flags(stage, [bash("seq 100")], [say("Done.")])
    watched = watch(stage, *argv, "--verbose", TZ="Asia/Tokyo")
    assert all(f"  │ {number}" in watched.text for number in range(1, 101))
    (header,) = [row for row in watched.text.split("\n") if "● bash" in row]
    shown = batten_show_times(stage, "Asia/Tokyo")
    assert header.split()[0] in shown


def batten_show_times(stage: Stage, zone: str) -> str:
    """The timeline of the last run as the clock of a zone has it."""
    env = {**environment(stage), "TZ": zone}
    argv = [BATTEN, "show", "last"]
    return subprocess.run(argv, env=env, capture_output=True, check=True).stdout.decode()


def test_times_are_those_of_the_reader(stage: Stage) -> None:
    batten(stage, *flags(stage, [say("Done.")]))
    hours = [
        int(batten_show_times(stage, zone)[:2]) for zone in ("UTC0", "XYZ-5")
    ]  # five hours ahead
    assert (hours[1] - hours[0]) % 24 == 5


def test_the_answer_goes_to_a_pipe_and_not_to_the_terminal(stage: Stage) -> None:
    reading, writing = os.pipe()
    argv = flags(stage, [say("I look."), bash("true")], [say("The answer.")])
    with watching(stage, *argv, stdout=writing) as watched:
        os.close(writing)
        assert watched.end() == 0
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"The answer.\n"
    assert rows(watched) == ["I look.", "● bash true", "  └ ok"]


def test_a_timeline_on_a_pipe_has_neither_colours_nor_a_status_line(stage: Stage) -> None:
    argv = flags(stage, [say("I look."), bash("echo hi")], [say("Done.")])
    said = batten(stage, *argv, "--progress", "always")
    assert said.stdout == b"Done.\n"
    lines = [line[10:] for line in said.stderr.decode().splitlines()]
    assert lines[:6] == [
        f"run: {argv[3]} in {stage.workspace}", "> go", "I look.", "● bash echo hi", "  │ hi",
        "  └ ok",
    ]  # fmt: skip
    assert b"\x1b" not in said.stderr
    assert b"\x1b[32m" in batten(stage, *argv, "--progress", "always", "--color", "always").stderr


LOADED = """
import sys
from batten.cli import run
code = run(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write("\\n".join(sys.modules))
sys.exit(code)
"""


@pytest.mark.parametrize("form", ["text", "stream-json"])
def test_a_run_on_a_pipe_loads_nothing_of_the_terminal(
    stage: Stage, tmp_path: Path, form: str
) -> None:
    told = tmp_path / "modules"
    argv = [*flags(stage, [EDIT, bash("exit 1")], [say("Done.")]), "--output-format", form]
    subprocess.run(
        [sys.executable, "-c", LOADED, str(told), *argv], env=environment(stage),
        cwd=stage.workspace, capture_output=True, timeout=30, check=True,
    )  # fmt: skip
    loaded = told.read_text().split()
    assert "batten.tools.shell" in loaded
    assert not [name for name in loaded if name.startswith(("rich", "batten.serve.terminal"))]


@pytest.mark.parametrize("command", ["show", "diff", "runs"])
def test_a_command_on_a_pipe_loads_no_library_for_terminals(
    stage: Stage, shell: Shell, tmp_path: Path, command: str
) -> None:
    shell.play([EDIT], [say("Done.")], flags=FLAGS)
    told = tmp_path / "modules"
    argv = [command] if command == "runs" else [command, *shell.run_ids()]
    subprocess.run(
        [sys.executable, "-c", LOADED, str(told), *argv], env=environment(stage),
        cwd=stage.workspace, capture_output=True, timeout=30, check=True,
    )  # fmt: skip
    assert not [name for name in told.read_text().split() if name.partition(".")[0] == "rich"]
