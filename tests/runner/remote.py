"""A hosted runner as a real process, spoken to over HTTP in the shape of a runtime in process.

The suite of a shared runtime takes either: `hosting(RemoteStage(…))` gives this one.
"""

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from batten.contract.errors import (
    BattenError,
    CallerError,
    Conflict,
    NotFound,
    NotReady,
    PeerError,
    Refused,
)
from batten.protocols.maestro.hosted import (
    ConnectAsk,
    ConnectionClosed,
    ConnectionSnapshot,
    Envelope,
    HeartbeatEnvelope,
    HeartbeatSnapshot,
    MessageEnvelope,
    ResetEnvelope,
    RuntimeSnapshot,
    SnapshotEnvelope,
    SubscribeAsk,
    SubscriptionSnapshot,
)
from batten.runner.drain import Drained
from batten.runner.identity import Identity
from batten.runner.request import DrainRequest
from tests.agent.stage import Stage
from tests.maestro.schemas import Json, checked

T = TypeVar("T")

KEY = "key-of-the-suite"
PATIENCE_S = 60
WELL_KNOWN = "/.well-known/evalops/remote-runner"


class BadRequest(CallerError, PeerError):
    """Of either class in process."""


_ERRORS: dict[int, type[BattenError]] = {
    400: BadRequest,
    403: Refused,
    404: NotFound,
    409: Conflict,
    503: NotReady,
}


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def read(self, kind: type[T]) -> T:
        """The value; raises the error that a runtime in process would raise."""
        if self.status == 200:
            return msgspec.json.decode(self.body, type=kind)
        told = self.json
        kinds: Mapping[int, type[BattenError]] = _ERRORS
        raise kinds.get(self.status, BattenError)(told["error"], code=told["error_type"])


class RemoteStage(Stage):
    """A stage whose sessions are hosted by a process."""


class RunnerProcess:
    """`batten hosted-runner` on a free port of this machine."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, errors: Path) -> None:
        self.process = process
        self.port = int(url.rpartition(":")[2])
        self.errors = errors

    @classmethod
    def start(
        cls,
        stage: Stage,
        *flags: str,
        env: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> "RunnerProcess":
        errors = stage.directory / "runner.err"
        with errors.open("ab") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "batten", "hosted-runner", *flags],
                env={
                    **stage.environ,
                    "BATTEN_HOME": str(home or stage.home),
                    "MAESTRO_WEB_API_KEY": KEY,
                    "MAESTRO_HOSTED_RUNNER_LISTEN": "127.0.0.1:0",
                    **(env or {}),
                },
                cwd=stage.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        assert process.stdout is not None
        line = process.stdout.readline().decode().strip()
        if not line.startswith("listening on "):
            code = process.wait(PATIENCE_S)
            process.stdout.close()
            raise NotStarted(code, errors.read_text())
        return cls(process, line.removeprefix("listening on "), errors)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = KEY,
    ) -> Answer:
        """One request on a connection of its own; a body that is not bytes goes as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        fields = {} if key is None else {"Authorization": f"Bearer {key}"}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else msgspec.json.encode(body)
            fields["Content-Type"] = "application/json"
        try:
            connection.request(method, path, data, {**fields, **(headers or {})})
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        named = {f"x-maestro-headless-{name.replace('_', '-')}": v for name, v in headers.items()}
        return self.ask("POST", path, {} if body is None else body, named)

    def stream(self, path: str, headers: Mapping[str, str] | None = None) -> "Frames":
        """Open a stream; the head of its answer has arrived."""
        opened = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        fields = {"Host": "127.0.0.1", "Authorization": f"Bearer {KEY}", **(headers or {})}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        opened.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = opened.recv(1)
            assert byte, "the runner closed the connection"
            head += byte
        return Frames(opened, head.decode("latin-1"))

    def session_processes(self) -> list[int]:
        """The processes that the runner has started, keepers of their commands apart."""
        found = subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(line) for line in found.stdout.split()]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


class NotStarted(Exception):
    """The runner ended before it listened."""

    def __init__(self, code: int, errors: str) -> None:
        super().__init__(errors)
        self.code = code
        self.errors = errors


class Frames:
    """A stream of envelopes."""

    def __init__(self, opened: socket.socket, head: str) -> None:
        self._socket = opened
        first, *rest = head.split("\r\n")
        self.status = int(first.split()[1])
        pairs = (line.partition(": ") for line in rest if line)
        self.headers = {name.lower(): value for name, _, value in pairs}
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._held = b""

    def answer(self) -> Answer:
        """The answer that came instead of a stream."""
        body = b""
        while len(body) < int(self.headers["content-length"]):
            body += self._socket.recv(65536)
        self._socket.close()
        return Answer(self.status, self.headers, body)

    async def next(self) -> bytes | None:
        """The JSON of the next envelope; None at the end."""
        if self._reader is None:
            self._socket.setblocking(False)
            self._reader, self._writer = await asyncio.open_connection(
                sock=self._socket, limit=1 << 26
            )
        while b"\n\n" not in self._held:
            size = int(await self._reader.readline() or b"0", 16)
            if not size:
                return None
            self._held += (await self._reader.readexactly(size + 2))[:-2]
        frame, _, self._held = self._held.partition(b"\n\n")
        assert frame.startswith(b"data: "), frame
        assert b"\n" not in frame
        return frame.removeprefix(b"data: ")

    def close(self) -> None:
        if self._writer is None:
            self._socket.close()
        else:
            self._writer.close()


