"""Names on the command line: ids, UUIDs, prefixes and `last`, the same for every command."""

import subprocess

import pytest

from batten.contract.ids import spans, to_uuid
from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import Stage, bash, call, say
from tests.session.processes import BATTEN, environment, kill_after, running, until

from .invoking import Json, Shell


@pytest.fixture
def rows(shell: Shell) -> list[Json]:
    """Two sessions, the second with two runs; oldest run first."""
    model = shell.stage.scenario([say("one")], [say("two")], [say("three")])
    shell.print(model, prompt="first")
    shell.print(model, prompt="second")
    shell("-p", "third", "--continue")
    return shell("runs", "--json").frames()[::-1]


def spellings(row: Json) -> list[str]:
    """The ways to name this run alone."""
    run_id = str(row["run_id"])
    return [run_id, run_id.lower(), run_id[4:], run_id[:-1], to_uuid(run_id), to_uuid(run_id)[:35]]


@pytest.mark.parametrize("command", ["show", "events", "artifacts", "diff", "verify", "requests"])
def test_every_command_takes_every_spelling_of_a_run(
    shell: Shell, rows: list[Json], command: str
) -> None:
    expected = shell(command, rows[1]["run_id"])
    assert expected.code == 0
    for name in spellings(rows[1]):
        assert shell(command, name) == expected, name


def test_an_artifact_is_named_by_a_prefix(shell: Shell) -> None:
    shell.play([bash("echo hi")], [say("well")], flags=["--allow", "bash"])
    (row,) = shell("artifacts", "last", "--json").frames()
    assert shell("artifacts", str(row["artifact_id"])[:-1]).out == b"hi\n"
    assert shell("artifacts", "art_01").code == 66


def test_last_is_the_newest_run(shell: Shell, rows: list[Json]) -> None:
    assert shell("events", "last").out == shell("events", rows[2]["run_id"]).out
    assert "> third" in shell("show", "last").out.decode()


def test_last_is_no_child_run(shell: Shell) -> None:
    shell.stage.scenario([say("seen")], name="look")
    model = shell.stage.scenario(
        [call("agent", prompt="look")], [say("well")], children={"look": "look.json"}
    )
    assert shell.print(model).code == 0
    parent, child = shell("runs", "--json").frames()[::-1]
    assert child["parent_run_id"] == parent["run_id"]
    assert shell("events", "last").out == shell("events", parent["run_id"]).out


def test_a_session_is_shown_whole_and_stands_for_its_newest_run(
    shell: Shell, rows: list[Json]
) -> None:
    session = rows[2]["session_id"]
    assert rows[1]["session_id"] == session
    for name in (session, to_uuid(session), session[:-1]):
        shown = shell("show", name).out.decode()
        assert "> second" in shown
        assert "> third" in shown
        assert "> first" not in shown
        assert shell("events", name).out == shell("events", rows[2]["run_id"]).out
        listed = shell("runs", "--session", name, "--json").frames()
        assert [row["run_id"] for row in listed] == [rows[2]["run_id"], rows[1]["run_id"]]
    assert shell("runs", "--session", rows[0]["run_id"], "--json").frames() == [rows[0]]


def test_a_session_is_verified_with_its_child_runs_and_shown_without(shell: Shell) -> None:
    shell.stage.scenario([say("seen")], name="look")
    model = shell.stage.scenario(
        [call("agent", prompt="look")], [say("well")], children={"look": "look.json"}
    )
    assert shell.print(model).code == 0
    parent, child = shell("runs", "--json").frames()[::-1]
    assert shell("show", parent["session_id"]).out == shell("show", parent["run_id"]).out
    database = shell.stage.home / "journal.db"
    data = database.read_bytes()
    assert data.count(b'"seen"') > 0
    database.write_bytes(data.replace(b'"seen"', b'"soon"'))
    damages = shell("verify", parent["session_id"], "--json").frames()
    assert child["run_id"] in {damage["run_id"] for damage in damages}


def test_a_prefix_of_several_lists_them(shell: Shell, rows: list[Json]) -> None:
    said = shell("show", str(rows[0]["run_id"])[:8])
    assert (said.code, said.out) == (64, b"")
    assert "is short for more than one" in said.err
    for row in rows:
        assert row["run_id"] in said.err


def test_a_prefix_of_few_letters_is_no_name(shell: Shell, rows: list[Json]) -> None:
    said = shell("revert", "01")
    assert (said.code, said.out) == (66, b"")
    assert "no run is named 01; `batten runs` lists them" in said.err


