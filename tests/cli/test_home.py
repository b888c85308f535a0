"""Where state lives, and what is said when nothing can live there."""

import os
import pwd
import stat
import subprocess
from pathlib import Path

import pytest

from batten.wiring.home import batten_home
from tests.agent.stage import Stage, say
from tests.session.processes import BATTEN, batten, environment

from .invoking import Shell

HERE = os.getcwd()
READING = (["verify"], ["show", "run_x"], ["requests"])


def test_state_lives_where_the_environment_says() -> None:
    assert batten_home({"BATTEN_HOME": "/a/b"}, HERE) == "/a/b"
    assert batten_home({"BATTEN_HOME": "", "XDG_STATE_HOME": "/state"}, HERE) == "/state/batten"
    assert batten_home({}, HERE).endswith("/.local/state/batten")


@pytest.mark.parametrize("given", ["", ".", "state"])
def test_a_folder_that_is_no_whole_path_is_not_where_state_lives(given: str) -> None:
    """It would be in a workspace, whose content would then say that it is trusted."""
    account = os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".local/state/batten")
    assert batten_home({"HOME": given}, HERE) == account
    assert batten_home({"HOME": given, "XDG_STATE_HOME": given}, HERE) == account
    assert batten_home({"HOME": "/me", "XDG_STATE_HOME": given}, HERE) == "/me/.local/state/batten"


def test_a_home_that_is_named_for_us_alone_may_be_relative() -> None:
    assert batten_home({"BATTEN_HOME": "state"}, HERE) == os.path.abspath("state")


def test_a_home_is_made_for_its_owner_alone(shell: Shell) -> None:
    shell.play([say("well")])
    assert stat.S_IMODE(os.stat(shell.stage.home).st_mode) == 0o700


@pytest.mark.parametrize("argv", READING)
def test_reading_where_nothing_was_written_makes_nothing(shell: Shell, argv: list[str]) -> None:
    said = shell(*argv)
    assert (said.code, said.out) == (66, b"")
    assert "there is no journal at" in said.err
    assert not shell.stage.home.exists()


COMMANDS = (
    *(["runs"], ["show", "last"], ["requests"], ["verify"], ["stats"], ["audit"], ["token"]),
    *(["keys", "list"], ["keys", "create", "a"], ["trust", "--list"], ["prune", "--keep", "1"]),
    *(["export", "last", "-o", "x"], ["sinks", "list"], ["-p", "go"], ["acp"], ["worker"]),
    *(["serve", "--port", "0"], ["runtime", "--bind", "127.0.0.1:0"]),
    ["hosted-runner", "--runner-session-id", "a", "--workspace-root", ".", "--port", "0"],
)


@pytest.mark.attack
@pytest.mark.parametrize("argv", COMMANDS, ids=lambda argv: " ".join(argv[:2]))
def test_a_home_that_others_can_write_is_refused_by_every_command(
    stage: Stage, argv: list[str]
) -> None:
    stage.home.mkdir(exist_ok=True)
    stage.home.chmod(0o777)
    environ = {**environment(stage), "MAESTRO_WEB_REQUIRE_KEY": "0"}
    said = subprocess.run(
        [BATTEN, *argv], env=environ, cwd=stage.workspace, capture_output=True, timeout=30,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert said.returncode in (1, 78), said.stderr
    assert f"chmod 700 {stage.home}" in said.stderr.decode()
    assert list(stage.home.iterdir()) == []


_MAKERS = ("token", "keys", "serve", "runtime", "hosted-runner")
MAKING = [argv for argv in COMMANDS if argv[0] in _MAKERS and "list" not in argv]


@pytest.mark.parametrize("argv", MAKING, ids=lambda argv: " ".join(argv[:2]))
def test_a_home_that_cannot_be_made_is_an_error_in_words(stage: Stage, argv: list[str]) -> None:
    """As that of a user without a home directory."""
    blocked = stage.directory / "file"
    blocked.touch()
    home = str(blocked / "home")
    environ = {**environment(stage), "BATTEN_HOME": home, "MAESTRO_WEB_REQUIRE_KEY": "0"}
    said = subprocess.run(
        [BATTEN, *argv], env=environ, cwd=stage.workspace, capture_output=True, timeout=30,
        stdin=subprocess.DEVNULL, check=False, text=True,
    )  # fmt: skip
    assert said.returncode in (1, 78), said.stderr
    assert f"{home} cannot be made: Not a directory; set BATTEN_HOME" in said.stderr
    assert "Traceback" not in said.stderr


def test_doctor_names_a_home_that_others_can_write(stage: Stage) -> None:
    stage.home.mkdir(exist_ok=True)
    stage.home.chmod(0o777)
    said = batten(stage, "doctor", "--offline").stdout.decode()
    assert "PROBLEM  store" in said
    assert "chmod 700" in said


def broken_file(home: Path) -> None:
    home.write_text("not a directory")


def broken_database(home: Path) -> None:
    home.mkdir()
    (home / "journal.db").write_bytes(b"this is no database " * 100)


def broken_directory(home: Path) -> None:
    (home / "journal.db").mkdir(parents=True)


@pytest.mark.parametrize("break_it", [broken_file, broken_database, broken_directory])
@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_home_that_cannot_be_used_is_an_error_in_words(
    shell: Shell, break_it: object, form: str
) -> None:
    assert callable(break_it)
    break_it(shell.stage.home)
    model = shell.stage.scenario([say("well")])
    said = shell("-p", "go", "--model", model, "--output-format", form)
    assert said.code == 1
    assert str(shell.stage.home) in said.err
    if form != "text":
        assert str(shell.stage.home) in said.result["error"]
        assert (said.result["outcome"], said.result["durable"]) == ("store", False)


@pytest.mark.parametrize("break_it", [broken_file, broken_database, broken_directory])
@pytest.mark.parametrize("argv", READING)
def test_a_home_that_cannot_be_read_is_an_error_in_words(
    shell: Shell, break_it: object, argv: list[str]
) -> None:
    assert callable(break_it)
    break_it(shell.stage.home)
    said = shell(*argv)
    assert said.code in (1, 66)
    assert str(shell.stage.home) in said.err + said.out.decode()


def test_a_home_nobody_may_write_is_an_error_in_words(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write anywhere but where the kernel keeps its own.
    shell.set(BATTEN_HOME="/proc/batten")
    said = shell("-p", "go", "--model", shell.stage.scenario([say("well")]))
    assert said.code == 1
    assert "/proc/batten" in said.err


def test_a_seal_that_cannot_be_broken_keeps_a_session_from_going_on(shell: Shell) -> None:
    shell.set(SERVICE_TOKEN="tok-0123456789-abcdefghij")
    model = shell.stage.scenario([say("one")], [say("two")])
    shell.print(model, prompt="use tok-0123456789-abcdefghij")
    (run_id,) = shell.run_ids()
    (shell.stage.home / "seal.key").unlink()
    said = shell("-p", "again", "--resume", run_id)
    assert said.code == 1
    assert "seal.key" in said.err


READS = (["runs"], ["show", "last"], ["events", "last"], ["artifacts", "last"], ["verify"])


@pytest.mark.parametrize("command", [*READS, ["diff", "last"], ["audit"], ["requests"]])
def test_a_command_that_reads_leaves_nothing_behind(shell: Shell, command: list[str]) -> None:
    shell.play([say("well")])
    home = shell.stage.home

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}

    before = files()
    assert "journal.db-wal" not in before
    assert batten(shell.stage, *command).returncode == 0
    assert files() == before
