"""`--debug`: a log of one invocation that names what happened, and holds no secret."""

import stat
from pathlib import Path

from tests.agent.stage import Stage, bash, say
from tests.models.server import answer, refusal
from tests.models.wire import anthropic_turn
from tests.session.processes import batten, kill_after

from .invoking import Said, Shell, serving

MODEL = ("--model", "anthropic/claude-sonnet-4-5")


def log_of(said: Said) -> str:
    """The text of the log that the last line names."""
    last = said.err.splitlines()[-1]
    assert last.startswith("batten: debug log: ")
    return Path(last.removeprefix("batten: debug log: ")).read_text()


def test_a_log_names_calls_facts_and_the_ending(shell: Shell) -> None:
    with serving(shell, [answer(anthropic_turn("Well."))]) as server:
        said = shell("-p", "a long prompt", *MODEL, "--debug", "--sandbox", "none")
        url = server.url
    assert (said.code, said.out) == (0, b"Well.\n")
    log = log_of(said)
    assert "batten started version=" in log
    assert "arguments -p <13 characters> --model anthropic/claude-sonnet-4-5 --debug" in log
    assert f"http {url}/v1/messages after_ms=" in log
    assert " status=200 " in log
    assert "ended=well" in log
    assert "recorded assistant.final_answer" in log
    assert "ended code=0" in log
    assert "a long prompt" not in log
    assert "Well." not in log
    (path,) = (shell.stage.home / "debug").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_names_the_sandbox_of_commands(shell: Shell) -> None:
    """A run without a command may have ended before the sandbox has started."""
    model = shell.stage.scenario([bash("true")], [say("Done.")])
    flags = ("--model", model, "--allow", "bash", "--debug", "--sandbox", "none")
    assert "sandbox layer=none started" in log_of(shell("-p", "go", *flags))


def test_a_log_holds_no_secret(shell: Shell) -> None:
    shell.set(DEPLOY_TOKEN="s3kr1t-Value-99")
    key = "sk-ant-api03-" + "a1B2" * 20
    with serving(shell, [refusal(401, f"key {key} and s3kr1t-Value-99 are wrong")]):
        shell.set(ANTHROPIC_API_KEY=key)
        said = shell("-p", "use-s3kr1t-Value-99", *MODEL, "--debug")
    assert said.code != 0
    log = log_of(said)
    assert "status=401" in log
    assert "ANTHROPIC_API_KEY" in log
    assert key not in log
    assert "s3kr1t-Value-99" not in log
    assert "<redacted>" in log


def test_what_was_said_and_what_failed_is_in_the_log(shell: Shell) -> None:
    said = shell("-p", "go", "--resume", "chat_nobody", "--debug")
    assert said.code == 66
    log = log_of(said)
    assert "people said: batten: " in log
    assert "Traceback (most recent call last):" in log
    assert "NotFound: no session or run is named chat_nobody" in log


def test_the_log_goes_to_the_file_that_is_named(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "one.log"
    model = shell.stage.scenario([say("well")])
    assert shell.print(model, "--debug-file", str(path)).err == f"batten: debug log: {path}\n"
    first = path.read_text()
    assert shell.print(model, "--debug-file", str(path)).code == 0
    assert path.read_text().startswith(first)
    assert len(path.read_text()) > len(first)


def test_the_variable_turns_it_on_and_nothing_is_written_without(shell: Shell) -> None:
    model = shell.stage.scenario([say("well")])
    assert shell.print(model).err == ""
    assert not (shell.stage.home / "debug").exists()
    shell.set(BATTEN_DEBUG="1")
    assert "ended code=0" in log_of(shell.print(model))


def test_a_command_and_a_protocol_have_a_log_too(shell: Shell) -> None:
    shell.stage.home.mkdir(exist_ok=True)
    said = shell("show", "run_nobody", "--debug")
    assert said.code == 66
    assert "arguments show run_nobody --debug" in log_of(said)
    assert "ended code=66" in log_of(said)
    served = shell("headless", "--protocol", "heddle", "--debug")
    assert "arguments --protocol heddle --debug" in log_of(served)


def test_only_the_newest_logs_are_kept(shell: Shell) -> None:
    folder = shell.stage.home / "debug"
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / f"20260101T0000{number:02}-1.log").touch()
    (folder / "notes.txt").touch()
    assert shell("version", "--debug").code == 0
    kept = sorted(path.name for path in folder.glob("*.log"))
    assert len(kept) == 20
    assert kept[0] == "20260101T000011-1.log"
    assert (folder / "notes.txt").exists()


def test_a_log_that_cannot_be_written_is_an_error_before_anything_runs(shell: Shell) -> None:
    model = shell.stage.scenario([say("well")])
    said = shell.print(model, "--debug-file", "/proc/nowhere/x.log")
    assert (said.code, said.out) == (78, b"")
    assert "the debug log /proc/nowhere/x.log cannot be written" in said.err
    assert not (shell.stage.home / "journal.db").exists()


def test_a_process_of_its_own_names_its_log_last(stage: Stage) -> None:
    model = stage.scenario([say("well")])
    ended = batten(stage, "-p", "go", "--model", model, "--sandbox", "none", "--debug")
    (path,) = (stage.home / "debug").iterdir()
    assert ended.stdout == b"well\n"
    assert ended.stderr.decode() == f"batten: debug log: {path}\n"
    assert "ended code=0" in path.read_text()


def test_a_killed_process_leaves_what_it_logged(stage: Stage) -> None:
    model = stage.scenario([bash("sleep 60")], [say("well")])
    kill_after(stage, "tool.shell.command", "--model", model, "--allow", "bash", "--debug")
    (path,) = (stage.home / "debug").iterdir()
    assert "recorded tool.invoked" in path.read_text()
