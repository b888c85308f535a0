"""Every stdio protocol, misused: typed errors, bounded memory, nothing lost, no hang."""

import asyncio
import os
import subprocess

import msgspec
import pytest

from batten.contract.facts import TERMINAL
from tests.agent.stage import Stage, bash, end, say
from tests.session.processes import BATTEN, batten, environment

from .abusing import (
    DIALECTS,
    PATIENCE_S,
    Client,
    Dialect,
    Json,
    abused,
    appears,
    ended,
    hurried,
    until,
)
from .conversing import eventually

EACH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
MEBIBYTE = 1 << 20
_MOST_KIB = 200 * 1024
"""Far above what a process takes, with the longest line it may hold; far below a hoard."""
GARBAGE = [
    b"garbage",
    b'{"type":"send","id":"s"',
    b'"a text"',
    b"12",
    b"null",
    b"\x00\x00\x00",
    b'{"type":"status\x00","id":"q"}',
    b'\xef\xbb\xbf{"type":"status","id":"q"}',
    b'{"type":"send","id":"\xff\xfe"}',
    b'{"type":"send","id":"\xed\xa0\x80"}',
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"type":"send",' * 2,
    b'{"a":' * 983 + b"1" + b"}" * 983,
    b'{"type":"init","jsonrpc":"2.0","a":' + b"[" * 300 + b"]" * 300 + b"}",
    b"\x1b[31m{}",
]


def stored_events(stage: Stage) -> list[Json]:
    """What `batten events` tells of the only run there is."""
    (run,) = batten(stage, "runs", "--json").stdout.splitlines()
    run_id = msgspec.json.decode(run)["run_id"]
    lines = batten(stage, "events", run_id).stdout.splitlines()
    assert batten(stage, "verify").returncode == 0
    return [msgspec.json.decode(line) for line in lines]


def stored_text(events: list[Json]) -> str:
    deltas = [one["data"]["delta"] for one in events if one["type"] == "assistant.text_delta"]
    return "".join(deltas)


def refusals(client: Client, dialect: Dialect) -> list[Json]:
    return [frame for frame in client.heard if dialect.is_refusal(frame)]


async def prompted(client: Client, dialect: Dialect) -> str:
    """A prompt to its end; the words that were shown of it."""
    before = len(client.heard)
    await client.say(dialect.prompt(client))
    await until(client, dialect.is_over)
    return "".join(map(dialect.text_of, client.heard[before:]))


@EACH
async def test_garbage_between_lines_is_answered_line_by_line(
    stage: Stage, dialect: Dialect
) -> None:
    model = stage.scenario([say("Hello."), end()])
    async with abused(stage, dialect, model) as client:
        for line in GARBAGE[:3]:
            await client.write(line + b"\n")
            assert dialect.is_refusal(await client.hear() or {}), line[:40]
        await dialect.greet(client)
        for line in GARBAGE:
            await client.write(line + b"\r\n")
            await until(client, dialect.is_refusal)
        await client.write(b"\n  \r\n\t\n", msgspec.json.encode(dialect.prompt(client)), b"\r\n")
        await client.write(*(line + b"\n" for line in GARBAGE))
        await until(client, dialect.is_over)
        assert "".join(map(dialect.text_of, client.heard)) == "Hello."
        await client.rest()
        assert len(refusals(client, dialect)) == 3 + 2 * len(GARBAGE)
        assert await client.code() == 0


@EACH
async def test_a_line_without_end_is_refused_before_it_ends_and_never_held(
    stage: Stage, dialect: Dialect
) -> None:
    model = stage.scenario([say("Hello."), end()])
    async with abused(stage, dialect, model) as client:
        await dialect.greet(client)
        await client.write(b'{"a":"', *([b"x" * MEBIBYTE] * 100))
        await until(client, dialect.is_refusal)
        await client.write(*([b"x" * MEBIBYTE] * 20), b'"}\n')
        assert await prompted(client, dialect) == "Hello."
        assert len(refusals(client, dialect)) == 1
        assert client.peak_kib() < _MOST_KIB


@EACH
async def test_half_a_line_and_the_end_is_an_error_and_a_good_end(
    stage: Stage, dialect: Dialect
) -> None:
    model = stage.scenario([say("Hello."), end()])
    async with abused(stage, dialect, model) as client:
        await dialect.greet(client)
        await client.write(b'{"type":"shutdown","i')
        rest = await client.rest()
        assert refusals(client, dialect) == rest[-1:]
        assert await client.code() == 0


@EACH
async def test_without_a_word_it_ends_without_a_word(stage: Stage, dialect: Dialect) -> None:
    async with abused(stage, dialect, stage.scenario([say("Hello."), end()])) as client:
        assert await client.rest() == []
        assert await client.code() == 0


