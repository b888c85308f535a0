"""Utility commands, file search and file read."""

import os
from collections.abc import Sequence
from typing import Any, Self

from batten.conformance.bench import Bench
from batten.conformance.check import Json, check, equal, expect, fields
from batten.conformance.maestro.controller import Controller, of

_UTILITIES = "utility_command_start"


class Commander(Controller):
    """A controller that may run commands."""

    @classmethod
    async def ready(cls, bench: Bench, requests: Sequence[str] = (), **more: Any) -> Self:
        controller = await super().ready(bench, requests, **more)
        controller.offers("utility_operations", "command_exec")
        return controller

    async def run(self, command: str, **more: Any) -> Json:
        await self.say("utility_command_start", command_id="u", command=command, **more)
        return await self.until("utility_command_started", command_id="u")


@Commander.check("maestro.command.output", _UTILITIES)
async def output(controller: Commander) -> None:
    """A command is reported as started, with its output on each stream, and exited once."""
    started = await controller.run("echo out; echo err >&2; exit 3")
    fields(started, command=str, shell_mode=str, terminal_mode=str)
    exited = await controller.until("utility_command_exited", command_id="u")
    equal(exited.get("success"), False, "success")
    equal(exited.get("exit_code"), 3, "exit_code")
    heard = [*controller.subject.heard, *(await controller.fence())]
    for stream, text in (("stdout", "out\n"), ("stderr", "err\n")):
        chunks = of(heard, "utility_command_output", stream=stream)
        equal("".join(one["content"] for one in chunks), text, stream)
    equal(len(controller.of("utility_command_exited")), 1, "how often it exited")


@Commander.check("maestro.command.success", _UTILITIES)
async def success(controller: Commander) -> None:
    """A command that ends with 0 is a success; its input is at its end from the beginning."""
    await controller.run("cat")
    exited = await controller.until("utility_command_exited", command_id="u")
    equal(exited.get("success"), True, "success")
    equal(exited.get("exit_code"), 0, "exit_code")


@Commander.check("maestro.command.owner", _UTILITIES, level="should")
async def owner(controller: Commander) -> None:
    """A started command names the connection that owns it."""
    (greeted,) = controller.of("hello_ok")
    started = await controller.run("true")
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


@Commander.check("maestro.command.duplicate", _UTILITIES)
async def duplicate(controller: Commander) -> None:
    """A command id that is in use is refused; the first command goes on."""
    await controller.run("sleep 60")
    await controller.say("utility_command_start", command_id="u", command="true")
    await controller.refused()
    await controller.fence()
    expect(not controller.of("utility_command_exited"), "the first command ended")


@Commander.check("maestro.command.stdin", "utility_command_stdin")
async def stdin(controller: Commander) -> None:
    """With allow_stdin input reaches the command, and eof ends it."""
    await controller.run("cat", allow_stdin=True)
    await controller.say("utility_command_stdin", command_id="u", content="hello\n", eof=True)
    await controller.until("utility_command_exited", command_id="u", success=True)
    chunks = controller.of("utility_command_output", stream="stdout")
    equal("".join(one["content"] for one in chunks), "hello\n", "the output")


@Commander.check("maestro.command.stdin_refused", "utility_command_stdin")
async def stdin_refused(controller: Commander) -> None:
    """Without allow_stdin, and to an unknown command, writing is refused."""
    await controller.run("sleep 60")
    for command_id in ("u", "nobody"):
        await controller.say("utility_command_stdin", command_id=command_id, content="x")
        await controller.refused()


@Commander.check("maestro.command.pty", "utility_command_resize")
async def pty(controller: Commander) -> None:
    """A terminal has the size it was started with, and the one it is resized to."""
    size = {"terminal_mode": "pty", "columns": 100, "rows": 30, "allow_stdin": True}
    started = await controller.run("stty size; read line; stty size", **size)
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


@Commander.check("maestro.command.resize_refused", "utility_command_resize")
async def resize_refused(controller: Commander) -> None:
    """Only a terminal can be resized."""
    await controller.run("sleep 60")
    await controller.say("utility_command_resize", command_id="u", columns=60, rows=20)
    await controller.refused()
    expect(not controller.of("utility_command_resized"), "it was resized")


@Commander.check("maestro.command.terminate", "utility_command_terminate")
async def terminate(controller: Commander) -> None:
    """terminate ends a command, reported once; again, or with an unknown id, it does nothing."""
    await controller.run("sleep 60")
    await controller.say("utility_command_terminate", command_id="u")
    exited = await controller.until("utility_command_exited", command_id="u")
    equal(exited.get("success"), False, "success")
    for command_id in ("u", "nobody"):
        await controller.say("utility_command_terminate", command_id=command_id)
    heard = await controller.fence()
    wrong = [one for one in heard if one.get("type") in ("error", "utility_command_exited")]
    expect(not wrong, f"{wrong[:1]}")


@Controller.check("maestro.search.results", "utility_file_search")
async def search(controller: Controller) -> None:
    """A file search answers with its id, the query without blanks around it, and paths."""
    controller.offers("utility_operations", "file_search")
    await controller.say("utility_file_search", search_id="s", query=" notes ")
    found = await controller.until("utility_file_search_results", search_id="s")
    equal(found.get("query"), "notes", "query")
    fields(found, cwd=str, results=list, truncated=bool)
    paths = [str(one.get("path")) for one in found["results"]]
    expect(any(path.endswith("notes.md") for path in paths), f"found {paths}")


@Controller.check("maestro.read.lines", "utility_file_read")
async def read_lines(controller: Controller) -> None:
    """A read answers with the lines asked for, their numbers, and whether more follow."""
    controller.offers("utility_operations", "file_read")
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
    controller = await Controller.ready(bench)
    controller.offers("utility_operations", "file_read")
    for path in paths:
        await controller.say("utility_file_read", read_id=path, path=path)
        equal((await controller.refused()).get("request_id"), path, "error.request_id")
    expect(not controller.of("utility_file_read_result"), "something was read")
