"""`batten runs` and `batten stats`: filters, pages, local times, and a home where nothing is."""

import asyncio
import re
from datetime import datetime, timedelta

import pytest

from batten.cli.amounts import local, shown_size, since, size, until
from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import Stage, bash, say
from tests.journal.sessions import age, ended_session

from .invoking import Shell
from .test_terminal import on_terminal


@pytest.fixture
def prompts(shell: Shell) -> list[str]:
    """Three runs: one that worked, one that ran out of turns, one with a long prompt elsewhere."""
    elsewhere = shell.stage.directory / "elsewhere"
    elsewhere.mkdir()
    shell.play([say("well")], prompt="first question")
    shell.play([bash("echo 1")], [say("x")], flags=["--max-turns", "1"], prompt="second question")
    long = "third question " + "and more " * 40 + "about Größe"
    shell.play([say("well")], flags=["--workspace", str(elsewhere)], prompt=long)
    return ["first question", "second question", long]


def listed(shell: Shell, *flags: str) -> list[str]:
    """The first words of the prompts of the runs that are listed."""
    said = shell("runs", "--json", *flags)
    assert said.code == 0
    return [row["prompt"].split()[0] for row in said.frames()]


@pytest.mark.parametrize("argv", [["runs"], ["runs", "--json"], ["runs", "--session", "x"]])
def test_a_fresh_home_is_an_empty_list_and_stays_fresh(shell: Shell, argv: list[str]) -> None:
    said = shell(*argv)
    assert (said.code, said.out) == (0, b"")
    assert "there are no runs in" in said.err
    assert not shell.stage.home.exists()


def test_statistics_of_a_fresh_home_are_zero(shell: Shell) -> None:
    (stats,) = shell("stats", "--json").frames()
    assert (stats["total"]["runs"], stats["total"]["cost_micros_usd"], stats["by_day"]) == (
        0,
        0,
        [],
    )
    assert shell("stats").code == 0
    assert not shell.stage.home.exists()


def test_runs_have_a_header_and_say_workspace_model_and_cost(
    shell: Shell, prompts: list[str]
) -> None:
    header, *lines = shell("runs").out.decode().splitlines()
    assert header.split() == ["RUN", "STARTED", "STATE", "COST", "MODEL", "WORKSPACE", "PROMPT"]
    assert len(lines) == 3
    for line in lines:
        assert re.match(r"run_\w{26}  \d{4}-\d\d-\d\d \d\d:\d\d  \w+ +\$0\.0000  scripted/", line)
    assert "max_turns" in lines[1]
    assert "~/elsewhere  third question" in lines[0]
    assert "~/workspace  first question" in lines[2]


def test_times_are_local_for_people_and_utc_for_programs(
    shell: Shell, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        row = shell("runs", "--json", "--limit", "1").frames()[0]
        line = shell("runs", "--limit", "1").out.decode().splitlines()[1]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert row["created_at"].endswith("Z")
    there = datetime.fromisoformat(row["created_at"]) + timedelta(hours=5, minutes=45)
    assert f"  {there:%Y-%m-%d %H:%M}  " in line


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (["--status", "completed"], ["third", "first"]),
        (["--status", "failed"], ["second"]),
        (["--status", "max_turns,completed"], ["third", "second", "first"]),
        (["--status", "abandoned"], []),
        (["--grep", "QUESTION"], ["third", "second", "first"]),
        (["--grep", "about GRÖSSE"], ["third"]),
        (["--grep", "nothing of the kind"], []),
        (["--workspace", "."], ["second", "first"]),
        (["--workspace", "../elsewhere"], ["third"]),
        (["--model", "scripted/none"], []),
        (["--since", "1h"], ["third", "second", "first"]),
        (["--until", "1h"], []),
        (["--until", "today"], ["third", "second", "first"]),
        (["--until", "yesterday"], []),
        (["--since", "2020-01-01", "--until", "2020-12-31"], []),
        (["--status", "completed", "--workspace", "."], ["first"]),
    ],
)
def test_runs_are_filtered(
    shell: Shell, prompts: list[str], flags: list[str], found: list[str]
) -> None:
    assert listed(shell, *flags) == found


def test_runs_are_filtered_by_model_and_session(shell: Shell, prompts: list[str]) -> None:
    row = shell("runs", "--json").frames()[-1]
    for name in (row["model"], f"{row['provider']}/{row['model']}"):
        assert listed(shell, "--model", name) == ["third", "second", "first"]
    for name in (row["session_id"], row["run_id"]):
        assert listed(shell, "--session", name) == ["first"]
    assert shell("runs", "--session", "chat_nobody").code == 66


