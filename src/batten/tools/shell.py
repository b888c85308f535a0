"""The `bash` tool: a command in the workspace, through the keeper.

All output streams to an artifact; the facts show its beginning, the model receives its head and
tail. The whole output is never held in memory.
"""

import asyncio
import codecs
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec import UNSET

from batten.contract.errors import BattenError, CallerError
from batten.contract.facts import ToolShellCommand, ToolShellExited, ToolShellOutputChunk
from batten.contract.facts.tool import ToolKind
from batten.journal.contract import BodyWriter
from batten.models.contract import ToolSpec
from batten.redact.redactor import Redactor
from batten.redact.stream import ByteRedactor
from batten.tools.coalescing import Coalesced
from batten.tools.command_changes import CommandChanges
from batten.tools.contract import GRACE_S, Effect, Ending, ToolContext, ToolOutput, object_schema
from batten.tools.lent import RunningCommand, Terminals
from batten.workspace.commands import Exit, Stream
from batten.workspace.keeper import Keeper

DEFAULT_TIMEOUT_S = 120.0
LONGEST_TIMEOUT_S = 3600.0
_ENDING_S = 2.0
"""How much longer than its grace the end of a cancelled command may take to be recorded."""
_SHOWN_BYTES = 256 * 1024
"""Bytes of a stream shown as chunks; the artifact has all of it."""
_CHUNK_CHARACTERS = 32 * 1024
"""Limit of one chunk: fits into an event however it is escaped."""
_HEAD_BYTES = 24 * 1024
_TAIL_BYTES = 12 * 1024


class _StreamView:
    """The head, tail and length of one output stream."""

    def __init__(self, name: Stream, redactor: Redactor) -> None:
        self.name: Stream = name
        self.size = 0
        self.shown = 0
        self._redactor = ByteRedactor(redactor)
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def feed(self, chunk: bytes, *, last: bool = False) -> bytes:
        """The chunk without secrets; a possible beginning of one is held back for the next."""
        clean = self._redactor.flush() if last else self._redactor.feed(chunk)
        self.size += len(clean)
        room = _HEAD_BYTES - len(self._head)
        self._head += clean[:room]
        rest = clean[max(room, 0) :]
        if rest:
            self._tail.append(rest[-_TAIL_BYTES:])
            self._tail_size += len(self._tail[-1])
            while self._tail_size - len(self._tail[0]) >= _TAIL_BYTES:
                self._tail_size -= len(self._tail.popleft())
        return clean

    def chunks(
        self, context: ToolContext, clean: bytes, *, last: bool = False
    ) -> Iterator[ToolShellOutputChunk]:
        """The facts that show these bytes, up to the limit."""
        if self.shown >= _SHOWN_BYTES:
            return
        text = self._decoder.decode(clean[: _SHOWN_BYTES - self.shown], last)
        for start in range(0, len(text), _CHUNK_CHARACTERS):
            # Bytes that are no text are counted as they were written, and shown replaced.
            piece = text[start : start + _CHUNK_CHARACTERS].encode(errors="surrogateescape")
            yield ToolShellOutputChunk(
                tool_call_id=context.call_id,
                tool_name=context.tool_name,
                stream=self.name,
                data=piece.decode(errors="replace"),
                byte_offset=self.shown,
            )
            self.shown += len(piece)

    def head_and_tail(self) -> str:
        tail = b"".join(self._tail)[-_TAIL_BYTES:]
        missing = self.size - len(self._head) - len(tail)
        between = f"\n… {missing} bytes left out …\n".encode() if missing > 0 else b""
        return (bytes(self._head) + between + tail).decode(errors="replace").strip("\n")