def envelope_of(data: bytes) -> Envelope:
    """An envelope of the types in process."""
    sent: Json = msgspec.json.decode(data)
    match sent["type"]:
        case "message":
            return MessageEnvelope(cursor=sent["cursor"], message=checked(sent["message"]))
        case "heartbeat":
            return msgspec.convert(sent, HeartbeatEnvelope)
        case "reset":
            return msgspec.convert(sent, ResetEnvelope)
        case _:
            return msgspec.convert(sent, SnapshotEnvelope)


class RemoteRuntime:
    """The methods of a runtime, each a request."""

    def __init__(self, process: RunnerProcess, session_id: str) -> None:
        self.process = process
        self.session_id = session_id
        self.path = f"/api/headless/sessions/{quote(session_id, safe='')}"

    def state(self) -> RuntimeSnapshot:
        return self.process.ask("GET", f"{self.path}/state").read(RuntimeSnapshot)

    async def connect(self, ask: ConnectAsk) -> ConnectionSnapshot:
        body = {"sessionId": self.session_id, **_fields(ask)}
        return (await self._post("/api/headless/connections", body)).read(ConnectionSnapshot)

    async def subscribe(self, ask: SubscribeAsk) -> SubscriptionSnapshot:
        answer = await self._post(f"{self.path}/subscribe", _fields(ask))
        return answer.read(SubscriptionSnapshot)

    async def unsubscribe(self, subscription_id: str) -> None:
        body = {"subscriptionId": subscription_id}
        (await self._post(f"{self.path}/unsubscribe", body)).read(Json)

    def heartbeat(
        self, connection_id: str | None = None, subscription_id: str | None = None
    ) -> HeartbeatSnapshot:
        body = {"connectionId": connection_id, "subscriptionId": subscription_id}
        return self.process.post(f"{self.path}/heartbeat", body).read(HeartbeatSnapshot)

    async def disconnect(
        self, connection_id: str | None = None, subscription_id: str | None = None
    ) -> ConnectionClosed:
        body = {"connectionId": connection_id, "subscriptionId": subscription_id}
        return (await self._post(f"{self.path}/disconnect", body)).read(ConnectionClosed)

    async def message(
        self,
        message: Any,
        *,
        connection_id: str | None = None,
        subscription_id: str | None = None,
    ) -> None:
        given = {"connection_id": connection_id, "subscriber_id": subscription_id}
        headers = {name: value for name, value in given.items() if value is not None}
        (await self._post(f"{self.path}/messages", message, **headers)).read(Json)

    def attach(
        self,
        subscription_id: str | None = None,
        *,
        cursor: int | None = None,
        role: str = "viewer",
        opt_out_notifications: Sequence[str] | None = None,
    ) -> AsyncGenerator[Envelope, None]:
        query: dict[str, Any] = {}
        if subscription_id is not None:
            query["subscriptionId"] = subscription_id
        if cursor is not None:
            query["cursor"] = cursor
        if opt_out_notifications is not None:
            query["optOutNotifications"] = ",".join(opt_out_notifications)
        headers = {"x-maestro-headless-role": role}
        frames = self.process.stream(f"{self.path}/events?{urlencode(query)}", headers)
        if frames.status != 200:
            frames.answer().read(Json)
        return cast("AsyncGenerator[Envelope, None]", _Envelopes(frames))

    async def drain(self, request: DrainRequest | Json | None = None) -> Drained:
        answer = await self._post(f"{WELL_KNOWN}/drain", request)
        told = answer.json
        if "manifest" in told:
            assert (answer.status == 200) == (told["status"] == "drained")
            return msgspec.convert(told, Drained)
        return answer.read(Drained)

    async def _post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await asyncio.to_thread(self.process.post, path, body, **headers)


class _Envelopes:
    """Closed even if it was never read."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def __aiter__(self) -> "_Envelopes":
        return self

    async def __anext__(self) -> Envelope:
        data = await self._frames.next()
        if data is None:
            raise StopAsyncIteration
        return envelope_of(data)

    async def aclose(self) -> None:
        self._frames.close()


def _fields(ask: ConnectAsk | SubscribeAsk) -> Json:
    """What was given; the rest is left out."""
    fields: Json = msgspec.to_builtins(ask)
    return {name: value for name, value in fields.items() if value is not None}


def flags_of(runner: Identity) -> list[str]:
    given = {name: value for name, value in msgspec.to_builtins(runner).items() if value}
    return [word for name, value in given.items() for word in (_flag(name), value)]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@asynccontextmanager
async def hosting_remote(
    stage: Stage,
    model: str,
    runner: Identity,
    flags: Sequence[str],
    env: Mapping[str, str] | None = None,
    restore: str | os.PathLike[str] | None = None,
    home: Path | None = None,
) -> AsyncGenerator[RemoteRuntime, None]:
    """A session of a runner that nobody is connected to yet."""
    words = [*flags_of(runner), *flags, *(["--model", model] if model else [])]
    if restore is not None:
        words += ["--restore-manifest", os.fspath(restore)]
    process = await asyncio.to_thread(RunnerProcess.start, stage, *words, env=env, home=home)
    try:
        if restore is None:
            path = "/api/headless/connections"
            first = process.post(path, {"role": "viewer"}).read(ConnectionSnapshot)
            runtime = RemoteRuntime(process, first.session_id)
            await runtime.disconnect(first.connection_id)
        else:
            manifest: Json = msgspec.json.decode(Path(restore).read_bytes())
            runtime = RemoteRuntime(process, manifest["maestro_session_id"])
        yield runtime
    finally:
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.end)
