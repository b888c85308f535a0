"""A client of one Maestro process, and the properties of its messages."""

from collections.abc import Sequence
from typing import Any, Self

from batten.conformance.bench import Bench
from batten.conformance.check import Json, NotOffered, equal, expect, fields, part
from batten.conformance.client import Client
from batten.conformance.subject import Subject

VERSION = "2026-04-02"
UTILITIES = ("command_exec", "file_search", "file_watch", "file_read")
REQUESTS = ("approval", "client_tool", "mcp_elicitation", "user_input", "tool_retry")
ERROR_TYPES = ("transient", "fatal", "tool", "cancelled", "protocol")
FINAL = "That is all."
"""The model's last words in every script; after them the prompt is over."""


def hello(requests: Sequence[str] = (), utilities: Sequence[str] = UTILITIES, **more: Any) -> Json:
    raw = more.pop("raw", False)
    offered = {
        "server_requests": list(requests),
        "utility_operations": list(utilities),
        "raw_agent_events": raw,
    }
    info = {"name": "conformance", "version": "1"}
    message: Json = {"type": "hello", "protocol_version": VERSION, "client_info": info}
    return {**message, "capabilities": offered, **more}


class Controller(Client):
    def __init__(self, bench: Bench, subject: Subject) -> None:
        super().__init__(bench, subject)
        self.capabilities: Json = {}
        self._hello: Json = {}

    @classmethod
    async def ready(cls, bench: Bench, requests: Sequence[str] = (), **more: Any) -> Self:
        controller = await cls.start(bench)
        await controller.greet(hello(requests, **more))
        return controller

    async def greet(self, greeting: Json) -> Json:
        """Send `greeting` and wait for `hello_ok` and `ready`, in either order."""
        self._hello = greeting
        await self.subject.say(greeting)
        missing = {"hello_ok", "ready"}
        while missing:
            missing.discard(str((await self.subject.hear(" and ".join(missing))).get("type")))
        (greeted,) = self.of("hello_ok")
        self.capabilities = part(greeted, "server_capabilities")
        return greeted

    async def say(self, kind: str, **values: Any) -> None:
        await self.subject.say({"type": kind, **values})

    async def until(self, kind: str, **values: Any) -> Json:
        return await self.subject.until(
            lambda one: one.get("type") == kind and values.items() <= one.items(),
            f"{kind} with {values}" if values else kind,
        )

    async def refused(self, *words: str) -> Json:
        """The next error; its message has these words."""
        error = await self.until("error")
        fields(error, message=str, fatal=bool, error_type=str)
        equal(error["fatal"], False, "error.fatal")
        expect(error["error_type"] in ERROR_TYPES, f"no error_type: {error['error_type']}")
        for word in words:
            expect(word in error["message"], f"the message lacks {word!r}: {error['message']!r}")
        return error

    async def fence(self) -> list[Json]:
        """Greet again; the messages up to the answer. Shows that the process is alive."""
        before = len(self.subject.heard)
        await self.subject.say(self._hello)
        await self.until("hello_ok")
        return self.subject.heard[before:]

    async def prompt(self, text: str = "go") -> list[Json]:
        """Prompt; all messages until its last response has ended."""
        await self.say("prompt", content=text)
        return await self.answered()

    async def use_tools(self, approval_mode: str = "auto") -> list[Json]:
        """Prompt in this mode. `NotOffered` without the tools of the script."""
        await self.say("init", approval_mode=approval_mode)
        heard = await self.prompt()
        self.bench.needs_tools()
        return heard

    async def answered(self) -> list[Json]:
        """All messages until the response with the final words has ended."""
        before = len(self.subject.heard)
        spoken = ""
        while True:
            one = await self.subject.hear("the response")
            if one.get("type") == "response_chunk" and not one.get("is_thinking"):
                spoken += str(one.get("content"))
            expect(one.get("type") != "error", f"an error came in place of the response: {one}")
            if one.get("type") == "response_end" and FINAL in spoken:
                return self.subject.heard[before:]

    def of(self, kind: str, **values: Any) -> list[Json]:
        return of(self.subject.heard, kind, **values)

    def offers(self, kind: str, value: str) -> None:
        """`NotOffered` unless the server advertises it."""
        if value not in (self.capabilities.get(kind) or ()):
            raise NotOffered(f"server_capabilities.{kind} does not name {value}")


def of(frames: Sequence[Json], kind: str, **values: Any) -> list[Json]:
    return [one for one in frames if one.get("type") == kind and values.items() <= one.items()]


def answer(request: Json, **values: Any) -> Json:
    named = {"request_id": request["request_id"], "request_type": request["request_type"]}
    return {"type": "server_request_response", **named, **values}
