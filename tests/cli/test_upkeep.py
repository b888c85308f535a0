"""The commands that keep a home small and safe: prune, delete, export, import, backup."""

import asyncio
import os
import pty
import re
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec
import pytest

from batten.journal.file_format import VERSION
from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import bash, say
from tests.journal.sessions import age, ended_session, to_format_1
from tests.session.processes import BATTEN, environment, running, until

from .invoking import Said, Shell

SECRET = "tok-0123456789-abcdefghij"
PASSPHRASE = "a long passphrase"


def sessions(shell: Shell) -> list[str]:
    """The sessions of all runs, oldest first."""
    rows = shell("runs", "--json").frames()
    return list(dict.fromkeys(row["session_id"] for row in reversed(rows)))


def verified(shell: Shell, home: Path | None = None) -> bool:
    if home is None:
        return shell("verify").code == 0
    shell.set(BATTEN_HOME=str(home))
    try:
        return shell("verify").code == 0
    finally:
        shell.set(BATTEN_HOME=str(shell.stage.home))


def elsewhere(shell: Shell, home: Path, *argv: str) -> Said:
    """Invoke `batten` on another home."""
    shell.set(BATTEN_HOME=str(home))
    try:
        return shell(*argv)
    finally:
        shell.set(BATTEN_HOME=str(shell.stage.home))


@pytest.fixture
def three(shell: Shell) -> list[str]:
    """Three sessions; the first was last used long ago."""
    for number in range(3):
        shell.play([bash(f"seq 9000 {number}")], [say("well")], prompt=f"prompt {number}")
    made = sessions(shell)
    age(shell.stage.home, made[0])
    return made


def test_pruning_by_age_removes_old_sessions_and_says_so(shell: Shell, three: list[str]) -> None:
    planned = shell("prune", "--older-than", "30d", "--dry-run")
    assert planned.code == 0
    assert planned.out.startswith(f"would remove {three[0]}  last used 20".encode())
    assert sessions(shell) == three
    said = shell("prune", "--older-than", "30d")
    assert (said.code, said.err) == (0, "")
    first, last = said.out.decode().splitlines()
    assert first.startswith(f"removed {three[0]}")
    assert first.endswith("prompt 0")
    assert re.fullmatch(r"removed 1 session: [\d.]+ KB to [\d.]+ KB", last)
    assert sessions(shell) == three[1:]
    assert verified(shell)
    assert shell("prune", "--older-than", "30d").out.startswith(b"removed 0 sessions")


def test_pruning_by_count_and_size_as_json(shell: Shell, three: list[str]) -> None:
    (report,) = shell("prune", "--keep", "2", "--json").frames()
    assert [one["name"] for one in report["removed"]] == three[:1]
    assert report["after_bytes"] < report["before_bytes"]
    (report,) = shell("prune", "--max-size", "1G", "--json").frames()
    assert report["removed"] == []
    said = shell("prune", "--max-size", "0", "--json")
    assert [one["name"] for one in said.frames()[0]["removed"]] == three[1:]
    assert said.code == 1, "an empty store takes some room too"
    assert "the store still takes" in said.err
    assert sessions(shell) == []
    assert verified(shell)


def test_statistics_survive_pruning(shell: Shell, three: list[str]) -> None:
    (before,) = shell("stats", "--json").frames()
    shell("prune", "--keep", "1")
    assert shell("stats", "--json").frames() == [before]


def test_pruning_spares_a_run_that_is_going_on(shell: Shell, three: list[str]) -> None:
    model = shell.stage.scenario([bash("sleep 60")], [say("x")])
    with running(shell.stage, "--model", model, "--allow", "bash") as process:
        run_id = until(process, "tool.shell.command")
        said = shell("prune", "--keep", "0")
        assert said.code == 0
        assert "is in use" in said.err
        assert shell.run_ids() == [run_id]
        (row,) = shell("runs", "--json").frames()
        refused = shell("delete", run_id, "--yes")
        assert (refused.code, shell.run_ids()) == (1, [run_id])
        assert "is in use: worker-" in refused.err
    spared = shell("prune", "--keep", "0")
    assert f"its run {run_id} is unfinished" in spared.err
    assert shell("delete", row["session_id"], "--yes").code == 0
    assert shell.run_ids() == []
    assert verified(shell)


