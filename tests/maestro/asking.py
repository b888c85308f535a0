"""One run for each class of request: what makes it ask, and what its client may say to that."""

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.facts import ApprovalResolved, ApprovalTimedOut, RequestClosed
from batten.session.history import facts_of
from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.maestro.schemas import Json
from tests.maestro.speaking import Speaker, speaking

LOOKUP = {
    "name": "lookup",
    "description": "Looks something up.",
    "input_schema": {"properties": {"key": {"type": "string"}}, "required": ["key"]},
}
PLAIN = ("--sandbox", "none")


class Class(Struct, frozen=True, kw_only=True):
    """One class of requests."""

    asks: Statement
    """The call that leads to a request."""
    answer: Json
    other: Json
    """An answer that says something else."""
    answered: tuple[str, str]
    """How it is resolved by the answer, and by whom."""
    expired: str
    """How it is resolved when nobody answers."""
    output: str
    """What the model is told when it was answered."""
    goes_on: bool = True
    """Whether the run goes on when nobody answers."""
    variable: str = "CLIENT"
    not_pending: str = "No pending client tool request found for request_id: "


def _text(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


CLASSES: dict[str, Class] = {
    "approval": Class(
        asks=bash("echo ran", "c1"),
        answer={"approved": True, "result": {"success": True, "output": "Fine by me"}},
        other={"approved": False},
        answered=("approved", "user"),
        expired="denied",
        output="ran\n",
        variable="APPROVAL",
        not_pending="No pending approval found for request_id: ",
    ),
    "client_tool": Class(
        asks=call("lookup", "c1", key="k"),
        answer={**_text("value of k"), "is_error": False},
        other={**_text("something else"), "is_error": True},
        answered=("completed", "client"),
        expired="failed",
        output="value of k",
    ),
    "user_input": Class(
        asks=call("ask_user", "c1", question="Which one?"),
        answer=_text("the second"),
        other=_text("the third"),
        answered=("answered", "client"),
        expired="failed",
        output="the second",
    ),
    "mcp_elicitation": Class(
        asks=call("mcp__plain__ask", "c1"),
        answer=_text('{"word": "weft"}'),
        other=_text('{"word": "warp"}'),
        answered=("answered", "client"),
        expired="failed",
        output="weft",
    ),
    "tool_retry": Class(
        asks=bash("echo tried; exit 3", "c1"),
        answer={"decision_action": "skip", "reason": "not worth it"},
        other={"decision_action": "retry"},
        answered=("skipped", "client"),
        expired="cancelled",
        output="tried\n",
        goes_on=False,
        variable="RETRY",
        not_pending="No pending tool retry request found for request_id: ",
    ),
}


def mcp(server: str = "plain_server.py", name: str = "plain") -> tuple[str, ...]:
    """Flags that bring a tool server which asks."""
    args = [str(Path(__file__).with_name(server))]
    config = {"mcpServers": {name: {"command": sys.executable, "args": args}}}
    return (*PLAIN, "--mcp-config", msgspec.json.encode(config).decode())


def talking(
    stage: Stage, kind: str, deadline_ms: int | None = None
) -> AbstractAsyncContextManager[Speaker]:
    """A process that will ask once, and wait for as long as is said."""
    asked = CLASSES[kind]
    variable = f"MAESTRO_HEADLESS_{asked.variable}_TIMEOUT_MS"
    return speaking(
        stage,
        [asked.asks],
        [say("Done."), end()],
        flags=mcp() if kind == "mcp_elicitation" else PLAIN,
        environ={} if deadline_ms is None else {variable: str(deadline_ms)},
    )


async def asked(client: Speaker, kind: str) -> Json:
    """Greet, prompt, and hear the request."""
    await client.hello(kind)
    if kind == "client_tool":
        client.say("init", client_tools=[LOOKUP])
    client.say("init", approval_mode="prompt" if kind == "approval" else "auto")
    client.say("prompt", content="go")
    return await client.until("server_request", request_type=kind)


def answer(client: Speaker, request: Json, fields: Json | None = None) -> None:
    """Answer a request, as its class usually does unless something else is given."""
    kind = request["request_type"]
    said = CLASSES[kind].answer if fields is None else fields
    client.say(
        "server_request_response", request_id=request["request_id"], request_type=kind, **said
    )


async def stored(stage: Stage) -> list[Any]:
    """How requests were resolved, as the journal has it."""
    ways = ApprovalResolved | ApprovalTimedOut | RequestClosed
    journal = stage.journal()
    facts = [fact for run in await journal.runs() async for fact in facts_of(journal, run.run_id)]
    journal.close()
    return [fact for fact in facts if isinstance(fact, ways)]