def test_an_abandoned_run_is_neither_running_nor_failed(shell: Shell) -> None:
    async def leave() -> None:
        journal = SqliteJournal.open(shell.stage.home)
        await ended_session(journal, ends=False)
        journal.close()

    asyncio.run(leave())
    assert len(listed(shell, "--status", "abandoned")) == 1
    assert listed(shell, "--status", "running") == []


def test_a_page_says_that_there_is_more_and_where_it_goes_on(
    shell: Shell, prompts: list[str]
) -> None:
    found: list[str] = []
    flags: list[str] = []
    for left in (2, 1, 0):
        said = shell("runs", "--json", "--limit", "1", *flags)
        (row,) = said.frames()
        found.append(row["prompt"].split()[0])
        more = f"there are more runs; --after {row['run_id']} shows the next"
        assert (more in said.err) == (left > 0)
        flags = ["--after", row["run_id"]]
    assert found == ["third", "second", "first"]
    assert shell("runs", "--limit", "3").err == ""
    assert shell("runs", "--after", "run_nobody").code == 66
    rest = shell("runs", "--json", "--limit", "1", "--status", "completed").err
    assert "there are more runs" in rest


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["runs", "--status", "happy"], "'happy' is not a list of queued, running"),
        (["runs", "--since", "soon"], "'soon' is not a time: write 2026-01-31"),
        (["runs", "--until", "2026-13-01"], "is not a time"),
        (["stats", "--since", "999999999w"], "too long ago"),
        (["prune", "--older-than", "30"], "'30' is not a duration: write 90m, 12h, 30d or 2w"),
        (["prune", "--max-size", "large"], "'large' is not a size: write 500M, 2G or bytes"),
        (["prune", "--keep", "-1"], "at least 0"),
    ],
)
def test_a_wrong_value_is_named_with_a_right_one(shell: Shell, argv: list[str], words: str) -> None:
    said = shell(*argv)
    assert (said.code, said.out) == (64, b"")
    assert words in said.err


def test_a_narrow_terminal_shows_a_run_on_two_lines(stage: Stage, shell: Shell) -> None:
    shell.play([say("well")], prompt="a question " * 30)
    lines = on_terminal(stage, "runs").splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("run_")
    assert "~/workspace  a question" in lines[3]
    assert all(len(line) <= 80 for line in lines)


def test_statistics_add_up_by_day_model_and_workspace(shell: Shell) -> None:
    async def spend() -> None:
        journal = SqliteJournal.open(shell.stage.home)
        for cost in (1_000_000, 500_000, None):
            session_id = await ended_session(journal, cost=cost)
        journal.close()
        age(shell.stage.home, session_id, "2024-02-03T04:05:06.000Z")

    asyncio.run(spend())
    (stats,) = shell("stats", "--json").frames()
    total = {
        "runs": 3,
        "calls": 3,
        "input_tokens": 30,
        "output_tokens": 15,
        "cache_read_tokens": 6,
        "cache_write_tokens": 3,
        "cost_micros_usd": 1_500_000,
        "cost_unknown": True,
    }
    assert stats["total"] == total
    assert stats["by_model"] == [{"model": "p/m", **total}]
    assert stats["by_workspace"] == [{"workspace": "/work", **total}]
    old, new = stats["by_day"]
    assert (old["day"], old["runs"], old["cost_unknown"]) == ("2024-02-03", 1, True)
    assert (new["runs"], new["cost_micros_usd"], new["cost_unknown"]) == (2, 1_500_000, False)
    (recent,) = shell("stats", "--json", "--since", "7d").frames()
    assert recent["total"]["runs"] == 2
    shown = shell("stats").out.decode()
    assert "$1.5000+" in shown
    for title in ("TOTAL", "DAY", "MODEL", "WORKSPACE"):
        assert f"{title} " in shown


def test_times_and_sizes_are_read_as_people_write_them() -> None:
    assert since("2026-01-31T08:00:00Z") == "2026-01-31T08:00:00.000Z"
    assert since("2026-01-31T08:00:00.123+02:00") == "2026-01-31T06:00:00.123Z"
    begin = datetime.fromisoformat(since("2026-01-31"))
    assert datetime.fromisoformat(until("2026-01-31")) - begin == timedelta(days=1)
    assert local(since("2026-01-31")) == "2026-01-31 00:00"
    assert [size(text) for text in ("7", "1K", "2m", "3GB", "1TiB")] == [
        7, 1 << 10, 2 << 20, 3 << 30, 1 << 40,
    ]  # fmt: skip
    assert [shown_size(count) for count in (7, 1 << 10, 3 << 29, 1 << 50)] == [
        "7 bytes", "1.0 KB", "1.5 GB", "1024.0 TB",
    ]  # fmt: skip