@pytest.mark.parametrize(
    "argv",
    [
        ["prune"],
        ["prune", "--dry-run"],
        ["prune", "run_x"],
        ["prune", "--before", "3"],
        ["prune", "run_x", "--before", "3", "--keep", "1"],
        ["delete"],
        ["export", "x"],
        ["import"],
        ["backup"],
    ],
)
def test_what_is_missing_on_the_command_line_is_said(shell: Shell, argv: list[str]) -> None:
    said = shell(*argv)
    assert (said.code, said.out) == (64, b"")
    assert f"try: batten {argv[0]} --help" in said.err


def test_a_place_behind_the_end_of_a_run_is_refused_with_the_last_one(
    shell: Shell, three: list[str]
) -> None:
    said = shell("prune", "last", "--before", "99999")
    count = len(shell("events", "last").frames())
    assert said.code == 1
    assert f"has {count} facts: at most those before {count} can be removed" in said.err


@pytest.mark.parametrize(
    "argv", [["delete", "x"], ["export", "x", "-o", "f"], ["import", "nowhere"], ["backup", "b"]]
)
def test_nothing_is_made_where_nothing_is(shell: Shell, argv: list[str]) -> None:
    said = shell(*argv)
    assert (said.code, said.out) == (66, b"")
    assert said.err.count("\n") == 1
    assert not shell.stage.home.exists()
    assert list(shell.stage.workspace.iterdir()) == []


def test_deleting_asks_and_needs_an_answer(shell: Shell, three: list[str]) -> None:
    said = shell("delete", three[1])
    assert said.code == 64
    assert "--yes deletes it without asking" in said.err
    assert sessions(shell) == three


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
def test_a_person_is_asked_before_a_session_is_deleted(
    shell: Shell, three: list[str], answer: bytes, code: int
) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        done = subprocess.run(
            [BATTEN, "delete", three[1]], stdin=theirs, capture_output=True, check=False,
            env=environment(shell.stage), timeout=30,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert f"session {three[1]}  1 run, " in done.stdout.decode()
    assert b"Delete it, with all its runs and artifacts? [y/N]" in done.stdout
    assert done.returncode == code
    assert (three[1] in sessions(shell)) == (code != 0)


def test_ctrl_c_ends_the_question_and_deletes_nothing(shell: Shell, three: list[str]) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [BATTEN, "delete", three[1]], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(shell.stage),
    ) as asking:  # fmt: skip
        try:
            assert asking.stdout is not None
            shown = b""
            while not shown.endswith(b"[y/N] "):
                more = os.read(asking.stdout.fileno(), 4096)
                assert more, shown
                shown += more
            asking.send_signal(signal.SIGINT)
            _, err = asking.communicate(timeout=30)
        finally:
            asking.kill()
            os.close(ours)
            os.close(theirs)
    assert (asking.returncode, err) == (130, b"batten: interrupted\n")
    assert sessions(shell) == three


@pytest.mark.parametrize("argv", [["delete", "--yes"], ["prune", "--keep", "0"]])
def test_a_home_where_nothing_can_be_removed_is_named_and_nothing_recorded(
    shell: Shell, three: list[str], argv: list[str]
) -> None:
    (shell.stage.home / "journal.db.upkeep").mkdir()
    said = shell(argv[0], *(three[:1] if argv[0] == "delete" else ()), *argv[1:])
    assert said.code == 1
    assert said.err.startswith(f"batten: the journal in {shell.stage.home} failed: ")
    assert sessions(shell) == three
    assert {"session.deleted", "journal.pruned"}.isdisjoint(
        row["action"] for row in shell("audit", "--json").frames()
    )


def test_a_session_that_a_fork_continues_is_not_deleted(shell: Shell) -> None:
    model = shell.stage.scenario([say("one")], [say("two")])
    shell.print(model, prompt="first")
    (origin,) = sessions(shell)
    assert shell("-p", "go on", "--resume", origin, "--fork-session").code == 0
    _, fork = sessions(shell)
    said = shell("delete", origin, "--yes")
    assert said.code == 1
    assert f"session {fork} was forked from {origin}" in said.err
    assert shell("delete", fork, "--yes").code == 0
    assert shell("delete", origin, "--yes").code == 0
    assert verified(shell)


