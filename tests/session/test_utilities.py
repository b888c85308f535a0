"""A client's own commands, searches, reads and watches: confined, owned, ended in time."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from batten.contract.errors import BattenError, CallerError, Conflict, NotFound, Refused
from batten.contract.facts import Fact, SessionUtilityEnded, SessionUtilityStarted
from batten.contract.utilities import (
    CommandExited,
    CommandOutput,
    CommandResized,
    CommandStarted,
    Said,
    StartCommand,
    StartWatch,
    WatchChanged,
    WatchStarted,
    WatchStopped,
)
from batten.session.utilities.commands import MOST_COMMANDS, UtilityCommands
from batten.session.utilities.lookups import Lookups
from batten.session.utilities.watches import UtilityWatches
from batten.workspace.keeper import Keeper
from batten.workspace.root import Root
from batten.workspace.sandbox import Policy

ME, OTHER = "conn_1", "conn_2"


class Desk:
    """A workspace with a client's utilities, and everything they said."""

    def __init__(self, workspace: Path, keeper: Keeper, group: asyncio.TaskGroup) -> None:
        self.workspace = workspace
        self.group = group
        self.facts: list[Fact] = []
        self.said: list[Said] = []
        self._changed = asyncio.Condition()
        root = Root(str(workspace))
        self.commands = UtilityCommands(keeper, root, self._record, self._tell, group)
        self.watches = UtilityWatches(root, self._record, self._tell, group)
        self.lookups = Lookups(root)

    async def _record(self, fact: Fact) -> None:
        self.facts.append(fact)

    async def _tell(self, said: Said) -> None:
        async with self._changed:
            self.said.append(said)
            self._changed.notify_all()

    def start(self, name: str, command: str, owner: str = ME, **more: object) -> None:
        asked = {"command_id": name, "command": command, **more}
        self.commands.start(StartCommand(**asked), owner)  # type: ignore[arg-type]

    def watch(self, name: str, owner: str = ME, **more: object) -> None:
        asked = {"watch_id": name, "debounce_ms": 10, **more}
        self.watches.start(StartWatch(**asked), owner)  # type: ignore[arg-type]

    async def until(self, kind: type[Said], name: str) -> Said:
        """The first of this kind that is said of this one."""
        async with asyncio.timeout(10), self._changed:
            while True:
                for one in self.said:
                    if isinstance(one, kind) and _name_of(one) == name:
                        return one
                await self._changed.wait()

    async def exited(self, name: str) -> CommandExited:
        said = await self.until(CommandExited, name)
        assert isinstance(said, CommandExited)
        return said

    def output(self, name: str, stream: str = "stdout") -> str:
        told = [one for one in self.said if isinstance(one, CommandOutput)]
        return "".join(one.text for one in told if (one.command_id, one.stream) == (name, stream))

    def of(self, kind: type[Said]) -> list[str]:
        return [_name_of(one) for one in self.said if isinstance(one, kind)]


def _name_of(said: Said) -> str:
    if isinstance(said, CommandStarted):
        return said.asked.command_id
    if isinstance(said, WatchStarted):
        return said.asked.watch_id
    return said.watch_id if isinstance(said, WatchChanged | WatchStopped) else said.command_id


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk, None]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with _desk(workspace) as opened:
        yield opened


@asynccontextmanager
async def _desk(workspace: Path) -> AsyncGenerator[Desk, None]:
    keeper = Keeper(str(workspace), Policy(mode="none"), os.environ)
    async with asyncio.TaskGroup() as group:
        opened = Desk(workspace, keeper, group)
        try:
            yield opened
        finally:
            await opened.commands.end_all("over")
            await opened.watches.end_all("over")
    await keeper.close()


async def test_both_streams_and_the_exit_of_a_command_are_said(desk: Desk) -> None:
    desk.start("a", "echo out; echo err >&2; exit 3")
    exited = await desk.exited("a")
    assert (exited.exit_code, exited.signal, exited.reason) == (3, None, "")
    assert (desk.output("a"), desk.output("a", "stderr")) == ("out\n", "err\n")
    started = await desk.until(CommandStarted, "a")
    assert isinstance(started, CommandStarted)
    assert (started.owner, started.cwd) == (ME, str(desk.workspace))
    assert started.pid
    kinds = [type(fact) for fact in desk.facts]
    assert kinds == [SessionUtilityStarted, SessionUtilityEnded]


