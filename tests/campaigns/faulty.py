"""Invocations of `batten -p` to which something happens: planned at random, then carried out."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from tests.campaigns.stage import BATTEN, PATIENCE_S, Json
from tests.models.server import Fault, ModelServer, Reply, answer, cut, head, refusal
from tests.models.wire import anthropic_start, anthropic_text_block, anthropic_turn, sse

MODEL = "anthropic/claude-sonnet-4-6"

Signal = Literal["SIGTERM", "SIGINT"]
Act = Signal | Literal["asked", "close stdin", "close stdout"] | bytes | float
"""Something done to the process: wait for its first call of the model, or for so many seconds,
write these bytes to its input, close a pipe, send a signal."""

_begun = sse(anthropic_start(), *anthropic_text_block(0, "Half an answer")[:-1], named=True)
_words = sse(anthropic_start(), *anthropic_text_block(0, "word " * 400)[:-1], named=True)
_slow: Reply = [*answer(_words, piece=40)[:-1], Fault.STALL]

FAULTY_MODELS: dict[str, Reply] = {
    "hangs": [Fault.STALL],
    "falls silent": cut(_begun, Fault.STALL),
    "is reset": cut(_begun[:-20], Fault.RESET),
    "is reset at once": [Fault.RESET],
    "is closed": cut(_begun[:-20], Fault.CLOSE),
    "stops halfway": cut(_begun, Fault.CLOSE),
    "sends garbage for an event": cut(_begun + b"data: {]\xff\n\n", Fault.STALL),
    "sends garbage for a chunk": [
        head(content_type="text/event-stream", transfer_encoding="chunked"), b"zz\r\n\0\0\0",
    ],
    "sends garbage": [b"\x16\x03\x01 this is not HTTP\r\n\r\n"],
    "knows no such key": refusal(401, {"error": {"type": "authentication_error", "message": "no"}}),
    "cannot": refusal(400, {"error": {"type": "invalid_request_error", "message": "no"}}),
}  # fmt: skip

WRONG_LINES = (
    b"{\n",
    b'{"type":"user","message":{"role":"user","content":"hello"}}\n',
    b'{"type":"assistant"}\n',
    b'{"type":"user","content":"\xff"}\n',
    b"\x00\xff\xfe\n",
    b'{"type":"user","content":"half',
)
INTERRUPT = b'{"type":"control","subtype":"interrupt"}\n'


class Plan(Struct, frozen=True):
    """One invocation: what it is given, what happens to it, and the exit codes it may have."""

    number: int
    what: str
    argv: tuple[str, ...]
    replies: tuple[Reply, ...]
    acts: tuple[Act, ...]
    codes: frozenset[int]
    output: str
    input_is_open: bool
    """Its prompts come from its standard input."""

    @property
    def signals(self) -> int:
        return sum(act in ("SIGTERM", "SIGINT") for act in self.acts)

    @property
    def reads(self) -> bool:
        """Whether all it writes is read."""
        return "close stdout" not in self.acts


class Seen(Struct, frozen=True):
    """What came of a plan."""

    plan: Plan
    workspace: str
    code: int
    out: bytes
    err: str
    acted_at: float
    """When the last thing was done to it, in seconds of the epoch."""
    ended_at: float

    def frames(self) -> list[Json]:
        assert not self.out or self.out.endswith(b"\n"), "a line is cut"
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


class Planner:
    """Draws plans; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def draw(self) -> Plan:
        self._number += 1
        kinds = (self._model, self._tool, self._input, self._reader, self._signalled, self._hook)
        made = self._random.choices(kinds, weights=(3, 2, 3, 2, 4, 2))[0]()
        if self._random.random() < 0.1 and not made["signals"]:
            made["acts"] += self._signals(made)
        acts = tuple(made["acts"])
        output = self._random.choice(("stream-json", "stream-json", "json", "text", "events"))
        flags = ["--output-format", output, "--model", MODEL, "--allow", "bash"]
        extra = ("--include-partial-messages", "--replay-user-messages", "--no-sub-agent")
        flags += [flag for flag in extra if self._random.random() < 0.3]
        flags += ["--input-format", "stream-json"] if made["streams"] else ["-p", *made["prompt"]]
        return Plan(
            number=self._number,
            what=made["what"],
            argv=(*flags, *made["flags"]),
            replies=tuple(made["replies"]),
            acts=acts,
            codes=frozenset(made["codes"]),
            output=output,
            input_is_open=made["streams"] or not made["prompt"],
        )

    def _made(
        self, what: str, replies: Sequence[Reply], codes: set[int], *, streams: bool | None = None
    ) -> dict[str, Any]:
        streams = self._random.random() < 0.5 if streams is None else streams
        prompts = [self._prompt() for _ in range(self._random.randint(1, 2))] if streams else []
        return {
            "what": what,
            "replies": replies,
            "codes": codes,
            "streams": streams,
            "prompt": ["go"],
            "acts": [b"".join(prompts), "close stdin"] if streams else [],
            "flags": [],
            "signals": 0,
        }

    def _prompt(self) -> bytes:
        words = self._random.choice(["go", "grüße", "x" * 5000])
        return msgspec.json.encode({"type": "user", "content": words}) + b"\n"

    def _signals(self, made: dict[str, Any]) -> list[Act]:
        """One or two, at a moment of the start or of the work; whatever is to come may come too."""
        signals: tuple[Signal, ...] = ("SIGTERM", "SIGINT")
        number = self._random.choice(signals)
        anchor: list[Act] = ["asked"] if self._random.random() < 0.7 else []
        acts: list[Act] = [*anchor, self._random.uniform(0, 0.5), number]
        made["codes"] |= {124}
        if self._random.random() < 0.4:
            acts.append(self._random.choice((0.0, 0.001, 0.01, 0.1)))
            acts.append("SIGINT")
            made["codes"] |= {130}
        made["signals"] = 1
        return acts

    def _model(self) -> dict[str, Any]:
        name = self._random.choice(list(FAULTY_MODELS))
        replies = [FAULTY_MODELS[name]]
        if self._random.random() < 0.3:
            replies.insert(0, self._call("echo hi"))
        return self._made(f"a model that {name}", replies, {1})

    def _call(self, command: str, **arguments: Any) -> Reply:
        call = (f"c{self._number}", "bash", {"command": command, **arguments})
        return answer(anthropic_turn("I look.", [call]))

    def _tool(self) -> dict[str, Any]:
        hang = f"trap '' TERM INT HUP; sleep 7{self._number:05d}"
        well = answer(anthropic_turn("It hung."))
        if self._random.random() < 0.5:
            made = self._made("a tool that hangs in a run", [self._call(hang)], {1})
            made["flags"] = ["--max-seconds", "1"]
            return made
        replies = [self._call(hang, timeout=0.3), well]
        return self._made("a tool that hangs", replies, {0})

    def _input(self) -> dict[str, Any]:
        well = answer(anthropic_turn("All is well."))
        made = self._made("", [well], {0}, streams=True)
        prompts: bytes = made["acts"][0]
        match self._random.randrange(6):
            case 5:
                made |= {"what": "a prompt that never ends", "streams": False, "prompt": []}
                pause = self._random.uniform(0, 0.6)
                made |= {"acts": [b"half a pro", pause, "SIGTERM"], "codes": {124}, "signals": 1}
            case 0:
                blank = self._random.choice([b"", b"\n", b" \n\r\n", INTERRUPT])
                made |= {"what": "no message", "acts": [blank, "close stdin"], "codes": {66}}
            case 1:
                wrong = self._random.choice(WRONG_LINES)
                made |= {"what": f"a wrong line {wrong!r}", "codes": {64}}
                made["acts"] = [prompts, wrong, "close stdin"]
                if not wrong.endswith(b"\n"):
                    made["acts"] = [prompts + wrong, "close stdin"]
            case 2:
                made |= {"what": "an input that never ends", "codes": set[int]()}
                made["acts"] = [prompts, *self._signals(made)]
            case 3:
                made |= {"what": "an interrupt", "codes": {0, 124}, "replies": [_slow, well]}
                made["flags"] = ["--max-seconds", "20"]
                made["acts"] = [
                    self._prompt(), "asked", self._random.uniform(0, 0.3), INTERRUPT, "close stdin"
                ]  # fmt: skip
            case _:
                made["what"] = "an input that ends later"
                made["acts"] = [prompts, self._random.uniform(0, 0.5), "close stdin"]
        return made

    def _hook(self) -> dict[str, Any]:
        """A hook that hangs: it is given up, and that counts as a denial."""
        event, codes = self._random.choice(
            [("SessionStart", {0}), ("UserPromptSubmit", {1}), ("PreToolUse", {0}), ("Stop", {0}),
             ("SessionEnd", {0})]
        )  # fmt: skip
        command = f"trap '' TERM; sleep 7{self._number:05d}"
        handler: Json = {"type": "command", "command": command, "timeout": "200ms"}
        handler["async"] = event != "UserPromptSubmit" and self._random.random() < 0.3
        replies = [self._call("echo hi"), answer(anthropic_turn("All is well."))]
        made = self._made(f"a hook of {event} that hangs", replies, set(codes))
        settings = {"hooks": {event: [{"handlers": [handler]}]}}
        made["flags"] = ["--settings", msgspec.json.encode(settings).decode()]
        return made

    def _reader(self) -> dict[str, Any]:
        replies = self._random.choice([[_slow], [answer(anthropic_turn("All is well."))]])
        made = self._made("a reader that goes away", replies, {0, 1, 124})
        made["flags"] = ["--max-seconds", "2"]
        made["acts"] += [self._random.uniform(0, 0.8), "close stdout"]
        return made

    def _signalled(self) -> dict[str, Any]:
        name, reply, codes = self._random.choice(
            [
                ("that hangs", [Fault.STALL], {1}),
                ("that is slow", _slow, {1}),
                ("that answers", answer(anthropic_turn("All is well.")), {0}),
                ("whose tool hangs", self._call(f"sleep 7{self._number:05d}"), {1}),
            ]
        )
        made = self._made(f"a signal, with a model {name}", [reply], set(codes))
        made["flags"] = ["--max-seconds", "3"]
        made["acts"] += self._signals(made)
        return made


