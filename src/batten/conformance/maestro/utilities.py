"""Utility commands, file search and file read."""

import os
from typing import Any

from batten.conformance.bench import Bench
from batten.conformance.check import Json, check, equal, expect, fields
from batten.conformance.maestro.controller import Controller, of

_UTILITIES = "utility_command_start"


async def _ready(bench: Bench, operation: str = "command_exec") -> Controller:
    controller = await Controller.ready(bench)
    controller.offers("utility_operations", operation)
    return controller


async def _ran(controller: Controller, command: str, **more: Any) -> Json:
    start = {"command_id": "u", "command": command, **more}
    await controller.say("utility_command_start", **start)
    return await controller.until("utility_command_started", command_id="u")


@check("maestro.command.output", _UTILITIES)
async def output(bench: Bench) -> None:
    """A command is reported as started, with its output on each stream, and exited once."""
    controller = await _ready(bench)
    started = await _ran(controller, "echo out; echo err >&2; exit 3")
    fields(started, command=str, shell_mode=str, terminal_mode=str)
    exited = await controller.until("utility_command_exited", command_id="u")
    equal(exited.get("success"), False, "success")
    equal(exited.get("exit_code"), 3, "exit_code")
    heard = [*controller.subject.heard, *(await controller.fence())]
    for stream, text in (("stdout", "out\n"), ("stderr", "err\n")):
        chunks = of(heard, "utility_command_output", stream=stream)
        equal("".join(one["content"] for one in chunks), text, stream)
    equal(len(controller.of("utility_command_exited")), 1, "how often it exited")


@check("maestro.command.success", _UTILITIES)
async def success(bench: Bench) -> None:
    """A command that ends with 0 is a success; its input is at its end from the beginning."""
    controller = await _ready(bench)
    await _ran(controller, "cat")
    exited = await controller.until("utility_command_exited", command_id="u")
    equal(exited.get("success"), True, "success")
    equal(exited.get("exit_code"), 0, "exit_code")


@check("maestro.command.owner", _UTILITIES, level="should")
async def owner(bench: Bench) -> None:
    """A started command names the connection that owns it."""
    controller = await _ready(bench)
    (greeted,) = controller.of("hello_ok")
    started = await _ran(controller, "true")
    equal(started.get("owner_connection_id"), greeted.get("connection_id"), "the owner")


@check("maestro.command.gated", "Negotiated client capabilities")
async def gated(bench: Bench) -> None:
    """A utility without its capability is refused and starts nothing."""
    controller = await Controller.ready(bench, utilities=())
    await controller.say("utility_command_start", command_id="u", command="touch made")
    await controller.refused()
    await controller.fence()
    expect(not controller.of("utility_command_started"), "it was started")
    expect(not bench.has("made"), "it ran")


@check("maestro.command.duplicate", _UTILITIES)
async def duplicate(bench: Bench) -> None:
    """A command id that is in use is refused; the first command goes on."""
    controller = await _ready(bench)
    await _ran(controller, "sleep 60")
    await controller.say("utility_command_start", command_id="u", command="true")
    await controller.refused()
    await controller.fence()
    expect(not controller.of("utility_command_exited"), "the first command ended")


@check("maestro.command.stdin", "utility_command_stdin")
async def stdin(bench: Bench) -> None:
    """With allow_stdin input reaches the command, and eof ends it."""
    controller = await _ready(bench)
    await _ran(controller, "cat", allow_stdin=True)
    await controller.say("utility_command_stdin", command_id="u", content="hello\n", eof=True)
    await controller.until("utility_command_exited", command_id="u", success=True)
    chunks = controller.of("utility_command_output", stream="stdout")
    equal("".join(one["content"] for one in chunks), "hello\n", "the output")


@check("maestro.command.stdin_refused", "utility_command_stdin")
async def stdin_refused(bench: Bench) -> None:
    """Without allow_stdin, and to an unknown command, writing is refused."""
    controller = await _ready(bench)
    await _ran(controller, "sleep 60")
    for command_id in ("u", "nobody"):
        await controller.say("utility_command_stdin", command_id=command_id, content="x")
        await controller.refused()