def test_a_session_moves_to_another_home_and_goes_on_there(shell: Shell, tmp_path: Path) -> None:
    shell.play([bash("seq 9000")], [say("one")], [say("two")], flags=["--allow", "bash"])
    (session_id,) = sessions(shell)
    (run_id,) = shell.run_ids()
    bundle, there = tmp_path / "bundle.tar.gz", tmp_path / "there"
    said = shell("export", run_id, "-o", str(bundle))
    assert (said.code, said.out) == (0, b"")
    assert f"exported session {session_id}: 1 run, " in said.err
    assert bundle.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.glob("*.partial")] == []
    first = elsewhere(shell, there, "import", str(bundle))
    assert first.out.startswith(f"imported session {session_id}: 1 run, ".encode())
    assert f"its workspace was {shell.stage.workspace}" in first.out.decode()
    again = elsewhere(shell, there, "import", str(bundle))
    assert (again.code, b"is here already: nothing was changed" in again.out) == (0, True)
    assert elsewhere(shell, there, "events", run_id).out == shell("events", run_id).out
    assert verified(shell, there)
    resumed = elsewhere(shell, there, "-p", "go on", "--resume", session_id)
    assert (resumed.code, resumed.out) == (0, b"two\n")
    later = elsewhere(shell, there, "import", str(bundle), "--json").frames()
    assert later == [{"session_id": session_id, "result": "present"}]
    assert shell("export", session_id, "-o", str(bundle)).code == 1
    assert shell("export", session_id, "-o", str(bundle), "--force").code == 0


def test_a_session_without_anything_sealed_needs_no_key(shell: Shell, tmp_path: Path) -> None:
    shell.play([say("one")])
    shell.set(BATTEN_BUNDLE_PASSPHRASE=PASSPHRASE)
    assert not (shell.stage.home / "seal.key").exists()
    said = shell("export", "last", "-o", str(tmp_path / "bundle"), "--with-sealed")
    assert said.code == 0
    assert elsewhere(shell, tmp_path / "there", "import", str(tmp_path / "bundle")).code == 0


def test_a_bundle_may_go_through_a_pipe(shell: Shell, tmp_path: Path) -> None:
    shell.play([say("one")])
    (session_id,) = sessions(shell)
    piped = shell("export", session_id, "-o", "-")
    shell.set(BATTEN_HOME=str(tmp_path / "there"))
    for limit, code, words in (("100", 1, "--max-size allows more"), ("1G", 0, "")):
        said = shell("import", "-", "--max-size", limit, stdin=piped.out)
        assert (said.code, words in said.err) == (code, True), said.err
    assert sessions(shell) == [session_id]


@pytest.fixture
def sealed(shell: Shell) -> str:
    """A session whose prompt had a secret in it: it goes on only with what is sealed."""
    shell.set(SERVICE_TOKEN=SECRET)
    shell.play([say("one")], [say("two")], prompt=f"use {SECRET}")
    return sessions(shell)[0]


def test_what_is_sealed_stays_here_unless_it_is_asked_for(
    shell: Shell, sealed: str, tmp_path: Path
) -> None:
    bundle, there = tmp_path / "bundle", tmp_path / "there"
    said = shell("export", sealed, "-o", str(bundle))
    assert "left out: 1 sealed body; " in said.err
    with tarfile.open(bundle) as archive:
        manifest = msgspec.json.decode(cast(Any, archive.extractfile("bundle.json")).read())
    assert (manifest["bodies"], len(manifest["left_out"])) == ([], 1)
    imported = elsewhere(shell, there, "import", str(bundle))
    assert (imported.code, "not in the bundle: 1 sealed body" in imported.err) == (0, True)
    assert verified(shell, there)
    resumed = elsewhere(shell, there, "-p", "go on", "--resume", sealed)
    assert resumed.code == 1
    assert "was imported from left it out" in resumed.err
    shell.set(BATTEN_BUNDLE_PASSPHRASE=PASSPHRASE)
    assert shell("export", sealed, "-o", str(bundle), "--with-sealed", "--force").code == 0
    again = elsewhere(shell, there, "import", str(bundle))
    assert "to take its sealed bodies from the bundle, delete it here" in again.err
    target = str(tmp_path / "from-there")
    exported = elsewhere(shell, there, "export", sealed, "-o", target, "--with-sealed")
    assert "left out: 1 sealed body; " in exported.err
    assert exported.err.endswith("This home lacks them\n")


