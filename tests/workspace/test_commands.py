"""Commands: their output, input, terminal, exit and end, in each sandbox layer."""

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.errors import CallerError, Conflict, NotFound, ProviderError
from batten.workspace.argv import split_command
from batten.workspace.commands import CHUNK_BYTES, Command, Exit
from batten.workspace.environment import command_environment
from batten.workspace.sandbox import Mode
from tests.workspace.keepers import (
    EVERY_LAYER,
    Result,
    keeper_at,
    processes_mentioning,
    run,
)

every_layer = pytest.mark.parametrize("mode", EVERY_LAYER)


async def read_until(command: Command, wanted: bytes) -> bytes:
    seen = bytearray()
    async with asyncio.timeout(10):
        async for _, chunk in command.output():
            seen += chunk
            if wanted in seen:
                break
    return bytes(seen)


@every_layer
async def test_output_streams_and_exit_code_are_told_apart(tmp_path: Path, mode: Mode) -> None:
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, "echo out; echo err >&2; exit 3")
    assert result == Result(Exit(3), "out\n", "err\n")


@every_layer
async def test_signal_that_ended_a_command_is_named(tmp_path: Path, mode: Mode) -> None:
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, "kill -SEGV $$")
    assert result.exit == Exit(None, "SIGSEGV")