async def carry_out(plan: Plan, directory: Path, home: Path) -> Seen:
    """Run one plan to its end."""
    workspace = directory / str(plan.number)
    workspace.mkdir(parents=True)
    async with ModelServer(plan.replies) as server:
        environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "BATTEN_HOME": str(home),
            "BATTEN_MODEL_TIMEOUT_S": "0.3",
            "BATTEN_MODEL_IDLE_S": "1.5",
            **server.environ(),
        }
        with (workspace / "err").open("wb") as err:
            playing = await _Playing.start(plan, workspace, environ, err.fileno())
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await playing.act(server)
                    code = await playing.process.wait()
                    ended_at = time.time()
                    out = await playing.out()
            finally:
                playing.clear_away()
    words = (workspace / "err").read_text(errors="replace")
    acted = playing.acted_at
    return Seen(plan, str(workspace), code, out, words, acted, ended_at)


class _Playing:
    """The process of a plan, and its pipes."""

    def __init__(
        self,
        plan: Plan,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        transport: asyncio.ReadTransport,
    ) -> None:
        self._plan = plan
        self._transport = transport
        self._reading = asyncio.create_task(reader.read())
        self.process = process
        self.acted_at = time.time()

    @classmethod
    async def start(cls, plan: Plan, workspace: Path, environ: dict[str, str], err: int) -> Self:
        out, into = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(out, "rb", 0)
        )
        process = await asyncio.create_subprocess_exec(
            BATTEN, *plan.argv,
            stdin=asyncio.subprocess.PIPE if plan.input_is_open else asyncio.subprocess.DEVNULL,
            stdout=into, stderr=err, cwd=workspace, env=environ,
        )  # fmt: skip
        os.close(into)
        return cls(plan, process, reader, transport)

    async def act(self, server: ModelServer) -> None:
        for act in self._plan.acts:
            if self.process.returncode is not None:
                return
            await self._do(act, server)
            if not isinstance(act, float) and act != "asked":
                self.acted_at = time.time()

    async def _do(self, act: Act, server: ModelServer) -> None:
        match act:
            case "asked":
                await self._until_asked(server)
            case float():
                await asyncio.sleep(act)
            case bytes():
                await self._write(act)
            case "close stdin":
                assert self.process.stdin is not None
                self.process.stdin.close()
            case "close stdout":
                self._transport.close()
            case "SIGTERM" | "SIGINT":
                # Not by its own method, which may take the exit code from whoever waits for it.
                with suppress(ProcessLookupError):
                    if self.process.returncode is None:
                        os.kill(self.process.pid, signal.Signals[act])
            case _:
                raise TypeError(f"{act!r} cannot be done")

    async def _until_asked(self, server: ModelServer) -> None:
        """Or until it has ended without asking."""
        asked = asyncio.create_task(server.asked.wait())
        ended = asyncio.create_task(self.process.wait())
        await asyncio.wait([asked, ended], return_when=asyncio.FIRST_COMPLETED)
        for task in (asked, ended):
            task.cancel()

    async def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(data)
            await self.process.stdin.drain()

    async def out(self) -> bytes:
        return b"" if self._transport.is_closing() and not self._plan.reads else await self._reading

    def clear_away(self) -> None:
        self._reading.cancel()
        self._transport.close()
        if self.process.returncode is None:
            self.process.kill()
