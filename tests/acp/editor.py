"""An editor made of the official SDK: starts the agent over real pipes and keeps all it hears."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent

import acp
from acp import schema
from batten.session.history import facts_of
from tests.acp.official import Official
from tests.agent.stage import Found, Stage

BATTEN = Path(sys.executable).with_name("batten")
PATIENCE_S = 30.0

Json = dict[str, Any]
Decide = Callable[[schema.ToolCallUpdate], Awaitable[str | None]]
FillIn = Callable[[str, Any], Awaitable[Any]]


async def allow(call: schema.ToolCallUpdate) -> str | None:
    return "allow_once"


def filling_in(**content: Any) -> FillIn:
    """An editor whose user answers every form with these values."""

    async def fill_in(message: str, mode: Any) -> Any:
        return schema.AcceptElicitationResponse(action="accept", content=content)

    return fill_in


class Terminal:
    """A process of the editor's."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.output = b""
        self.reading = asyncio.ensure_future(self._read())
        self.released = False

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while chunk := await self.process.stdout.read(65536):
            self.output += chunk

    @property
    def status(self) -> schema.TerminalExitStatus | None:
        code = self.process.returncode
        if code is None:
            return None
        if code < 0:
            return schema.TerminalExitStatus(signal=f"SIG{-code}")
        return schema.TerminalExitStatus(exit_code=code)


