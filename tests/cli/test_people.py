"""What people are shown: never a secret, nothing a terminal obeys, and nobody must read it."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress

import msgspec
import pytest

from batten.contract.marks import one_line, plain
from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.models.server import refusal
from tests.session.processes import BATTEN, batten, environment, kill_after, running, until

from .invoking import Shell, serving

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b2K\r\u202e\u200b\u3164"
KEY = "sk-ant-api03-" + "Ab1" * 20


@pytest.mark.parametrize(
    ("last", "code", "out", "outcome"),
    [([], 0, b"well\n", "completed"), ([end("limit_exceeded")], 1, b"", "model_error")],
)
def test_a_run_does_not_wait_for_a_reader_of_its_timeline(
    stage: Stage, last: list[Statement], code: int, out: bytes, outcome: str
) -> None:
    frames = [[say(f"line {number}\n" * 30), bash(f"echo {number}")] for number in range(5)]
    model = stage.scenario(*frames, [say("well"), *last])
    reading, writing = full_pipe()
    said = subprocess.run(
        [BATTEN, "-p", "go", "--model", model, "--allow", "bash", "--sandbox", "none",
         "--progress", "always"],
        env={**environment(stage), "BATTEN_WATCHDOG_S": "3"}, cwd=stage.workspace,
        stdout=subprocess.PIPE, stderr=writing, timeout=30, check=False,
    )  # fmt: skip
    os.close(writing)
    os.close(reading)
    journal = stage.journal()
    (row,) = asyncio.run(journal.runs())
    journal.close()
    assert (said.returncode, said.stdout, row.outcome) == (code, out, outcome)


def full_pipe() -> tuple[int, int]:
    """A pipe that takes nothing more, since nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    return reading, writing


@pytest.mark.parametrize("form", ["text", "json", "stream-json", "events"])
def test_a_key_that_a_provider_repeats_is_not_shown(shell: Shell, form: str) -> None:
    error = {"type": "error", "error": {"type": "authentication_error", "message": f"bad {KEY}"}}
    with serving(shell, [refusal(401, error)]):
        shell.set(ANTHROPIC_API_KEY=KEY)
        said = shell.print("anthropic/claude-sonnet-4-5", "--output-format", form)
    assert said.code != 0
    assert "bad <redacted>" in said.err
    assert KEY not in said.err + said.out.decode()


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_secret_in_the_error_of_a_server_is_not_shown(
    shell: Shell, form: str, required: bool
) -> None:
    shell.set(SERVER_TOKEN="quite-1-secret-value")
    server = {"command": "/nowhere/${SERVER_TOKEN}", "required": required}
    config = msgspec.json.encode({"mcpServers": {"away": server}}).decode()
    said = shell.play([say("well")], flags=["--mcp-config", config, "--output-format", form])
    assert (said.code != 0) is required
    assert "/nowhere/<redacted>" in said.err
    assert "quite-1-secret-value" not in said.err + said.out.decode()


def test_the_timeline_of_an_answer_with_a_secret_is_redacted(shell: Shell) -> None:
    """Standard error is a log; the answer on standard output is as the model wrote it."""
    said = shell.play([say(f"it is {KEY}.")], flags=["--progress", "always"])
    assert said.out.decode() == f"it is {KEY}.\n"
    assert "it is sk-ant-<redacted>." in said.err
    assert KEY not in said.err


def test_what_a_terminal_would_obey_is_marked() -> None:
    assert plain("a\tb\nc") == "a\tb\nc"
    assert plain(ESCAPE) == "\ufffd]0;owned\ufffd\ufffd[2J\ufffd2K\ufffd\ufffd\ufffd\ufffd"
    assert one_line("a\nb") == "a⏎b"


def obeyed(text: str) -> bool:
    return plain(text) != text


def test_no_text_of_a_run_reaches_the_terminal_as_a_command(shell: Shell) -> None:
    said = shell.play(
        [
            say("say " + ESCAPE),
            bash("printf '\\033]52;c;ZXZpbA==\\007out\\n'"),
            call("evil" + ESCAPE, x=1),
            call("write_file", path="a\x1b[2Kb", content="x"),
        ],
        [say("bye"), end("limit_exceeded")],
        prompt="hello " + ESCAPE,
        flags=["--permission-mode", "acceptEdits", "--allow", "bash", "--progress", "always"],
    )
    assert said.code == 1
    assert "owned" in said.err
    assert not obeyed(said.err)
    (run_id,) = shell.run_ids()
    for command in (["show", run_id], ["runs"], ["artifacts", run_id], ["requests"]):
        assert not obeyed(shell(*command).out.decode()), command
    assert not obeyed(shell("revert", run_id).out.decode())


def test_a_question_cannot_pass_for_another(stage: Stage) -> None:
    command = "rm -rf x\r\x1b[1A\x1b[2Kappr_SAFE  approval\nappr_TOO    approval    echo"
    model = stage.scenario([bash(command)], [say("x")])
    with running(stage, "--model", model, "--ask-operator") as process:
        until(process, "approval.requested")
        listed = batten(stage, "requests").stdout.decode()
    (line,) = listed.splitlines()
    assert "rm -rf x" in line
    assert not obeyed(line)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_run_that_is_told_to_end_has_its_ending(stage: Stage, number: signal.Signals) -> None:
    model = stage.scenario([bash("sleep 60")], [say("x")])
    with running(stage, "--model", model, "--allow", "bash") as process:
        run_id = until(process, "tool.shell.command")
        process.send_signal(number)
        assert process.wait(20) == 124
    journal = stage.journal()
    row = journal.run_now(run_id)
    journal.close()
    assert row is not None
    assert row.outcome == "cancelled"