class Bash:
    """Runs a command line in the workspace."""

    kind: ToolKind = "shell"
    effect: Effect = "execute"

    def __init__(
        self,
        keeper: Keeper,
        redactor: Redactor,
        terminals: Terminals | None = None,
        grace_s: float = GRACE_S,
        changes: CommandChanges | None = None,
        longest_s: float | None = None,
    ) -> None:
        """Commands run through the keeper, or in `terminals` that a client lends."""
        self._changes = changes
        self._spawner: Terminals = keeper if terminals is None else terminals
        self._redactor = redactor
        self._grace_s = grace_s
        self._longest_s = LONGEST_TIMEOUT_S if longest_s is None else longest_s
        usual_s = min(DEFAULT_TIMEOUT_S, self._longest_s)
        network = "on" if terminals is not None or keeper.policy.network else "off"
        self.spec = ToolSpec(
            name="bash",
            description=(
                "Run a command line with bash in the working directory and return its output and "
                f"exit code. The network is {network}. What it leaves running ends with it."
            ),
            parameters=object_schema(
                ["command"],
                command={"type": "string"},
                timeout={
                    "type": "number",
                    "description": f"Seconds; {usual_s:g} if absent.",
                },
                description={"type": "string", "description": "A few words for people."},
            ),
        )

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments["command"])

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        if self._changes is None:
            return await self._run(arguments, context)
        began = await self._changes.begin()
        try:
            return await self._run(arguments, context)
        finally:
            self._changes.end(began, context)

    async def _run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        timeout_s = min(arguments.get("timeout", DEFAULT_TIMEOUT_S), self._longest_s)
        if timeout_s <= 0:
            raise CallerError(f"Timeout must be more than 0 seconds, not {timeout_s:g}")
        command = await self._spawner.spawn(arguments["command"])
        context.record(
            ToolShellCommand(
                tool_call_id=context.call_id,
                tool_name=context.tool_name,
                argv=command.launch.argv,
                cwd=command.launch.cwd,
                env_keys=command.launch.env_keys,
                sandbox_layer=command.launch.sandbox_layer,
                timeout_ms=round(timeout_s * 1000),
                terminal_id=command.launch.terminal_id or UNSET,
            )
        )
        async with command:
            body = await context.body_writer()
            execution = _Execution(command, context, self._redactor, body, self._grace_s)
            return await execution.until_ended(timeout_s)