class Editor:
    """The client's half. What it is asked it answers as it was told to."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, Any]] = []
        self.questions: list[schema.ToolCallUpdate] = []
        self.options: list[list[schema.PermissionOption]] = []
        self.decide: Decide = allow
        self.forms: list[tuple[str, Any]] = []
        self.fill_in: FillIn = filling_in()
        self.buffers: dict[str, str] = {}
        """Unsaved text, by path."""
        self.unwritable: set[str] = set()
        self.reading = asyncio.Event()
        """It was asked to read."""
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.writing = asyncio.Event()
        """It was asked to write."""
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.terminals: dict[str, Terminal] = {}
        self.limits: list[int | None] = []
        """Bytes of output that it was asked to keep, of each terminal."""
        self.truncates = False
        self.has_terminals = True
        self.heard = asyncio.Condition()

    def of(self, kind: type[Any], session_id: str | None = None) -> list[Any]:
        return [
            update
            for session, update in self.updates
            if isinstance(update, kind) and session_id in (None, session)
        ]

    def contents(self, kind: str, *, at_end: bool = False) -> list[Any]:
        """What was shown of this kind beside tool calls; only with what ended them, if asked."""
        found: list[Any] = []
        for update in self.of(schema.ToolCallProgress):
            shown: list[Any] = update.content or []
            if not at_end or update.status in ("completed", "failed"):
                found += [one for one in shown if one.type == kind]
        return found

    def text(self, session_id: str | None = None) -> str:
        return "".join(one.content.text for one in self.of(schema.AgentMessageChunk, session_id))

    async def until(self, kind: type[Any], matches: Callable[[Any], bool] = lambda _: True) -> Any:
        """The first update of this kind that matches."""
        async with self.heard, asyncio.timeout(PATIENCE_S):
            while True:
                for update in self.of(kind):
                    if matches(update):
                        return update
                await self.heard.wait()

    async def begun(self, session_id: str) -> None:
        """Wait until a call of this session has shown some output."""
        async with self.heard, asyncio.timeout(PATIENCE_S):
            await self.heard.wait_for(
                lambda: any(one.content for one in self.of(schema.ToolCallProgress, session_id))
            )

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append((session_id, update))
        async with self.heard:
            self.heard.notify_all()

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **kwargs: Any,
    ) -> schema.RequestPermissionResponse:
        self.questions.append(tool_call)
        self.options.append(options)
        chosen = await self.decide(tool_call)
        if chosen is None:
            denied = schema.DeniedOutcome(outcome="cancelled")
            return schema.RequestPermissionResponse(outcome=denied)
        allowed = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=allowed)

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **kwargs: Any,
    ) -> schema.ReadTextFileResponse:
        self.reads.append(path)
        self.reading.set()
        await self.may_read.wait()
        if path in self.buffers:
            return schema.ReadTextFileResponse(content=self.buffers[path])
        if not Path(path).exists():
            raise acp.RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=Path(path).read_text("utf-8"))

    async def write_text_file(
        self, session_id: str, path: str, content: str, **kwargs: Any
    ) -> schema.WriteTextFileResponse | None:
        if path in self.unwritable:
            raise acp.RequestError.internal_error({"details": "the disk is full"})
        self.writing.set()
        await self.may_write.wait()
        self.writes.append(path)
        self.buffers[path] = content
        return None

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[schema.EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **kwargs: Any,
    ) -> schema.CreateTerminalResponse:
        if not self.has_terminals:
            raise acp.RequestError(-32603, "none is free")
        process = await asyncio.create_subprocess_exec(
            command,
            *(args or []),
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self.limits.append(output_byte_limit)
        name = f"term-{len(self.terminals)}"
        self.terminals[name] = Terminal(process)
        return schema.CreateTerminalResponse(terminal_id=name)

    async def terminal_output(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> schema.TerminalOutputResponse:
        terminal = self.terminals[terminal_id]
        return schema.TerminalOutputResponse(
            output=terminal.output.decode(),
            truncated=self.truncates,
            exit_status=terminal.status,
        )

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> schema.WaitForTerminalExitResponse:
        terminal = self.terminals[terminal_id]
        await terminal.process.wait()
        await terminal.reading
        status = terminal.status
        assert status is not None
        return schema.WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def kill_terminal(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> schema.KillTerminalResponse | None:
        self._end(self.terminals[terminal_id])
        return None

    async def release_terminal(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> schema.ReleaseTerminalResponse | None:
        terminal = self.terminals[terminal_id]
        self._end(terminal)
        terminal.released = True
        return None

    @staticmethod
    def _end(terminal: Terminal) -> None:
        import os
        import signal

        if terminal.process.returncode is None:
            os.killpg(terminal.process.pid, signal.SIGKILL)

    async def create_elicitation(
        self, message: str, mode: Any, **kwargs: Any
    ) -> schema.CreateElicitationResponse:
        self.forms.append((message, mode))
        answered: schema.CreateElicitationResponse = await self.fill_in(message, mode)
        return answered

    async def complete_elicitation(self, elicitation_id: str, **kwargs: Any) -> None:
        return

    async def ext_method(self, method: str, params: Json) -> Json:
        raise acp.RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: Json) -> None:
        return

    def on_connect(self, conn: Any) -> None:
        return


class Desk:
    """An editor with an agent that was started for it."""

    def __init__(
        self,
        editor: Editor,
        agent: ClientSideConnection,
        process: asyncio.subprocess.Process,
        stage: Stage,
    ) -> None:
        self.editor = editor
        self.agent = agent
        self.process = process
        self.stage = stage

    async def greet(
        self,
        *,
        files: bool = False,
        terminal: bool = False,
        forms: bool = False,
        urls: bool = False,
    ) -> schema.InitializeResponse:
        lent = schema.FileSystemCapabilities(read_text_file=files, write_text_file=files)
        elicitation = schema.ElicitationCapabilities(
            form=schema.ElicitationFormCapabilities() if forms else None,
            url=schema.ElicitationUrlCapabilities() if urls else None,
        )
        return await self.agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(
                fs=lent, terminal=terminal, elicitation=elicitation
            ),
            client_info=schema.Implementation(name="editor", version="1"),
        )

    async def new(self, **more: Any) -> str:
        opened = await self.agent.new_session(cwd=str(self.stage.workspace), **more)
        return opened.session_id

    async def prompt(self, session_id: str, text: str = "go") -> str:
        answered = await self.agent.prompt(
            session_id=session_id, prompt=[schema.TextContentBlock(type="text", text=text)]
        )
        return answered.stop_reason


@asynccontextmanager
async def desk(stage: Stage, model: str, *flags: str, **environ: str) -> AsyncGenerator[Desk, None]:
    """Start the agent as an editor does, and end it by closing its input."""
    editor = Editor()
    official = Official()

    def read_along(event: StreamEvent) -> None:
        incoming = event.direction is StreamDirection.INCOMING
        (official.agent_said if incoming else official.client_said)(event.message)

    words = ["headless", "--protocol", "acp", "--model", model, "--sandbox", "none", *flags]
    env = {**stage.environ, "BATTEN_HOME": str(stage.home), **environ}
    # An answer that the editor still gives to an agent that has left is the SDK's to lose.
    async with asyncio.timeout(2 * PATIENCE_S):
        with suppress(ConnectionError):
            async with acp.spawn_agent_process(
                editor,
                str(BATTEN),
                *words,
                env=env,
                cwd=str(stage.directory),
                transport_kwargs={"stderr": None, "limit": 1 << 26},
                use_unstable_protocol=True,
                observers=[read_along],
            ) as (agent, process):
                yield Desk(editor, agent, process, stage)
                assert process.stdin is not None
                process.stdin.close()
                await process.wait()
        for terminal in editor.terminals.values():
            await terminal.process.wait()
            await terminal.reading
    assert not official.faults, official.faults[0]


async def facts(stage: Stage, kind: type[Found]) -> list[Found]:
    """All facts of this kind that any run stored, children's too."""
    journal = stage.journal()
    try:
        runs = reversed(await journal.runs(limit=1000))
        stored = [fact for run in runs async for fact in facts_of(journal, run.run_id)]
    finally:
        journal.close()
    return [fact for fact in stored if isinstance(fact, kind)]