def test_resume_and_branch_take_shortened_names(shell: Shell, rows: list[Json]) -> None:
    shell.stage.scenario(*[[say(f"{number}")] for number in range(9)])
    first, second = rows[0], rows[1]["session_id"]
    for name in (str(first["run_id"])[:-2], to_uuid(first["session_id"])[:34]):
        assert shell("-p", "go on", "--resume", name).code == 0
        assert (
            shell("runs", "--json", "--limit", "1").frames()[0]["session_id"]
            == (first["session_id"])
        )
    place = rows[2]["next_sequence"] - 1
    branch = f"{second[:-1]}:{place}"
    branched = shell("-p", "x", "--branch", branch, "--output-format", "events")
    data = branched.frames()[0]["data"]
    assert (data["from_run_id"], data["from_sequence"]) == (rows[2]["run_id"], place)
    ambiguous = shell("-p", "x", "--resume", str(first["run_id"])[:8])
    assert (ambiguous.code, ambiguous.out) == (64, b"")
    assert "is short for more than one" in ambiguous.err


def test_resume_last_goes_on_with_the_newest_run_of_any_place(
    shell: Shell, rows: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert shell("-p", "go on", "--resume", "last", "--output-format", "json").code == 0
    newest = shell("runs", "--json", "--limit", "1").frames()[0]
    assert newest["session_id"] == rows[2]["session_id"]


def test_last_without_a_run_says_that_there_is_none(stage: Stage, shell: Shell) -> None:
    SqliteJournal.open(stage.home).close()
    said = shell("show", "last")
    assert (said.code, said.out) == (66, b"")
    assert "there is no run yet" in said.err


def test_a_request_is_named_by_a_prefix_by_its_run_and_by_last(shell: Shell) -> None:
    model = shell.stage.scenario([bash("echo 1")], [bash("echo 2")], [bash("echo 3")], [say("x")])
    with running(shell.stage, "--model", model, "--ask-operator") as process:
        for number in range(3):
            run_id = until(process, "approval.requested")
            (asked,) = shell("requests", "last", "--json").frames()
            assert asked["input"]["command"] == f"echo {number + 1}"
            name = (str(asked["request_id"])[:-1], run_id, "last")[number]
            said = shell("answer", name, "allow")
            assert (said.code, said.err) == (0, "")
            assert said.out.decode().startswith(str(asked["request_id"]))
        assert process.wait(20) == 0
    none = shell("answer", "last", "allow")
    assert (none.code, none.err) == (66, "batten: no request is pending\n")


def test_last_answers_nothing_while_two_requests_wait(shell: Shell) -> None:
    model = shell.stage.scenario([bash("echo 1")], [say("x")])
    flags = ("--model", model, "--ask-operator")
    with running(shell.stage, *flags) as one, running(shell.stage, *flags) as two:
        until(one, "approval.requested")
        until(two, "approval.requested")
        said = shell("answer", "last", "allow")
        assert (said.code, said.out) == (64, b"")
        for row in shell("requests", "--json").frames():
            assert row["request_id"] in said.err
            assert row["status"] == "pending"


def test_a_run_is_cancelled_from_outside(shell: Shell) -> None:
    model = shell.stage.scenario([bash("sleep 60")], [say("x")])
    with running(shell.stage, "--model", model, "--allow", "bash") as process:
        run_id = until(process, "tool.shell.command")
        said = shell("cancel", "last", "--reason", "enough")
        assert (said.code, said.out.decode()) == (0, f"{run_id}: cancel requested\n")
        assert process.wait(20) == 124
    (row,) = shell("runs", "--json").frames()
    assert row["outcome"] == "cancelled"
    again = shell("cancel", run_id)
    assert (again.code, again.err) == (1, f"batten: {run_id} has ended: cancelled\n")


def test_a_cancelled_run_without_its_process_ends_when_it_is_resumed(shell: Shell) -> None:
    model = shell.stage.scenario([bash("sleep 60")], [say("x")])
    run_id = kill_after(shell.stage, "tool.shell.command", "--model", model, "--allow", "bash")
    said = shell("cancel", run_id)
    assert said.code == 0
    assert f"its process is gone; `batten -p --resume {run_id}` ends it" in said.err
    assert shell("-p", "--resume", run_id).code == 124
    (row,) = shell("runs", "--json").frames()
    assert row["outcome"] == "cancelled"


def test_a_protocol_starts_with_a_shortened_name(stage: Stage, rows: list[Json]) -> None:
    name = str(rows[0]["run_id"])[:8]
    ended = subprocess.run(
        [BATTEN, "headless", "--protocol", "maestro", "--resume", name],
        env=environment(stage), stdin=subprocess.DEVNULL, capture_output=True, timeout=30,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 64
    assert b"is short for more than one" in ended.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("abc", []),
        ("chat_0123", []),
        ("run_01il", []),
        ("run_0123", [("run_0123" + "0" * 22, "run_0123" + "Z" * 22)]),
        ("zzzz", [("run_ZZZZ" + "0" * 22, "run_ZZZZ" + "Z" * 22)]),
    ],
)
def test_the_span_of_a_shortened_name(text: str, found: list[tuple[str, str]]) -> None:
    assert spans(text, "run") == found