def test_what_is_sealed_travels_under_a_passphrase(
    shell: Shell, sealed: str, tmp_path: Path
) -> None:
    bundle, there, words = tmp_path / "bundle", tmp_path / "there", tmp_path / "words"
    words.write_text(PASSPHRASE + "\n")
    export = ("export", sealed, "-o", str(bundle), "--with-sealed")
    assert "--with-sealed needs a passphrase" in shell(*export).err
    shell.set(BATTEN_BUNDLE_PASSPHRASE="short")
    assert "fewer than 8 characters" in shell(*export).err
    assert not bundle.exists()
    shell.set(BATTEN_BUNDLE_PASSPHRASE=PASSPHRASE)
    assert shell(*export).code == 0
    data = bundle.read_bytes()
    with tarfile.open(bundle) as archive:
        members = [cast(Any, archive.extractfile(one)).read() for one in archive.getmembers()]
    key = (shell.stage.home / "seal.key").read_bytes()
    for secret in (SECRET.encode(), key, PASSPHRASE.encode()):
        assert not any(secret in one for one in (data, *members))

    shell.set(BATTEN_BUNDLE_PASSPHRASE="another passphrase")
    wrong = elsewhere(shell, there, "import", str(bundle))
    assert (wrong.code, "the passphrase does not open" in wrong.err) == (1, True)
    assert not there.exists()
    said = elsewhere(shell, there, "import", str(bundle), "--passphrase-file", str(words))
    assert (said.code, said.err) == (0, "")
    assert verified(shell, there)
    resumed = elsewhere(shell, there, "-p", "go on", "--resume", sealed)
    assert (resumed.code, resumed.out) == (0, b"two\n")
    # What was imported can be exported again, and deleted.
    further = tmp_path / "further"
    shell.set(BATTEN_BUNDLE_PASSPHRASE=PASSPHRASE)
    export = ("export", sealed, "-o", str(further), "--with-sealed")
    assert elsewhere(shell, there, *export).code == 0
    third = tmp_path / "third"
    assert elsewhere(shell, third, "import", str(further)).code == 0
    assert elsewhere(shell, third, "-p", "go on", "--resume", sealed).code == 0
    assert elsewhere(shell, there, "delete", sealed, "--yes").code == 0
    assert verified(shell, there)