async def test_a_terminated_command_says_why_and_its_children_end_too(desk: Desk) -> None:
    desk.start("a", "sleep 60 & sleep 60")
    desk.start("b", "trap '' TERM; echo ready; sleep 60 & wait; wait")
    await desk.until(CommandOutput, "b")
    await desk.commands.terminate("a", force=False, owner=ME)
    await desk.commands.terminate("b", force=True, owner=ME)
    one, other = await desk.exited("a"), await desk.exited("b")
    assert (one.signal, one.exit_code, one.reason) == ("SIGTERM", None, "Terminated by controller")
    assert (other.signal, other.reason) == ("SIGKILL", "Force terminated by controller")
    await desk.commands.terminate("a", force=True, owner=ME)  # which is over
    assert desk.of(CommandExited) == ["a", "b"] or desk.of(CommandExited) == ["b", "a"]


async def test_input_is_written_in_order_and_closed(desk: Desk) -> None:
    desk.start("a", "cat; echo end", stdin=True)
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            text = f"{number}\n"
            group.create_task(desk.commands.write("a", text, eof=number == 19, owner=ME))
    await desk.exited("a")
    assert desk.output("a") == "".join(f"{number}\n" for number in range(20)) + "end\n"


async def test_without_leave_input_is_at_its_end_and_cannot_be_written(desk: Desk) -> None:
    desk.start("a", "cat; echo end; sleep 60")
    with pytest.raises(Conflict, match="Utility command stdin is not enabled: a"):
        await desk.commands.write("a", "x", eof=False, owner=ME)
    with pytest.raises(Conflict, match="resize is only supported for PTY commands: a"):
        await desk.commands.resize("a", 10, 10, owner=ME)
    await desk.until(CommandOutput, "a")
    assert desk.output("a") == "end\n"


async def test_a_terminal_has_a_size_that_can_change(desk: Desk) -> None:
    line = "stty size; read x; stty size; echo got $x"
    desk.start("a", line, size=(100, 30), stdin=True)
    await desk.until(CommandOutput, "a")
    await desk.commands.resize("a", 120, 40, owner=ME)
    await desk.commands.write("a", "word\n", eof=False, owner=ME)
    await desk.exited("a")
    lines = desk.output("a").split("\r\n")
    assert lines[0] == "30 100"
    assert lines[-3:] == ["40 120", "got word", ""]
    assert CommandResized(command_id="a", columns=120, rows=40) in desk.said


async def test_a_terminal_without_leave_to_write_is_at_the_end_of_its_input(desk: Desk) -> None:
    desk.start("a", "cat; echo end", size=(80, 24))
    await desk.exited("a")
    assert desk.output("a") == "end\r\n"


async def test_words_without_a_shell_are_not_expanded(desk: Desk) -> None:
    desk.start("a", "echo '$HOME' \"*\" ~", shell=False, env={"WORD": "x"})
    desk.start("b", "echo $WORD", env={"WORD": "given"})
    await desk.exited("a")
    await desk.exited("b")
    assert (desk.output("a"), desk.output("b")) == ("$HOME * ~\n", "given\n")


async def test_what_cannot_be_run_ends_with_the_reason(desk: Desk) -> None:
    desk.start("a", "no-such-program-here", shell=False)
    exited = await desk.exited("a")
    assert exited.exit_code is None
    assert "no-such-program-here" in exited.reason
    assert desk.of(CommandStarted) == []


async def test_what_is_no_command_is_refused_before_anything_runs(desk: Desk) -> None:
    desk.start("a", "sleep 60")
    wrong: list[tuple[type[BattenError], str, dict[str, object]]] = [
        (Conflict, "already exists: a", {"name": "a", "command": "true"}),
        (CallerError, "empty", {"command": "  "}),
        (CallerError, "control character", {"command": "echo \x07"}),
        (CallerError, "100000", {"command": "x" * 100_001}),
        (Refused, "outside workspace root", {"cwd": "/"}),
        (Refused, "outside workspace root", {"cwd": "../.."}),
        (NotFound, "Working directory not found", {"cwd": "missing"}),
        (CallerError, "name in env", {"env": {"x" * 257: "y"}}),
        (CallerError, "value in env", {"env": {"x": "y" * 32_769}}),
        (CallerError, "positive", {"size": (0, 5)}),
    ]
    for error, said, given in wrong:
        with pytest.raises(error, match=said):
            desk.start(**{"name": "z", "command": "true", **given})  # type: ignore[arg-type]
    assert [fact for fact in desk.facts if isinstance(fact, SessionUtilityEnded)] == []


