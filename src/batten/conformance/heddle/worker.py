"""A client of one Heddle worker, and the properties of every answer."""

from collections.abc import Sequence
from typing import Any, Self

from batten.conformance.bench import Bench
from batten.conformance.check import Json, equal, expect, fields
from batten.conformance.client import Client

VERSION = "0.2.0"
TOOLS = ["read_file", "write_file", "edit_file", "glob", "grep", "bash"]


def init(request_id: str = "i", version: str | None = VERSION, **config: Any) -> Json:
    defaults: Json = {"model": "conformance/model", "system_prompt": "Be brief.", "tools": TOOLS}
    named = {} if version is None else {"protocol_version": version}
    return {"type": "init", "id": request_id, **named, "config": {**defaults, **config}}


def send(send_id: str = "s", message: str = "go") -> Json:
    return {"type": "send", "id": send_id, "message": message}


def cancel(target_id: str = "s", request_id: str = "c") -> Json:
    return {"type": "cancel", "id": request_id, "target_id": target_id}


def status(request_id: str) -> Json:
    return {"type": "status", "id": request_id}


class Worker(Client):
    @classmethod
    async def ready(cls, bench: Bench, **config: Any) -> Self:
        """A worker with a session."""
        worker = await cls.start(bench)
        await worker.open(**config)
        return worker

    async def open(self, **config: Any) -> Json:
        answered = await self.ask(init(**config), "init_ok")
        expect(bool(answered.get("session_id")), f"the session has no id: {answered}")
        return answered

    async def ask(self, request: Json, kind: str) -> Json:
        """Send a request; its answer must be the next message."""
        await self.subject.say(request)
        return await self.answer(kind, request["id"])

    async def answer(self, kind: str, request_id: str) -> Json:
        what = f"{kind} with the id {request_id!r}"
        answered = await self.subject.hear(what)
        same = answered.get("type") == kind and answered.get("id") == request_id
        expect(same, f"expected {what}, heard {shown(answered)}")
        return answered

    async def result(self, send_id: str = "s") -> Json:
        return await self.subject.until(
            lambda one: one.get("type") == "result" and one.get("id") == send_id,
            f"the result of {send_id!r}",
        )

    async def event(self, kind: str) -> Json:
        return await self.subject.until(lambda one: named(one) == kind, f"a {kind} event")

    async def sent(self, send_id: str = "s", message: str = "go") -> list[Json]:
        """Run a send; all its messages, the result last."""
        before = len(self.subject.heard)
        await self.subject.say(send(send_id, message))
        await self.result(send_id)
        return self.subject.heard[before:]

    async def refused(self, request_id: str, code: str = "protocol_error") -> Json:
        """The next message must be an error result."""
        answered = await self.answer("result", request_id)
        refusal(answered, code)
        return answered

    async def alive(self, request_id: str = "fence") -> Json:
        """It still answers, and says nothing else before."""
        return await self.ask(status(request_id), "status_ok")


def refusal(result: Json, code: str) -> None:
    """`Broken` unless it is an error result with this code in a whole envelope."""
    equal(result.get("status"), "error", "result.status")
    error = result.get("error")
    expect(isinstance(error, dict), f"result.error is not an object but {error!r}")
    envelope(error, code)
    fields(result, tool_calls_made=list, iterations=int)


def envelope(error: Any, code: str) -> None:
    fields(error, code=str, message=str, retryable=bool)
    equal(error["code"], code, "error.code")
    equal(error["retryable"], code == "provider_error", "error.retryable")


def events(frames: Sequence[Json], kind: str = "") -> list[Json]:
    """The payloads of the events among these."""
    payloads = [one["event"] for one in frames if one.get("type") == "event"]
    return [one for one in payloads if kind in ("", one.get("event"))]


def named(frame: Json) -> str:
    """The kind of an event; empty for other messages."""
    return str(frame["event"].get("event")) if frame.get("type") == "event" else ""


def succeeded(frames: Sequence[Json]) -> Json:
    """The result of a send that must have succeeded."""
    result = frames[-1]
    equal(result.get("status"), "ok", f"result.status (error: {result.get('error')})")
    return result


def shown(frame: Json) -> str:
    return str(frame)[:200]