@EACH
@pytest.mark.parametrize(
    ("closed", "codes"), [("<&-", [0]), (">&-", [1, 124]), ("<&- >&- 2>&-", [0])]
)
def test_streams_that_are_closed_from_the_start_are_no_hang(
    stage: Stage, dialect: Dialect, closed: str, codes: list[int]
) -> None:
    model = stage.scenario([say("Hello."), end()])
    argv = (BATTEN, "headless", "--protocol", dialect.name, "--model", model)
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *argv],
        input=msgspec.json.encode(dialect.first) + b"\n",
        capture_output=True,
        env=environment(stage),
        cwd=stage.workspace,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode in codes
    assert ended.stdout == b""


@EACH
async def test_a_flood_of_garbage_waits_for_its_reader(stage: Stage, dialect: Dialect) -> None:
    count = 40_000
    model = stage.scenario([say("Hello."), end()])
    async with abused(stage, dialect, model) as client:
        await dialect.greet(client)
        writing = asyncio.create_task(client.write(*[b"no\n" * 100] * (count // 100)))
        await asyncio.wait([writing], timeout=0.5)
        before = client.peak_kib()
        refused = 0
        while refused < count:
            refused += dialect.is_refusal(await client.hear() or {})
        await writing
        assert await prompted(client, dialect) == "Hello."
        assert max(before, client.peak_kib()) < _MOST_KIB


@EACH
async def test_an_output_that_is_closed_while_a_run_works_ends_it(
    stage: Stage, dialect: Dialect
) -> None:
    model = stage.scenario([say("Now."), bash("echo $$ > pid; sleep 60", "c1")], [say("no"), end()])
    async with abused(stage, dialect, model) as client:
        await dialect.greet(client)
        await client.say(dialect.prompt(client))
        started = int(await appears(stage.workspace / "pid"))
        client.stop_listening()
        await client.write(b"garbage\n")  # whoever answers this finds that nobody listens
        assert await client.code() == 124
    await asyncio.to_thread(eventually, lambda: not os.path.exists(f"/proc/{started}"))
    events = stored_events(stage)
    assert events[-1]["type"] == "run.cancelled"
    assert stored_text(events) == "Now."


@EACH
async def test_a_reader_that_stops_for_a_while_is_shown_everything(
    stage: Stage, dialect: Dialect
) -> None:
    piece, count = "0123456789" * 40, 4000
    told = bash("echo told > told", "c1")
    model = stage.scenario([*[say(piece)] * count, told], [say("Done."), end()])
    async with abused(stage, dialect, model) as client:
        await dialect.greet(client)
        await client.say(dialect.prompt(client))
        # Nothing is read, and the run comes to its tool.
        assert await appears(stage.workspace / "told") == "told\n"
        held = client.peak_kib()
        await until(client, dialect.is_over)
        shown = "".join(map(dialect.text_of, client.heard))
        assert shown == piece * count + "Done." == stored_text(stored_events(stage))
        assert max(held, client.peak_kib()) < _MOST_KIB
        await client.rest()
        assert await client.code() == 0


@EACH
async def test_a_reader_that_may_ask_for_more_is_waited_for(stage: Stage, dialect: Dialect) -> None:
    """Longer than one that is only to hear the rest."""
    piece, count = "0123456789" * 400, 1500
    model = stage.scenario([*[say(piece)] * count, say("Done."), end()])
    async with abused(stage, dialect, model, program=hurried()) as client:
        await dialect.greet(client)
        await client.say(dialect.prompt(client))
        await ended(stage)
        held = client.peak_kib()
        await asyncio.sleep(1)  # twice as long as it waits for others
        assert client.peak_kib() - held < 4 * 1024, "the journal holds what is not read"
        await until(client, dialect.is_over)
        assert "".join(map(dialect.text_of, client.heard)) == piece * count + "Done."


@EACH
async def test_a_reader_that_never_reads_again_does_not_keep_it(
    stage: Stage, dialect: Dialect
) -> None:
    piece, count = "0123456789" * 40, 4000
    told = bash("echo told > told", "c1")
    model = stage.scenario([*[say(piece)] * count, told], [say("Done."), end()])
    async with abused(stage, dialect, model, program=hurried()) as client:
        await dialect.greet(client)
        await client.say(dialect.prompt(client))
        await appears(stage.workspace / "told")
        held = client.peak_kib()
        client.hang_up()
        assert await client.code() != 0, "it was not told of a success"
    events = stored_events(stage)
    (ending,) = [one["type"] for one in events if one["type"] in TERMINAL]
    assert ending in ("run.finished", "run.finished" if dialect.finishes else "run.cancelled")
    assert stored_text(events).startswith(piece * count)
    assert held < _MOST_KIB
