"""How a command of the `bash` tool ends when it is cancelled or out of time."""

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path

import pytest

from batten.contract.errors import CallerError
from batten.contract.facts import (
    Fact,
    ToolShellCommand,
    ToolShellExited,
    ToolShellOutputChunk,
    WorkspaceChangedByCommand,
)
from batten.contract.facts.workspace import ChangedFile
from batten.redact.redactor import Redactor
from batten.tools.command_changes import CommandChanges
from batten.tools.shell import Bash
from batten.workspace.keeper import Keeper
from batten.workspace.root import Root
from batten.workspace.sandbox import Policy

from .recording import RecordingContext


class Telling(RecordingContext):
    """Tells of the first output."""

    def __init__(self) -> None:
        super().__init__()
        self.wrote = asyncio.Event()

    def record(self, *facts: Fact) -> Awaitable[object]:
        if any(isinstance(fact, ToolShellOutputChunk) for fact in facts):
            self.wrote.set()
        return super().record(*facts)


TIDY = "trap 'echo tidied; exit 3' TERM; echo began; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; echo began; while :; do sleep 0.05; done"


async def cancelled(tmp_path: Path, line: str, grace_s: float) -> RecordingContext:
    """The record of a command that is cancelled once it has written."""
    context = Telling()
    keeper = Keeper(str(tmp_path), Policy(mode="none"), os.environ)
    try:
        tool = Bash(keeper, Redactor(), grace_s=grace_s)
        running = asyncio.ensure_future(tool.run({"command": line}, context))
        async with asyncio.timeout(30):
            await context.wrote.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
    finally:
        await keeper.close()
    return context


async def test_cancelled_command_may_tidy_up_and_its_exit_and_output_are_kept(
    tmp_path: Path,
) -> None:
    context = await cancelled(tmp_path, TIDY, 30.0)
    (exited,) = [fact for fact in context.facts if isinstance(fact, ToolShellExited)]
    assert (exited.exit_code, exited.signal) == (3, None)
    (body,) = context.bodies.values()
    assert body.startswith(b"began\n")
    assert b"tidied\n" in body  # beside what the shell says of the sleep that was ended


async def test_cancelled_command_that_ignores_its_grace_is_killed(tmp_path: Path) -> None:
    context = await cancelled(tmp_path, STUBBORN, 0.1)
    (exited,) = [fact for fact in context.facts if isinstance(fact, ToolShellExited)]
    assert exited.signal == "SIGKILL"
    assert list(context.bodies.values()) == [b"began\n"]


async def test_command_out_of_time_can_write_more_than_a_pipe_holds_while_it_ends(
    tmp_path: Path,
) -> None:
    context = RecordingContext()
    keeper = Keeper(str(tmp_path), Policy(mode="none"), os.environ)
    line = "trap 'head -c 300000 /dev/zero; exit 3' TERM; while :; do sleep 0.05; done"
    try:
        tool = Bash(keeper, Redactor(), grace_s=30.0)
        output = await tool.run({"command": line, "timeout": 0.3}, context)
    finally:
        await keeper.close()
    (exited,) = [fact for fact in context.facts if isinstance(fact, ToolShellExited)]
    assert (output.ending, exited.exit_code, exited.stdout_bytes) == ("timed_out", 3, 300000)


@pytest.mark.parametrize("timeout", [0, -5, -0.1])
async def test_command_without_any_time_is_refused_and_not_run(
    tmp_path: Path, timeout: float
) -> None:
    keeper = Keeper(str(tmp_path), Policy(mode="none"), os.environ)
    tool = Bash(keeper, Redactor())
    with pytest.raises(CallerError, match="more than 0 seconds"):
        await tool.run({"command": "touch ran", "timeout": timeout}, RecordingContext())
    assert not (tmp_path / "ran").exists()


async def test_timeout_of_any_size_is_the_longest_there_is(tmp_path: Path) -> None:
    context = RecordingContext()
    keeper = Keeper(str(tmp_path), Policy(mode="none"), os.environ)
    try:
        tool = Bash(keeper, Redactor(), longest_s=60.0)
        output = await tool.run({"command": "echo ran", "timeout": 10**400}, context)
    finally:
        await keeper.close()
    (command,) = [fact for fact in context.facts if isinstance(fact, ToolShellCommand)]
    assert (output.text, command.timeout_ms) == ("ran", 60_000)


async def test_bytes_that_are_no_text_are_shown_replaced_and_counted_as_written(
    tmp_path: Path,
) -> None:
    context = RecordingContext()
    keeper = Keeper(str(tmp_path), Policy(mode="none"), os.environ)
    line = r"head -c 200000 /dev/zero | tr '\0' '\377'; printf 'caf\303'; sleep 0.1; printf '\251'"
    try:
        await Bash(keeper, Redactor()).run({"command": line}, context)
    finally:
        await keeper.close()
    (exited,) = [fact for fact in context.facts if isinstance(fact, ToolShellExited)]
    assert (exited.stdout_bytes, exited.truncated) == (200005, False)
    chunks = [fact for fact in context.facts if isinstance(fact, ToolShellOutputChunk)]
    assert "".join(chunk.data for chunk in chunks) == "\ufffd" * 200000 + "café"
    shown = 0
    for chunk in chunks:
        assert chunk.byte_offset == shown
        shown += len(chunk.data.replace("\ufffd", "?").encode())
    assert shown == exited.stdout_bytes


async def test_cancelled_command_leaves_a_record_of_the_files_it_changed(tmp_path: Path) -> None:
    context = Telling()
    keeper = Keeper(str(tmp_path), Policy(mode="none"), os.environ)
    try:
        tool = Bash(keeper, Redactor(), grace_s=30.0, changes=CommandChanges(Root(str(tmp_path))))
        running = asyncio.ensure_future(tool.run({"command": f"echo 1 > new; {TIDY}"}, context))
        async with asyncio.timeout(30):
            await context.wrote.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await context.settle()
    finally:
        await keeper.close()
    (changed,) = [fact for fact in context.facts if isinstance(fact, WorkspaceChangedByCommand)]
    assert (changed.files, changed.file_count) == ([ChangedFile("new", "created", 2)], 1)


@pytest.mark.parametrize(
    ("line", "stdout", "stderr"),
    [
        ("for i in $(seq 2000); do printf x; done", "x" * 2000, ""),
        ("for i in $(seq 1000); do printf é; printf y >&2; done", "é" * 1000, "y" * 1000),
    ],
)
async def test_a_program_that_writes_single_bytes_makes_no_event_of_each(
    tmp_path: Path, line: str, stdout: str, stderr: str
) -> None:
    context = RecordingContext()
    keeper = Keeper(str(tmp_path), Policy(mode="none"), os.environ)
    try:
        await Bash(keeper, Redactor()).run({"command": line}, context)
    finally:
        await keeper.close()
    chunks = [fact for fact in context.facts if isinstance(fact, ToolShellOutputChunk)]
    for stream, text in (("stdout", stdout), ("stderr", stderr)):
        shown = [chunk for chunk in chunks if chunk.stream == stream]
        assert "".join(chunk.data for chunk in shown) == text
        lengths = [len(chunk.data.encode()) for chunk in shown]
        offsets = [chunk.byte_offset for chunk in shown]
        assert offsets == [sum(lengths[:place]) for place in range(len(shown))]
    assert len(chunks) < 500