async def test_no_more_than_so_many_commands_run_at_once(desk: Desk) -> None:
    for number in range(MOST_COMMANDS):
        desk.start(str(number), "sleep 60")
    with pytest.raises(CallerError, match="run already"):
        desk.start("one more", "true")
    await desk.commands.end_all("too many")
    assert len(desk.of(CommandExited)) == MOST_COMMANDS


async def test_only_the_owner_may_touch_a_command_and_only_its_own_end_with_it(desk: Desk) -> None:
    desk.start("mine", "sleep 60", stdin=True)
    desk.start("theirs", "sleep 60", OTHER, stdin=True)
    desk.watch("my watch")
    desk.watch("their watch", OTHER)
    await desk.until(WatchStarted, "my watch")
    await desk.until(WatchStarted, "their watch")
    owned = "Headless command theirs is owned by another connection"
    with pytest.raises(Refused, match=owned):
        await desk.commands.write("theirs", "x", eof=False, owner=ME)
    with pytest.raises(Refused, match=owned):
        await desk.commands.resize("theirs", 1, 1, owner=ME)
    with pytest.raises(Refused, match=owned):
        await desk.commands.terminate("theirs", force=True, owner=ME)
    with pytest.raises(Refused, match="owned by another"):
        desk.watches.stop("their watch", owner=ME)
    await desk.commands.end_all("Owning connection closed", ME)
    await desk.watches.end_all("Owning connection closed", ME)
    assert desk.of(CommandExited) == ["mine"]
    assert desk.of(WatchStopped) == ["my watch"]
    assert (await desk.exited("mine")).reason == "Owning connection closed"


async def test_the_first_reason_to_end_is_the_one_that_is_said(desk: Desk) -> None:
    desk.start("a", "trap '' TERM; echo ready; sleep 60 & wait; wait")
    await desk.until(CommandOutput, "a")
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.commands.terminate("a", force=False, owner=ME))
        await asyncio.sleep(0)
        group.create_task(desk.commands.end_all("everything ends"))
    assert (await desk.exited("a")).reason == "Terminated by controller"
    assert desk.of(CommandExited) == ["a"]


async def test_a_page_of_a_file_is_read_as_far_as_asked(desk: Desk) -> None:
    (desk.workspace / "notes.md").write_bytes(b"alpha\r\nbeta\ngamma\n")
    (desk.workspace / "empty").touch()
    page = await desk.lookups.read("notes.md", None, None, 2)
    assert (page.content, page.start_line, page.end_line, page.total_lines) == (
        "alpha\nbeta",
        1,
        2,
        3,
    )
    assert (page.truncated, page.relative_path) == (True, "notes.md")
    assert (page.path, page.cwd) == (str(desk.workspace / "notes.md"), str(desk.workspace))
    rest = await desk.lookups.read("notes.md", None, 3, None)
    assert (rest.content, rest.start_line, rest.truncated) == ("gamma", 3, False)
    empty = await desk.lookups.read("empty", None, None, None)
    assert (empty.start_line, empty.end_line, empty.total_lines) == (0, 0, 0)
    with pytest.raises(CallerError, match=r"Offset 9 is beyond end of file \(3 lines total\)"):
        await desk.lookups.read("notes.md", None, 9, None)


async def test_paths_stay_inside_whatever_they_are_spelled_like(desk: Desk) -> None:
    outside = desk.workspace.parent / "secret.txt"
    outside.write_text("secret")
    inner = desk.workspace / "inner"
    inner.mkdir()
    (inner / "..data").write_text("inside")
    (desk.workspace / "above.txt").write_text("above")
    (desk.workspace / "way out").symlink_to(desk.workspace.parent)
    (desk.workspace / "binary").write_bytes(b"a\0b")
    assert (await desk.lookups.read("..data", "inner", None, None)).content == "inside"
    assert (await desk.lookups.read(str(inner / "..data"), None, None, None)).content == "inside"
    for path in (str(outside), "../secret.txt", "way out/secret.txt", "way out/not yet/there"):
        with pytest.raises(Refused, match="outside workspace root"):
            await desk.lookups.read(path, None, None, None)
    with pytest.raises(Refused, match="Path traversal detected"):
        await desk.lookups.read("../above.txt", "inner", None, None)
    with pytest.raises(CallerError, match="only supports text files: binary"):
        await desk.lookups.read("binary", None, None, None)
    with pytest.raises(NotFound):
        await desk.lookups.read("missing", None, None, None)