class _Execution:
    """One command while its output streams into the journal."""

    def __init__(
        self,
        command: RunningCommand,
        context: ToolContext,
        redactor: Redactor,
        body: BodyWriter,
        grace_s: float,
    ) -> None:
        self._command = command
        self._grace_s = grace_s
        self._context = context
        self._began = time.monotonic()
        self._body = body
        self._streams: dict[Stream, _StreamView] = {
            "stdout": _StreamView("stdout", redactor),
            "stderr": _StreamView("stderr", redactor),
        }
        self._coalesced = Coalesced(self._show)

    async def until_ended(self, timeout_s: float) -> ToolOutput:
        timed_out = False
        try:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._read()
            except TimeoutError:
                timed_out = True
                await self._terminate()
            exit_ = await self._command.wait()
        except asyncio.CancelledError:
            await self._record_cancelled()
            raise
        except BaseException:
            self._body.discard()
            raise
        finally:
            self._coalesced.stop()
        self._flush()
        return await self._output(exit_, timeout_s if timed_out else None)

    async def _record_cancelled(self) -> None:
        """End the command, and record its exit and its output as of a command that ended itself."""
        try:
            async with asyncio.timeout(self._grace_s + _ENDING_S):
                await self._terminate()
                exit_ = await self._command.wait()
        except (BattenError, TimeoutError):
            self._body.discard()
            return
        except BaseException:
            self._body.discard()
            raise
        self._flush()
        # The run may be cancelled because its store fails.
        with suppress(BattenError):
            self._context.interrupted(await self._output(exit_, None))

    async def _terminate(self) -> None:
        """End the command with its grace, and read what it writes meanwhile."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._command.terminate(self._grace_s))
                await self._read()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _read(self) -> None:
        async for name, chunk in self._command.output():
            self._take(name, chunk)

    def _take(self, name: Stream, chunk: bytes, *, last: bool = False) -> None:
        stream = self._streams[name]
        clean = stream.feed(chunk, last=last)
        if clean:
            self._body.write(clean)
            self._coalesced.add(name, clean)

    def _show(self, name: Stream, clean: bytes, *, last: bool = False) -> None:
        for fact in self._streams[name].chunks(self._context, clean, last=last):
            self._context.record(fact)

    def _flush(self) -> None:
        for name in self._streams:
            self._take(name, b"", last=True)
        self._coalesced.flush()
        for name in self._streams:
            self._show(name, b"", last=True)

    async def _output(self, exit_: Exit, timed_out_after: float | None) -> ToolOutput:
        stdout, stderr = self._streams["stdout"], self._streams["stderr"]
        refused = self._body.refused_bytes
        truncated = stdout.size > stdout.shown or stderr.size > stderr.shown or refused > 0
        self._context.record(
            ToolShellExited(
                tool_call_id=self._context.call_id,
                tool_name=self._context.tool_name,
                exit_code=-1 if exit_.exit_code is None else exit_.exit_code,
                signal=exit_.signal,
                stdout_bytes=stdout.size,
                stderr_bytes=stderr.size,
                truncated=truncated or self._command.cut,
            )
        )
        artifact_id = await self._keep(exit_)
        text = _report(
            stdout.head_and_tail(),
            stderr.head_and_tail(),
            exit_,
            artifact_id if truncated else None,
        )
        ending: Ending = "timed_out"
        ended = f"exited with status {exit_.exit_code}"
        if exit_.signal:
            ended = f"ended by signal {exit_.signal}"
        if timed_out_after is not None:
            summary = f"timed out after {timed_out_after:g} s"
            text = f"Error: {summary}\n{text}"
        elif refused:
            summary = "output cap exceeded"
            kept = stdout.size + stderr.size - refused
            text = (
                f"Error: {summary}: {kept} bytes are kept\n{text}\n{ended[:1].upper()}{ended[1:]}"
            )
        else:
            summary = ended
            ending = "completed" if exit_.success else "failed"
        if ending != "timed_out" and self._command.launch.sandbox_layer == "bwrap":
            text += _hint(text, has_failed=ending == "failed")
        killed = "".join(f"\nEnded with the command: {line}" for line in self._command.killed[:10])
        return ToolOutput(
            text=text + killed,
            ending=ending,
            summary=summary,
            error_kind="exit_status" if ending == "failed" else "",
            artifact_id=artifact_id,
            left_running=self._command.killed,
        )

    async def _keep(self, exit_: Exit) -> str | None:
        stdout, stderr = self._streams["stdout"], self._streams["stderr"]
        if not stdout.size and not stderr.size:
            self._body.discard()
            return None
        body = self._body.close()
        return await self._context.artifact(
            "command_output",
            body,
            mime_type="text/plain; charset=utf-8",
            summary=f"{stdout.size + stderr.size} bytes of output",
            metadata={
                "argv": self._command.launch.argv,
                "exit_code": exit_.exit_code,
                "signal": exit_.signal,
                "stdout_bytes": stdout.size,
                "stderr_bytes": stderr.size,
                "truncated": self._command.cut or self._body.refused_bytes > 0,
                "duration_ms": round((time.monotonic() - self._began) * 1000),
            },
            refused_bytes=self._body.refused_bytes,
        )


_REFUSALS = ("Read-only file system", "Device or resource busy")


def _hint(text: str, *, has_failed: bool) -> str:
    """What a refusal of bubblewrap means, which programs cannot tell.

    One of git's does not always fail: `git checkout` leaves the file as it was, and ends with 0.
    """
    if not any(refusal in text for refusal in _REFUSALS):
        return ""
    said = [line for line in text.splitlines() if line.endswith(_REFUSALS)]
    if not has_failed and not any(": " in line for line in said):
        return ""
    left = any("unable to unlink" in line or "unable to create" in line for line in said)
    return (
        "\n[Commands can only read what is outside the workspace, and in it the files that other"
        " programs execute, such as .git/config and .vscode. File tools can write those; a rule"
        " such as allow Edit(./.vscode/**) lets commands."
        + (" Git shows those that it could not replace as modified: do not commit them." * left)
        + "]"
    )


def _report(stdout: str, stderr: str, exit_: Exit, artifact_id: str | None) -> str:
    parts = [stdout] if stdout else []
    if stderr:
        parts.append(f"STDERR: {stderr}")
    if exit_.signal is not None:
        parts.append(f"Ended by signal {exit_.signal}")
    elif not exit_.success:
        parts.append(f"Exit code: {exit_.exit_code}")
    if artifact_id is not None:
        parts.append(f"[whole output: artifact {artifact_id}]")
    return "\n".join(parts) or "(no output)"
