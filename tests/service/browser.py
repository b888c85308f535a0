"""A headless Chromium, driven through its debugging pipe."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

PATIENCE_S = 60
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--remote-debugging-pipe", "--disable-extensions", "--disable-background-networking"),
)


def chromium() -> str | None:
    """The program, where one is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One page of a browser."""

    def __init__(self, commands: int, answers: asyncio.StreamReader) -> None:
        self._commands = commands
        self._answers = answers
        self._count = 0
        self._session = ""

    async def open(self, url: str) -> None:
        target = await self._send("Target.createTarget", url="about:blank")
        attached = await self._send(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        await self._send("Page.enable")
        # Every answer forbids its page to load anything: what is opened stands for a page that may.
        await self._send("Page.setBypassCSP", enabled=True)
        await self._send("Page.navigate", url=url)
        await self._until("Page.loadEventFired")

    async def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        answer = await self._send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def _send(self, method: str, **params: Any) -> Any:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, msgspec.json.encode(message) + b"\0")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self._next()
                if answer.get("id") == self._count:
                    assert "error" not in answer, answer
                    return answer["result"]

    async def _until(self, event: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await self._next()).get("method") != event:
                pass

    async def _next(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode((await self._answers.readuntil(b"\0"))[:-1])
        return found


@asynccontextmanager
async def browsing(profile: Path) -> AsyncGenerator[Page]:
    """A browser with a profile of its own."""
    program = chromium()
    assert program is not None
    theirs_in, commands = os.pipe()
    answers, theirs_out = os.pipe()

    def place() -> None:
        # First away from the places that they have to take.
        source, sink = os.dup(theirs_in), os.dup(theirs_out)
        os.dup2(source, 3)
        os.dup2(sink, 4)

    process = await asyncio.create_subprocess_exec(
        *(program, *_FLAGS, f"--user-data-dir={profile}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=(3, 4),
        preexec_fn=place,
        env={**os.environ, "HOME": str(profile)},
    )
    os.close(theirs_in)
    os.close(theirs_out)
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader),
        open(answers, "rb", buffering=0),  # noqa: SIM115
    )
    try:
        yield Page(commands, reader)
    finally:
        transport.close()
        os.close(commands)
        with suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()
