"""A client of one ACP agent: it asks, hears updates, and answers what the agent asks."""

from collections.abc import Callable, Mapping

from batten.conformance.bench import Bench
from batten.conformance.check import Json, NotOffered, equal, expect, fields, part
from batten.conformance.subject import Subject

Serve = Callable[[Json], Json | None]
"""The result of an agent's request; None if it is not answered yet."""

METHOD_NOT_FOUND = -32601
AUTHENTICATION_REQUIRED = -32000


class Editor:
    """`asked` are the requests of the agent, `updates` what it tells of its sessions."""

    def __init__(self, subject: Subject, serving: Mapping[str, Serve] | None = None) -> None:
        self.subject = subject
        self.serving = dict(serving or {})
        self.asked: list[Json] = []
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
    ) -> "Editor":
        """A process that is initialized."""
        editor = cls(await bench.start(), serving)
        await editor.initialize(capabilities)
        return editor

    async def initialize(self, capabilities: Json | None = None) -> Json:
        given: Json = {"protocolVersion": 1, "clientCapabilities": capabilities or {}}
        greeted = await self.call("initialize", given)
        self.agent = part(greeted, "agentCapabilities")
        self._authenticates = bool(greeted.get("authMethods"))
        return greeted

    async def send(self, method: str, params: object, request_id: object = None) -> object:
        """A request; its id."""
        self._count += 1
        named = self._count if request_id is None else request_id
        said = {"jsonrpc": "2.0", "id": named, "method": method, "params": params}
        await self.subject.say(said)
        return named

    async def notify(self, method: str, params: object) -> None:
        await self.subject.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: object) -> Json:
        """A request and its whole answer."""
        return await self.answer(await self.send(method, params))

    async def call(self, method: str, params: object) -> Json:
        """A request that must be carried out; its result."""
        return succeeded(await self.ask(method, params), method)

    async def refused(self, method: str, params: object, *codes: int) -> None:
        """A request that must be answered with an error, of one of these codes."""
        failure(await self.ask(method, params), *codes)

    async def answer(self, request_id: object) -> Json:
        """The answer to a request; what comes before it is served."""
        while request_id not in self._answers:
            await self.step(f"the answer to request {request_id!r}")
        return self._answers.pop(request_id)

    async def step(self, what: str) -> Json:
        """Hear one message, and answer it if that is for us to do."""
        message = await self.subject.hear(what)
        equal(message.get("jsonrpc"), "2.0", "jsonrpc")
        if "method" not in message:
            envelope(message)
            self._answers[message.get("id")] = message
        elif "id" in message:
            self.asked.append(message)
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

    async def open(self, bench: Bench) -> str:
        """A new session in the workspace; its id."""
        return str((await self.made(bench))["sessionId"])

    async def made(self, bench: Bench, *servers: Json) -> Json:
        """What session/new answers. `NotOffered`: only who has authenticated gets a session."""
        params = {"cwd": bench.workspace, "mcpServers": list(servers)}
        answered = await self.ask("session/new", params)
        if self._authenticates and part(answered, "error").get("code") == AUTHENTICATION_REQUIRED:
            raise NotOffered("the agent wants its client to authenticate first")
        made = succeeded(answered, "session/new")
        session_id = made.get("sessionId")
        expect(isinstance(session_id, str) and bool(session_id), f"sessionId is {session_id!r}")
        return made

    async def prompt(self, session_id: str, text: str = "go") -> str:
        """A turn; its stop reason."""
        return stop_reason(await self.ask("session/prompt", prompt(session_id, text)))

    async def until_update(self, kind: str) -> Json:
        """The next update of this kind."""
        before = len(self.updates)
        while not (found := [one for one in self.kinds(kind)[-1:] if len(self.updates) > before]):
            await self.step(f"an update {kind}")
        return found[0]

    def kinds(self, *kinds: str) -> list[Json]:
        """The updates of these kinds."""
        told = [one["update"] for one in self.updates]
        return [one for one in told if one.get("sessionUpdate") in kinds]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one["content"].get("text", "") for one in self.kinds(kind))

    def methods(self) -> list[str]:
        return [str(one["method"]) for one in self.asked]

    def offers(self, *path: str) -> None:
        """`NotOffered` unless the agent says that it has it."""
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