def test_a_hang_up_that_is_ignored_stays_ignored(stage: Stage) -> None:
    model = stage.scenario([bash("while [ ! -e go ]; do sleep 0.02; done")], [say("well")])
    words = f"-p go --model {model} --sandbox none --allow bash --output-format events"
    with subprocess.Popen(
        ["sh", "-c", f"trap '' HUP; exec '{BATTEN}' {words}"],
        env=environment(stage), cwd=stage.workspace, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        until(process, "tool.shell.command")
        process.send_signal(signal.SIGHUP)
        (stage.workspace / "go").touch()
        until(process, "run.finished")
        assert process.wait(20) == 0


def test_following_a_run_whose_process_died_ends(stage: Stage) -> None:
    model = stage.scenario([bash("sleep 60")], [say("x")])
    run_id = kill_after(stage, "tool.shell.command", "--model", model, "--allow", "bash")
    followed = batten(stage, "events", run_id, "--follow")
    assert followed.returncode == 1
    assert b"its process is gone" in followed.stderr
    assert followed.stdout == batten(stage, "events", run_id).stdout


@pytest.fixture
def run_id(shell: Shell) -> str:
    shell.play(
        [call("write_file", path="a", content="héllo …\n")], [say("héllo … \n" * 50)],
        flags=["--permission-mode", "acceptEdits"],
    )  # fmt: skip
    return shell.run_ids()[-1]


def spoken(stage: Stage, words: str) -> tuple[int, str]:
    """Exit code and stderr of a line for the shell, in which $B is `batten`."""
    said = subprocess.run(
        ["sh", "-c", words], env={**environment(stage), "B": BATTEN}, cwd=stage.workspace,
        capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    err = said.stderr.decode()
    assert "Traceback" not in err
    return said.returncode, err


@pytest.mark.parametrize("command", ["show", "events", "diff", "artifacts"])
@pytest.mark.parametrize("place", [">&-", ">/dev/full"])
def test_output_that_cannot_be_written_is_said_in_words(
    stage: Stage, run_id: str, command: str, place: str
) -> None:
    code, err = spoken(stage, f"$B {command} {run_id} {place}")
    assert code == 1
    assert err.startswith("batten: standard output is not complete: ")


def test_a_version_nobody_can_read_is_an_error(stage: Stage) -> None:
    assert spoken(stage, "$B --version >/dev/full")[0] == 1
    assert spoken(stage, "$B --version >&-")[0] == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_the_output_does_not_know_are_written_some_other_way(
    stage: Stage, run_id: str, encoding: str
) -> None:
    assert spoken(stage, f"PYTHONIOENCODING={encoding} $B show {run_id}") == (0, "")


@pytest.mark.parametrize("after", ["99999999999999999999", "-99999999999999999999", "x"])
def test_a_sequence_that_cannot_be_is_a_usage_error(shell: Shell, run_id: str, after: str) -> None:
    said = shell("events", run_id, f"--after={after}")
    assert said.code == 64
    assert "is not a sequence" in said.err


def test_a_directory_that_is_gone_is_said_to_be(stage: Stage) -> None:
    model = stage.scenario([say("x")])
    gone = "mkdir gone && cd gone && rmdir ../gone && "
    for words in (f"$B -p x --model {model}", "BATTEN_HOME=here $B runs"):
        code, err = spoken(stage, gone + words)
        assert code == 78
        assert "the current directory is gone" in err


def test_a_home_that_is_not_utf8_is_said_not_to_be(stage: Stage) -> None:
    code, err = spoken(stage, r'BATTEN_HOME=$(printf "/tmp/\377") $B runs')
    assert code == 78
    assert "is not UTF-8" in err


@pytest.mark.parametrize("config", ["[1]", "[]"])
def test_servers_that_are_no_object_are_a_usage_error(shell: Shell, config: str) -> None:
    said = shell.play([say("x")], flags=["--mcp-config", config])
    assert said.code == 64
    assert "--mcp-config must be a JSON object" in said.err


@pytest.mark.parametrize("form", ["text", "json", "stream-json", "events"])
def test_an_answer_with_a_known_secret_reaches_the_client_as_it_was_said(
    shell: Shell, form: str
) -> None:
    secret = "zq8-live-0123456789-abcdefghij"
    shell.set(SERVICE_TOKEN=secret)
    said = shell.play(
        [say(f'{{"key": "{secret}"}}')],
        flags=["--output-format", form, "--json-schema", '{"type": "object"}'],
    )
    assert said.code == 0
    assert (secret in said.out.decode()) is (form != "events")  # events are what is stored
    if form in ("json", "stream-json"):
        assert said.result["result"] == f'{{"key": "{secret}"}}'
        assert said.result["structured_output"] == {"key": secret}
    if form == "stream-json":
        (message,) = [one for one in said.frames() if one["type"] == "message"]
        assert message["content"] == [{"type": "text", "text": f'{{"key": "{secret}"}}'}]
    stored = [path for path in shell.stage.home.rglob("*") if path.is_file()]
    assert not any(secret.encode() in path.read_bytes() for path in stored)