async def test_words_run_without_a_shell(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        result = await run(keeper, ["echo", "$HOME", "*", "a b"])
    assert result == Result(Exit(0), "$HOME * a b\n", "")


async def test_command_runs_in_the_workspace_or_where_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    async with keeper_at(tmp_path) as keeper:
        assert (await run(keeper, "pwd")).stdout == f"{tmp_path}\n"
        below = str(tmp_path / "below")
        assert (await run(keeper, "pwd", cwd=below)).stdout == f"{below}\n"


async def test_missing_directory_and_missing_program_are_named(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        with pytest.raises(NotFound, match=r"Working directory not found: .*/nowhere"):
            await keeper.spawn("true", cwd=str(tmp_path / "nowhere"))
        with pytest.raises(NotFound, match="Executable not found: no-such-program"):
            await keeper.spawn(["no-such-program"])
        assert (await run(keeper, "echo still here")).stdout == "still here\n"


async def test_command_too_long_for_the_system_is_a_typed_error(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        with pytest.raises(CallerError, match="Argument list too long"):
            await keeper.spawn(["echo", "x" * 3_000_000])


async def test_stdin_is_empty_unless_asked_for(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        assert await run(keeper, "cat; echo done") == Result(Exit(0), "done\n", "")
        async with await keeper.spawn("cat") as command:
            with pytest.raises(Conflict, match="start it with stdin open"):
                await command.write_stdin(b"x")


@every_layer
async def test_stdin_larger_than_a_pipe_comes_back_whole(tmp_path: Path, mode: Mode) -> None:
    sent = os.urandom(1_000_000)
    received = bytearray()

    async def feed(command: Command) -> None:
        await command.write_stdin(sent)
        await command.close_stdin()

    async with (
        keeper_at(tmp_path, mode) as keeper,
        await keeper.spawn("cat", stdin="open") as command,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(feed(command))
        async for _, chunk in command.output():
            received += chunk
    assert bytes(received) == sent


async def test_writing_to_a_command_that_is_gone_is_a_conflict(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper, await keeper.spawn("true", stdin="open") as command:
        await command.wait()
        with pytest.raises(Conflict, match="not writable"):
            await command.write_stdin(b"x")


@every_layer
async def test_terminal_has_a_name_a_size_and_one_stream(tmp_path: Path, mode: Mode) -> None:
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, "tty; stty size; echo err >&2", pty=(100, 30))
    name, *rest = result.stdout.split("\r\n")
    assert name.startswith("/dev/pts/")
    assert (rest, result.stderr, result.exit) == (["30 100", "err", ""], "", Exit(0))


@every_layer
async def test_resize_reaches_the_program_on_the_terminal(tmp_path: Path, mode: Mode) -> None:
    script = "trap 'stty size; exit 5' WINCH; echo ready; while :; do read -t 0.05; done"
    async with (
        keeper_at(tmp_path, mode) as keeper,
        await keeper.spawn(script, pty=(80, 24)) as command,
    ):
        await read_until(command, b"ready")
        command.resize(132, 50)
        assert b"50 132" in await read_until(command, b"50 132")
        assert await command.wait() == Exit(5)


async def test_terminal_input_and_its_end(tmp_path: Path) -> None:
    async with (
        keeper_at(tmp_path) as keeper,
        await keeper.spawn("stty -echo; echo ready; cat; echo over", pty=(80, 24)) as command,
    ):
        await read_until(command, b"ready")
        await command.write_stdin(b"hello\n")
        await read_until(command, b"hello")
        await command.close_stdin()
        await read_until(command, b"over")
        assert await command.wait() == Exit(0)


async def test_only_a_terminal_can_be_resized(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper, await keeper.spawn("true") as command:
        with pytest.raises(Conflict, match="only supported for pty"):
            command.resize(80, 24)


@every_layer
async def test_terminate_asks_first(tmp_path: Path, mode: Mode) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    async with keeper_at(tmp_path, mode) as keeper, await keeper.spawn(script) as command:
        await read_until(command, b"ready")
        await command.terminate(grace_s=30)
        assert await read_until(command, b"bye") == b"bye\n"
        assert await command.wait() == Exit(7)


@every_layer
async def test_terminate_kills_who_does_not_listen(tmp_path: Path, mode: Mode) -> None:
    script = f"trap '' TERM; echo ready; tail -qf /dev/null {tmp_path}/deaf"
    async with keeper_at(tmp_path, mode) as keeper, await keeper.spawn(script) as command:
        await read_until(command, b"ready")
        await command.terminate(grace_s=0.05)
        assert await command.wait() == Exit(None, "SIGKILL")
        assert processes_mentioning(f"{tmp_path}/deaf") == []
        await command.terminate()


@every_layer
async def test_cancelling_the_task_of_a_hanging_command_ends_its_tree(
    tmp_path: Path, mode: Mode
) -> None:
    mark = f"{tmp_path}/hanging"
    ready = asyncio.Event()

    async def hang() -> None:
        script = f"setsid tail -qf /dev/null {mark} & echo ready; tail -qf /dev/null {mark}"
        async with await keeper.spawn(script) as command:
            async for _ in command.output():
                ready.set()

    async with keeper_at(tmp_path, mode) as keeper:
        task = asyncio.create_task(hang())
        await ready.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes_mentioning(mark) == []


async def test_command_whose_closing_was_cut_short_is_not_waited_for_again(tmp_path: Path) -> None:
    mark = f"{tmp_path}/left"
    async with keeper_at(tmp_path) as keeper:
        command = await keeper.spawn(f"tail -qf /dev/null {mark}")
        waiting = asyncio.create_task(command.wait())
        closing = asyncio.create_task(command.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert command.over
        with pytest.raises(ProviderError, match="was lost"):
            await waiting
        assert await keeper.close() == ()
        assert processes_mentioning(mark) == []


@every_layer
async def test_what_a_command_leaves_behind_is_ended_and_named(tmp_path: Path, mode: Mode) -> None:
    mark = f"{tmp_path}/daemon"
    script = f"(setsid tail -qf /dev/null {mark} &) ; echo main is done"
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, script)
        assert processes_mentioning(mark) == []
    assert (result.exit, result.stdout) == (Exit(0), "main is done\n")
    assert result.killed == (f"tail -qf /dev/null {mark}",)


async def test_late_output_within_the_grace_is_kept(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        result = await run(keeper, "(sleep 0.05; echo late) & echo early")
    assert result == Result(Exit(0), "early\nlate\n", "")


@every_layer
async def test_closing_the_keeper_ends_and_names_its_commands(tmp_path: Path, mode: Mode) -> None:
    mark = f"{tmp_path}/server"
    async with keeper_at(tmp_path, mode) as keeper:
        command = await keeper.spawn(f"cat; : {mark}", stdin="open")
        assert (await run(keeper, "echo other")).killed == ()
        assert await keeper.close() == (f"cat; : {mark}",)
        assert command.exit == Exit(None, "SIGKILL")
        assert processes_mentioning(mark) == []


async def test_huge_output_passes_through_little_memory(tmp_path: Path) -> None:
    total = largest = 0
    async with keeper_at(tmp_path) as keeper:
        await run(keeper, "true")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with await keeper.spawn("head -c 200000000 /dev/zero") as command:
            async for _, chunk in command.output():
                total += len(chunk)
                largest = max(largest, len(chunk))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (total, largest) == (200_000_000, CHUNK_BYTES)
    assert after - before < 8 * 1024


async def test_command_waits_for_its_reader(tmp_path: Path) -> None:
    async with (
        keeper_at(tmp_path) as keeper,
        await keeper.spawn("head -c 5000000 /dev/zero; touch written") as command,
    ):
        async for _ in command.output():
            break
        assert not (tmp_path / "written").exists()
        async for _ in command.output():
            pass
        assert (tmp_path / "written").exists()


async def test_reader_of_endless_output_does_not_starve_the_loop(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper, await keeper.spawn("yes") as command:

        async def read() -> None:
            async for _ in command.output():
                pass

        reader = asyncio.create_task(read())
        for _ in range(100):
            await asyncio.sleep(0)
        await command.kill()
        await reader
        assert await command.wait() == Exit(None, "SIGKILL")


async def test_200_commands_leak_no_descriptor(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        await run(keeper, "true")
        before = len(os.listdir("/proc/self/fd"))
        for number in range(200):
            await run(keeper, "true", pty=(80, 24) if number % 4 == 0 else None)
        assert len(os.listdir("/proc/self/fd")) == before
        inside = (await run(keeper, "ls /proc/$PPID/fd /proc/self/fd")).stdout
    assert len(inside.split()) < 25


async def test_failed_starts_leak_no_descriptor(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        await run(keeper, "true")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            with pytest.raises(NotFound):
                await keeper.spawn(["no-such-program"], stdin="open")
        assert len(os.listdir("/proc/self/fd")) == before


async def test_ignored_signals_are_not_inherited(tmp_path: Path) -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        async with keeper_at(tmp_path) as keeper:
            result = await run(keeper, "grep -E 'Sig(Ign|Blk)' /proc/self/status")
    finally:
        signal.signal(signal.SIGINT, previous)
    masks = [int(line.split()[1], 16) for line in result.stdout.splitlines()]
    # 32 and 33 are the C library's own.
    assert [mask & 0x7FFFFFFF for mask in masks] == [0, 0]


async def test_secrets_are_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "NPM_TOKEN", "UNLISTED", "DB_PASSWORD"):
        monkeypatch.setenv(name, "hush-hush")
    monkeypatch.setenv("NPM_CONFIG_COLOR", "always")
    async with keeper_at(tmp_path, inherit=("NPM_*", "OPENAI_*", "*PASSWORD")) as keeper:
        async with await keeper.spawn("env", env={"GIVEN_TOKEN": "on purpose"}) as command:
            listed = await read_until(command, b"never said")
            keys = command.launch.env_keys
        parents = await run(keeper, "cat /proc/$PPID/environ")
    assert b"hush-hush" not in listed
    assert "hush-hush" not in parents.stdout
    assert b"NPM_CONFIG_COLOR=always" in listed
    assert b"GIVEN_TOKEN=on purpose" in listed
    assert {"GIVEN_TOKEN", "NPM_CONFIG_COLOR", "PATH", "TMPDIR"} <= set(keys)
    assert keys == sorted(keys)


def test_environment_takes_listed_names_only() -> None:
    source = {"PATH": "/bin", "LANG": "C", "AWS_SECRET_ACCESS_KEY": "x", "EDITOR": "vi"}
    made = command_environment({"A": "1"}, source=source, private_directory="/private")
    assert made == {"PATH": "/bin", "LANG": "C", "TMPDIR": "/private", "A": "1"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("git  status\t-s\n", ["git", "status", "-s"]),
        ("echo 'a \"b\\' \"c 'd'\"", ["echo", 'a "b\\', "c 'd'"]),
        (r'grep "a\.b" "\"\\\$" a\ b', ["grep", r"a\.b", '"\\$', "a b"]),
        ("x '' \"\"", ["x", "", ""]),
        ("a'b'\"c\"d", ["abcd"]),
        ("echo $HOME *.py `id`", ["echo", "$HOME", "*.py", "`id`"]),
    ],
)
def test_line_is_split_by_quotes_and_backslashes_only(line: str, words: list[str]) -> None:
    assert split_command(line) == words


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("echo \\", "unfinished escape"),
        ("echo 'a", "unterminated ' quote"),
        ('echo "a', 'unterminated " quote'),
        ("''", "must contain an executable"),
        ("  ", "empty"),
        ("echo \x07", r"U\+0007"),
        ("x" * 100_001, "at most 100000"),
    ],
)
def test_line_that_cannot_be_split_says_why(line: str, complaint: str) -> None:
    with pytest.raises(CallerError, match=complaint):
        split_command(line)


@given(st.lists(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")))))
def test_words_survive_quoting(words: list[str]) -> None:
    words = ["run", *words]
    line = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    assert split_command(line) == words
