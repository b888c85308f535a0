"""What an embedder does in a worker's workspace for itself."""

import asyncio

import pytest

from batten.client import Launch, NoAnswer, Output, UtilityRefused
from tests.agent.stage import Stage, end, say
from tests.client.working import PATIENCE_S, working

DONE = [say("Done."), end()]


async def test_a_command_runs_to_its_end(stage: Stage, launch: Launch) -> None:
    async with working(stage, DONE, launch=launch) as worker:
        ran = await worker.run_command("echo out; echo err >&2; exit 3", env={"WORD": "weft"})
        assert (ran.exit_code, ran.stdout, ran.stderr) == (3, "out\n", "err\n")
        assert not ran.success
        words = await worker.run_command(["printf", "%s|", "a b", "$HOME"])
        assert (words.exit_code, words.stdout) == (0, "a b|$HOME|")
        assert (await worker.run_command("cat", stdin="said")).stdout == "said"
        long = await worker.run_command("seq 1 10000", most_output=6)
        assert (long.stdout, long.truncated) == ("10000\n", True)


async def test_a_command_that_takes_too_long_is_ended(stage: Stage, launch: Launch) -> None:
    async with working(stage, DONE, launch=launch) as worker:
        with pytest.raises(NoAnswer, match="the command did not end"):
            await worker.run_command("sleep 60", within_s=0.3)
        assert (await worker.run_command("echo on")).stdout == "on\n"


async def test_what_cannot_be_done_is_refused_with_the_reason(stage: Stage, launch: Launch) -> None:
    async with working(stage, DONE, launch=launch) as worker:
        with pytest.raises(UtilityRefused, match="outside"):
            await worker.run_command("true", cwd="/")
        with pytest.raises(UtilityRefused, match="no-such-program"):
            await worker.run_command(["no-such-program"])
        with pytest.raises(UtilityRefused):
            await worker.read_file("missing.txt")
        with pytest.raises(UtilityRefused):
            async with worker.watch("missing"):
                pass


async def test_a_command_is_spoken_to_while_it_runs(stage: Stage, launch: Launch) -> None:
    async with working(stage, DONE, launch=launch) as worker:
        async with worker.command("cat; echo over >&2", stdin=True) as command:
            await command.write("one\n")
            output = aiter(command)
            assert await anext(output) == Output("stdout", "one\n")
            await command.write("two\n", eof=True)
            rest = [one async for one in output]
        assert rest == [Output("stdout", "two\n"), Output("stderr", "over\n")]
        assert command.exit.success
        async with worker.command("stty size; sleep 60", terminal=(90, 30)) as command:
            async for one in command:
                assert one.text.strip() == "30 90"
                await command.terminate()
                break
            await command.terminate(force=True)
            async for _ in command:
                pass
            assert command.exit.exit_code is None or command.exit.exit_code != 0


async def test_who_leaves_a_command_ends_it(stage: Stage, launch: Launch) -> None:
    async with working(stage, DONE, launch=launch) as worker:
        async with worker.command("echo $$; sleep 600") as command:
            shell = (await anext(aiter(command))).text.strip()
        gone = await worker.run_command(f"kill -0 {shell}")
        assert gone.exit_code == 1


async def test_files_are_read_and_found(stage: Stage, launch: Launch) -> None:
    (stage.workspace / "notes.md").write_text("alpha\nbeta\ngamma\n")
    async with working(stage, DONE, launch=launch) as worker:
        page = await worker.read_file("notes.md", start_line=2, limit=2)
        assert (page.path, page.start_line, page.end_line) == ("notes.md", 2, 3)
        assert page.text.splitlines() == ["beta", "gamma"]
        assert (await worker.search_files("notes")).paths == ("notes.md",)


async def test_changes_are_watched(stage: Stage, launch: Launch) -> None:
    async with working(stage, DONE, launch=launch) as worker:
        async with asyncio.timeout(PATIENCE_S), worker.watch(include=["*.txt"]) as watch:
            (stage.workspace / "new.txt").write_text("x")
            async for change in watch:
                assert (change.path, change.is_directory) == ("new.txt", False)
                break
        assert (await worker.ask("go")).completed