async def test_files_are_found_by_a_few_letters_the_likeliest_first(desk: Desk) -> None:
    for name in ("notes.md", "my notes.md", "deep/notes.md.txt", "deep/other"):
        path = desk.workspace / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    found = await desk.lookups.search(" notes.md ", None, None)
    assert found.query == "notes.md"
    assert [one.path for one in found.files] == ["notes.md", "deep/notes.md.txt", "my notes.md"]
    assert (await desk.lookups.search("notes", None, 1)).truncated
    assert (await desk.lookups.search("", None, None)).files == ()
    with pytest.raises(Refused):
        await desk.lookups.search("x", "/etc", None)


async def test_a_watch_says_what_changes_until_it_is_stopped(desk: Desk) -> None:
    desk.watch("w", include=("*.txt",), exclude=("no*",))
    await desk.until(WatchStarted, "w")
    for name in ("no.txt", "other.md", "yes.txt"):
        (desk.workspace / name).write_text("x")
    changed = await desk.until(WatchChanged, "w")
    assert isinstance(changed, WatchChanged)
    assert (changed.relative_path, changed.change) == ("yes.txt", "create")
    assert changed.path == str(desk.workspace / "yes.txt")
    assert not changed.is_directory
    with pytest.raises(Conflict, match="already exists: w"):
        desk.watch("w")
    desk.watches.stop("w", owner=ME)
    stopped = await desk.until(WatchStopped, "w")
    assert stopped == WatchStopped(watch_id="w", reason="Stopped by controller")
    desk.watches.stop("w", owner=ME)  # which is over
    assert {fact.type for fact in desk.facts} == {
        "session.utility_started",
        "session.utility_ended",
    }


async def test_a_watch_that_is_stopped_while_it_starts_is_never_spoken_of(desk: Desk) -> None:
    desk.watch("w")
    desk.watches.stop("w", owner=ME)
    await desk.watches.end_all("anything")
    assert desk.said == []
    desk.watch("w")  # the name is free again
    await desk.until(WatchStarted, "w")


async def test_a_watch_may_be_started_anew_as_soon_as_it_is_stopped(desk: Desk) -> None:
    desk.watch("w")
    desk.watches.stop("w", owner=ME)
    desk.watch("w", debounce_ms=20)  # while the first one was starting
    await desk.until(WatchStarted, "w")
    desk.watches.stop("w", owner=ME)
    desk.watch("w", debounce_ms=30)
    with pytest.raises(Conflict, match="already exists: w"):
        desk.watch("w")
    desk.watches.stop("w", owner=ME)
    desk.watch("w", debounce_ms=40)
    await desk.until(WatchStopped, "w")
    await desk.watches.end_all("anything")
    kinds = [type(one) for one in desk.said]
    assert kinds[:2] == [WatchStarted, WatchStopped]
    assert kinds[2:] in ([], [WatchStarted, WatchStopped]), "each ends before the next begins"


async def test_a_watch_is_refused_outside_and_where_nothing_is(desk: Desk) -> None:
    with pytest.raises(NotFound, match="watch root directory does not exist"):
        desk.watch("w", root="missing")
    with pytest.raises(Refused, match="outside workspace root"):
        desk.watch("w", root="/")
    with pytest.raises(CallerError, match="debounce_ms"):
        desk.watch("w", debounce_ms=-1)
    assert (desk.said, desk.facts) == ([], [])


async def test_what_is_started_in_the_turn_in_which_its_group_fails_is_ended(
    tmp_path: Path,
) -> None:
    """Their tasks are cancelled before their first step."""

    async def fail() -> None:
        raise OSError("it fails")

    async def use() -> None:
        async with _desk(tmp_path) as desk:
            desk.group.create_task(fail())
            await asyncio.sleep(0)  # it has failed, and the group is told in the next turn
            desk.start("a", "true")
            desk.watch("w")
            await asyncio.Event().wait()

    async with asyncio.timeout(10) as limit:
        with pytest.raises(ExceptionGroup):
            await use()
    assert not limit.expired()
