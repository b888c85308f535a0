"""The environment of one check: its directories, its model, and the processes it starts."""

import asyncio
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import IO

from batten.conformance.check import Check, NotOffered, expect
from batten.conformance.model_server import ModelServer
from batten.conformance.script import scenario
from batten.conformance.subject import LONGEST_LINE, Subject, end_marked, spawn

MARKER = "CONFORMANCE_DIRECTORY"
"""The environment variable that marks every process of a check."""
PLACES = ("{workspace}", "{home}", "{scenario}", "{model_url}", "{here}")
"""Placeholders in the words of a command."""
NOTES = "alpha\nbeta\ngamma\n"
_POLL_S = 0.01
_REST_S = 0.5
"""Much longer than `script.ENDLESS` takes to write again."""
_FOREIGN = ("HEDDLE_", "MAESTRO_", "BATTEN_", "XDG_")
"""Prefixes of variables that would configure the program under test."""


class Bench:
    """`workspace` holds `notes.md`; it and the home directory are new for each check."""

    def __init__(
        self,
        directory: str,
        check: Check,
        command: Sequence[str],
        patience_s: float,
        group: asyncio.TaskGroup,
    ) -> None:
        """The bench creates `directory` when opened and removes it when closed."""
        self.directory = directory
        self.workspace = os.path.join(self.directory, "workspace")
        self._home = os.path.join(self.directory, "home")
        self._scenario = os.path.join(self.directory, "scenario.json")
        self._check = check
        self._command = command
        self._patience_s = patience_s
        self._group = group
        self._readers: list[asyncio.Task[None]] = []
        self._listening: list[asyncio.ReadTransport] = []
        self.model = ModelServer(check.script, self.workspace, group)
        self.subjects: list[Subject] = []

    async def open(self) -> None:
        os.mkdir(self.directory)
        os.mkdir(self.workspace)
        os.mkdir(self._home)
        self.put("notes.md", NOTES)
        with open(self._scenario, "wb") as file:
            file.write(scenario(self._check.script, self.workspace))
        await self.model.open()

    async def start(self) -> Subject:
        process = spawn(self._argv(), self.workspace, self._environ())
        output, errors = (asyncio.StreamReader(limit=LONGEST_LINE) for _ in range(2))
        subject = Subject(process, output, self._patience_s)
        self.subjects.append(subject)
        await self._connect(process.stdout, output)
        await self._connect(process.stderr, errors)
        self._readers.append(self._group.create_task(subject.keep_errors(errors)))
        return subject

    async def close(self) -> None:
        """Remove every process, socket and file."""
        for subject in self.subjects:
            await subject.end()
        end_marked(f"{MARKER}={self.directory}\0")
        for reader in self._readers:
            reader.cancel()
        for transport in self._listening:
            transport.close()
        self.model.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def put(self, name: str, text: str) -> str:
        """Write a file in the workspace; its path."""
        path = os.path.join(self.workspace, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def has(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.workspace, name))

    async def grows(self, name: str) -> None:
        """Wait until a file of the workspace has content."""
        ends = time.monotonic() + self._patience_s
        while not self._size(name):
            expect(time.monotonic() < ends, f"{name} is empty; expected a command to write to it")
            await asyncio.sleep(_POLL_S)

    async def rests(self, name: str) -> None:
        """Wait until the file stops growing."""
        ends = time.monotonic() + self._patience_s
        before = -1
        while before != (before := self._size(name)):
            expect(time.monotonic() < ends, "the command still runs; expected it to be stopped")
            await asyncio.sleep(_REST_S)

    def _size(self, name: str) -> int:
        return os.path.getsize(os.path.join(self.workspace, name)) if self.has(name) else 0

    def needs_tools(self) -> None:
        """`NotOffered` if the program offers no tool for a call of the script."""
        if self.model.missing:
            raise NotOffered(f"the model was offered no tool that can {self.model.missing}")

    def _argv(self) -> list[str]:
        here = os.getcwd()
        values = (self.workspace, self._home, self._scenario, self.model.url, here)
        places = dict(zip(PLACES, values, strict=True))
        words = [*self._command, *self._check.more]
        for name, value in places.items():
            words = [word.replace(name, value) for word in words]
        return words

    def _environ(self) -> Mapping[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        own = {"HOME": self._home, MARKER: self.directory}
        return {**kept, **own, **self.model.environ(), **self._check.environ}

    async def _connect(self, pipe: IO[bytes] | None, reader: asyncio.StreamReader) -> None:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        self._listening.append(transport)


async def leave(subject: Subject) -> int:
    """Close its input, read the rest, and return its exit code."""
    subject.hang_up()
    await subject.rest()
    return await subject.exit_code()
