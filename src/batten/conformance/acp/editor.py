"""A client of one ACP agent: it sends requests, reads updates, and answers the agent's requests."""

from collections.abc import Callable, Mapping
from typing import Self

from batten.conformance.bench import Bench
from batten.conformance.check import Json, NotOffered, equal, expect, fields, part
from batten.conformance.client import Client
from batten.conformance.subject import Subject

Serve = Callable[[Json], Json | None]
"""The result of an agent's request; None to leave it unanswered."""

METHOD_NOT_FOUND = -32601
AUTHENTICATION_REQUIRED = -32000


class Editor(Client):
    """`requests` are the agent's requests, `updates` those of its sessions."""

    def __init__(self, bench: Bench, subject: Subject) -> None:
        super().__init__(bench, subject)
        self.serving: Mapping[str, Serve] = {}
        self.requests: list[Json] = []
        self.updates: list[Json] = []
        self.agent: Json = {}
        self._authenticates = False
        self._answers: dict[object, Json] = {}
        self._count = 0

    @classmethod
    async def ready(
        cls,
        bench: Bench,
        serving: Mapping[str, Serve] | None = None,
        capabilities: Json | None = None,
    ) -> Self:
        editor = await cls.start(bench)
        editor.serving = serving or {}
        await editor.initialize(capabilities)
        return editor

    async def initialize(self, capabilities: Json | None = None) -> Json:
        params: Json = {"protocolVersion": 1, "clientCapabilities": capabilities or {}}
        greeted = await self.call("initialize", params)
        self.agent = part(greeted, "agentCapabilities")
        self._authenticates = bool(greeted.get("authMethods"))
        return greeted

    async def send(self, method: str, params: object, request_id: object = None) -> object:
        """Send a request; its id."""
        self._count += 1
        named = self._count if request_id is None else request_id
        request = {"jsonrpc": "2.0", "id": named, "method": method, "params": params}
        await self.subject.say(request)
        return named

    async def notify(self, method: str, params: object) -> None:
        await self.subject.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: object) -> Json:
        """Send a request; its whole answer."""
        return await self.answer(await self.send(method, params))

    async def call(self, method: str, params: object) -> Json:
        """Send a request that must succeed; its result."""
        return succeeded(await self.ask(method, params), method)

    async def refused(self, method: str, params: object, *codes: int) -> None:
        """Send a request that must fail with one of these codes."""
        failure(await self.ask(method, params), *codes)

    async def answer(self, request_id: object) -> Json:
        """The answer to a request; serves what comes before it."""
        while request_id not in self._answers:
            await self.step(f"the answer to request {request_id!r}")
        return self._answers.pop(request_id)

    async def step(self, what: str) -> Json:
        """Read one message, and answer it if it is a request."""
        message = await self.subject.hear(what)
        equal(message.get("jsonrpc"), "2.0", "jsonrpc")
        if "method" not in message:
            envelope(message)
            self._answers[message.get("id")] = message
        elif "id" in message:
            self.requests.append(message)
            await self._serve(message)
        elif message["method"] == "session/update":
            self.updates.append(message["params"])
        return message

    async def reply(self, request: Json, result: Json) -> None:
        await self.subject.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def _serve(self, request: Json) -> None:
        serve = self.serving.get(request["method"])
        if serve is None:
            error = {"code": METHOD_NOT_FOUND, "message": "not offered"}
            await self.subject.say({"jsonrpc": "2.0", "id": request["id"], "error": error})
        elif (result := serve(request)) is not None:
            await self.reply(request, result)

    async def open(self) -> str:
        """Open a session in the workspace; its id."""
        return str((await self.new_session())["sessionId"])

    async def new_session(self, *servers: Json) -> Json:
        """The answer to session/new. `NotOffered` if a session needs authentication."""
        params = {"cwd": self.bench.workspace, "mcpServers": list(servers)}
        answered = await self.ask("session/new", params)
        if self._authenticates and part(answered, "error").get("code") == AUTHENTICATION_REQUIRED:
            raise NotOffered("the agent wants its client to authenticate first")
        result = succeeded(answered, "session/new")
        session_id = result.get("sessionId")
        expect(isinstance(session_id, str) and bool(session_id), f"sessionId is {session_id!r}")
        return result

    async def prompt(self, session_id: str, text: str = "go") -> str:
        """Run a turn; its stop reason."""
        return stop_reason(await self.ask("session/prompt", prompt(session_id, text)))

    async def until_update(self, kind: str) -> Json:
        """The next update of this kind."""
        before = len(self.updates)
        while not (found := [one for one in self.kinds(kind)[-1:] if len(self.updates) > before]):
            await self.step(f"an update {kind}")
        return found[0]

    def kinds(self, *kinds: str) -> list[Json]:
        updates = [one["update"] for one in self.updates]
        return [one for one in updates if one.get("sessionUpdate") in kinds]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one["content"].get("text", "") for one in self.kinds(kind))

    def methods(self) -> list[str]:
        return [str(one["method"]) for one in self.requests]

    def offers(self, *path: str) -> None:
        """`NotOffered` unless the agent advertises it."""
        holder = self.agent
        for name in path[:-1]:
            holder = part(holder, name)
        if holder.get(path[-1]) in (None, False):
            raise NotOffered(f"agentCapabilities does not have {'.'.join(path)}")


def prompt(session_id: str, text: str = "go") -> Json:
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}


def envelope(answer: Json) -> None:
    """`Broken` unless it is an answer of JSON-RPC."""
    expect("id" in answer, f"an answer has no id: {answer}")
    expect(("result" in answer) != ("error" in answer), f"neither result nor error: {answer}")
    if "error" in answer:
        fields(answer["error"], code=int, message=str)


def succeeded(answer: Json, what: str) -> Json:
    expect("error" not in answer, f"{what} failed: {answer.get('error')}")
    return part(answer, "result")


def failure(answer: Json, *codes: int) -> None:
    expect("error" in answer, f"it was carried out: {answer}")
    code = answer["error"]["code"]
    wanted = " or ".join(map(str, codes))
    expect(not codes or code in codes, f"the error code is {code}, not {wanted}")


def stop_reason(answer: Json) -> str:
    return str(succeeded(answer, "session/prompt").get("stopReason"))


def choosing(*kinds: str) -> Serve:
    """Answers a permission request with the first option of one of these kinds."""

    def serve(request: Json) -> Json | None:
        options = request["params"]["options"]
        found = [one for kind in kinds for one in options if one.get("kind") == kind]
        expect(bool(found), f"no option is of the kind {' or '.join(kinds)}: {options}")
        return {"outcome": {"outcome": "selected", "optionId": found[0]["optionId"]}}

    return serve