def test_a_sealed_part_without_a_passphrase_is_refused_or_left(
    shell: Shell, sealed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, there = tmp_path / "bundle", tmp_path / "there"
    shell.set(BATTEN_BUNDLE_PASSPHRASE=PASSPHRASE)
    assert shell("export", sealed, "-o", str(bundle), "--with-sealed").code == 0
    monkeypatch.delenv("BATTEN_BUNDLE_PASSPHRASE")
    said = elsewhere(shell, there, "import", str(bundle))
    assert (said.code, "--no-sealed imports the rest" in said.err) == (64, True)
    assert elsewhere(shell, there, "import", str(bundle), "--no-sealed").code == 0
    assert verified(shell, there)
    assert elsewhere(shell, there, "-p", "go on", "--resume", sealed).code == 1
    # At home its own key opens what is sealed.
    assert shell("delete", sealed, "--yes").code == 0
    assert shell("import", str(bundle), "--no-sealed").code == 0
    assert shell("-p", "go on", "--resume", sealed).out == b"two\n"


def test_a_pruned_conversation_travels_with_the_sealed_part(shell: Shell, tmp_path: Path) -> None:
    shell.play([say("one")], [say("two")], prompt="first")
    (session_id,), (run_id,) = sessions(shell), shell.run_ids()
    assert shell("prune", run_id, "--before", "8").code == 0
    shell.set(BATTEN_BUNDLE_PASSPHRASE=PASSPHRASE)
    for flags, code in (["--with-sealed"], 0), ([], 1):
        bundle, there = tmp_path / f"bundle{code}", tmp_path / f"there{code}"
        assert shell("export", session_id, "-o", str(bundle), *flags).code == 0
        assert elsewhere(shell, there, "import", str(bundle)).code == 0
        assert verified(shell, there)
        resumed = elsewhere(shell, there, "-p", "go on", "--resume", session_id)
        assert resumed.code == code
    assert "the bundle of this session left it out" in resumed.err


def test_a_damaged_bundle_is_refused_and_makes_nothing(shell: Shell, tmp_path: Path) -> None:
    shell.play([say("one")])
    bundle, there = tmp_path / "bundle", tmp_path / "there"
    assert shell("export", sessions(shell)[0], "-o", str(bundle)).code == 0
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    bundle.write_bytes(data)
    said = elsewhere(shell, there, "import", str(bundle))
    assert (said.code, said.out, said.err.count("\n")) == (1, b"", 1)
    assert said.err.startswith("batten: ")
    assert not there.exists()


@pytest.mark.parametrize("name", ["copy", "copy.tar.gz"])
def test_a_backup_is_a_home(shell: Shell, tmp_path: Path, name: str) -> None:
    shell.play([bash("seq 9000")], [say("well")], flags=["--allow", "bash"])
    target = tmp_path / "backups" / name
    target.parent.mkdir()
    said = shell("backup", str(target))
    assert said.code == 0
    assert said.out.startswith(f"backed up {shell.stage.home} to {target}: ".encode())
    copy = target
    if target.is_file():
        copy = tmp_path / "unpacked"
        with tarfile.open(target) as archive:
            archive.extractall(copy, filter="data")
    assert verified(shell, copy)
    listed = elsewhere(shell, copy, "runs", "--json").out
    assert listed == shell("runs", "--json").out
    assert shell("backup", str(target)).code == 1
    inside = shell("backup", str(shell.stage.home / "copy"))
    assert (inside.code, "name a place outside it" in inside.err) == (1, True)


def test_a_home_of_an_older_version_is_read_and_then_converted(
    shell: Shell, three: list[str]
) -> None:
    events = shell("events", "last").out
    to_format_1(shell.stage.home)
    assert sessions(shell) == three
    assert shell("events", "last").out == events != b""
    assert shell("stats").code == 0
    assert shell("prune", "--keep", "1", "--dry-run").code == 0
    copy = shell.stage.home / "journal.db.format-1"
    assert not copy.exists()
    assert shell.play([say("on a converted home")]).out == b"on a converted home\n"
    assert copy.exists()
    assert shell("prune", "--keep", "1").code == 0
    assert verified(shell)


def test_a_home_of_a_newer_version_is_refused_with_one_code_everywhere(
    shell: Shell, three: list[str]
) -> None:
    db = cast(Any, apsw.Connection(str(shell.stage.home / "journal.db")))
    db.pragma("user_version", VERSION + 1)
    db.close()
    for argv in (
        ["runs"], ["stats"], ["show", "run_x"], ["verify"], ["prune", "--keep", "1"],
        ["backup", "b"], ["delete", "x"], ["-p", "go", "--model", shell.stage.scenario([say("x")])],
    ):  # fmt: skip
        said = shell(*argv)
        assert said.code == 78, argv
        assert f"has format {VERSION + 1}, written by a newer Batten" in said.err, argv


def test_two_upkeep_commands_exclude_each_other(shell: Shell, three: list[str]) -> None:
    import fcntl

    with open(shell.stage.home / "journal.db.upkeep", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for argv in (["prune", "--keep", "1"], ["delete", three[0], "--yes"], ["backup", "b"]):
            said = shell(*argv)
            assert said.code == 1
            assert "another process prunes, deletes, imports or copies" in said.err
        fcntl.flock(file, fcntl.LOCK_SH)
        assert shell("export", three[0], "-o", "b").code == 0, "copies do not exclude copies"
    assert sessions(shell) == three


def test_sessions_of_another_process_are_backed_up_while_it_works(
    shell: Shell, tmp_path: Path
) -> None:
    async def one() -> str:
        journal = SqliteJournal.open(shell.stage.home)
        try:
            return await ended_session(journal)
        finally:
            journal.close()

    asyncio.run(one())
    model = shell.stage.scenario([bash("sleep 60")], [say("x")])
    with running(shell.stage, "--model", model, "--allow", "bash") as process:
        until(process, "tool.shell.command")
        assert shell("backup", str(tmp_path / "copy")).code == 0
        assert process.poll() is None
    states = [
        row["state"] for row in elsewhere(shell, tmp_path / "copy", "runs", "--json").frames()
    ]
    assert states == ["abandoned", "completed"]
    assert verified(shell, tmp_path / "copy")