@check("maestro.command.pty", "utility_command_resize")
async def pty(bench: Bench) -> None:
    """A terminal has the size it was started with, and the one it is resized to."""
    controller = await _ready(bench)
    size = {"terminal_mode": "pty", "columns": 100, "rows": 30, "allow_stdin": True}
    started = await _ran(controller, "stty size; read line; stty size", **size)
    equal(started.get("terminal_mode"), "pty", "terminal_mode")
    equal((started.get("columns"), started.get("rows")), (100, 30), "the size")
    await controller.until("utility_command_output")
    await controller.say("utility_command_resize", command_id="u", columns=60, rows=20)
    resized = await controller.until("utility_command_resized", command_id="u")
    equal((resized.get("columns"), resized.get("rows")), (60, 20), "the new size")
    await controller.say("utility_command_stdin", command_id="u", content="go\n")
    await controller.until("utility_command_exited", command_id="u")
    text = "".join(one["content"] for one in controller.of("utility_command_output"))
    expect("30 100" in text and "20 60" in text, f"the command saw {text!r}")


@check("maestro.command.resize_refused", "utility_command_resize")
async def resize_refused(bench: Bench) -> None:
    """Only a terminal can be resized."""
    controller = await _ready(bench)
    await _ran(controller, "sleep 60")
    await controller.say("utility_command_resize", command_id="u", columns=60, rows=20)
    await controller.refused()
    expect(not controller.of("utility_command_resized"), "it was resized")


@check("maestro.command.terminate", "utility_command_terminate")
async def terminate(bench: Bench) -> None:
    """terminate ends a command, reported once; again, or with an unknown id, it does nothing."""
    controller = await _ready(bench)
    await _ran(controller, "sleep 60")
    await controller.say("utility_command_terminate", command_id="u")
    exited = await controller.until("utility_command_exited", command_id="u")
    equal(exited.get("success"), False, "success")
    for command_id in ("u", "nobody"):
        await controller.say("utility_command_terminate", command_id=command_id)
    heard = await controller.fence()
    wrong = [one for one in heard if one.get("type") in ("error", "utility_command_exited")]
    expect(not wrong, f"{wrong[:1]}")


@check("maestro.search.results", "utility_file_search")
async def search(bench: Bench) -> None:
    """A file search answers with its id, the query without blanks around it, and paths."""
    controller = await _ready(bench, "file_search")
    await controller.say("utility_file_search", search_id="s", query=" notes ")
    found = await controller.until("utility_file_search_results", search_id="s")
    equal(found.get("query"), "notes", "query")
    fields(found, cwd=str, results=list, truncated=bool)
    paths = [str(one.get("path")) for one in found["results"]]
    expect(any(path.endswith("notes.md") for path in paths), f"found {paths}")


@check("maestro.read.lines", "utility_file_read")
async def read_lines(bench: Bench) -> None:
    """A read answers with the lines asked for, their numbers, and whether more follow."""
    controller = await _ready(bench, "file_read")
    await controller.say("utility_file_read", read_id="r", path="notes.md", limit=2)
    page = await controller.until("utility_file_read_result", read_id="r")
    wanted: Json = {
        "relative_path": "notes.md",
        "content": "alpha\nbeta",
        "start_line": 1,
        "end_line": 2,
        "total_lines": 3,
        "truncated": True,
    }
    for name, value in wanted.items():
        equal(page.get(name), value, name)


@check("maestro.read.refused", "utility_file_read")
async def read_refused(bench: Bench) -> None:
    """A read that fails, or leaves the workspace, is an error with the read's id."""
    await _not_read(bench, "missing.txt", _secret(bench), "../secret.txt")


@check("maestro.read.symlink", "utility_file_read", level="should")
async def read_symlink(bench: Bench) -> None:
    """A link that leads out of the workspace is not followed."""
    os.symlink(_secret(bench), os.path.join(bench.workspace, "link.txt"))
    await _not_read(bench, "link.txt")


def _secret(bench: Bench) -> str:
    """A file outside the workspace."""
    path = os.path.join(bench.directory, "secret.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("secret")
    return path


async def _not_read(bench: Bench, *paths: str) -> None:
    controller = await _ready(bench, "file_read")
    for path in paths:
        await controller.say("utility_file_read", read_id=path, path=path)
        equal((await controller.refused()).get("request_id"), path, "error.request_id")
    expect(not controller.of("utility_file_read_result"), "something was read")
