"""An agent of another make: the official SDK, a model over HTTP, and one tool that asks first.

It uses nothing of ours. What the suite says of it shows that a stranger's agent can be checked.
"""

import asyncio
import json
import os
from typing import Any
from uuid import uuid4

import httpx2

import acp
from acp import schema

Json = dict[str, Any]
TOOL: Json = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
    },
}


class SmallAgent:
    """Sessions live as long as the process."""

    def __init__(self) -> None:
        self.client: Any = None
        self.sessions: dict[str, list[Json]] = {}
        self.cwd: dict[str, str] = {}
        self.turns: dict[str, asyncio.Task[None]] = {}

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **more: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=1, auth_methods=[])

    async def new_session(self, cwd: str, **more: Any) -> schema.NewSessionResponse:
        if not os.path.isabs(cwd):
            raise acp.RequestError.invalid_params({"cwd": "must be absolute"})
        session_id = uuid4().hex
        self.sessions[session_id] = []
        self.cwd[session_id] = cwd
        return schema.NewSessionResponse(session_id=session_id)

    async def prompt(self, session_id: str, prompt: Any, **more: Any) -> schema.PromptResponse:
        if session_id not in self.sessions or any(block.type == "audio" for block in prompt):
            raise acp.RequestError.invalid_params({"sessionId": session_id})
        text = "".join(getattr(block, "text", "") for block in prompt)
        self.sessions[session_id].append({"role": "user", "content": text})
        turn = asyncio.ensure_future(self.work(session_id))
        self.turns[session_id] = turn
        try:
            await turn
        except asyncio.CancelledError:
            return schema.PromptResponse(stop_reason="cancelled")
        except httpx2.HTTPError as error:
            raise acp.RequestError.internal_error({"details": str(error)}) from error
        return schema.PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **more: Any) -> None:
        if session_id in self.turns:
            self.turns[session_id].cancel()

    async def work(self, session_id: str) -> None:
        """Ask the model until it wants no more tools."""
        messages = self.sessions[session_id]
        while True:
            said = await self.ask(session_id, messages)
            messages.append(said)
            if not said.get("tool_calls"):
                return
            for call in said["tool_calls"]:
                result = await self.run(session_id, call)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def ask(self, session_id: str, messages: list[Json]) -> Json:
        body = {"model": "any", "messages": messages, "tools": [TOOL], "stream": True}
        url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
        said: Json = {"role": "assistant", "content": ""}
        async with (
            httpx2.AsyncClient(timeout=None, trust_env=False) as http,
            http.stream("POST", url, json=body) as answer,
        ):
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                delta = json.loads(line[6:])["choices"][0]["delta"]
                if delta.get("content"):
                    said["content"] += delta["content"]
                    told = acp.update_agent_message_text(delta["content"])
                    await self.client.session_update(session_id=session_id, update=told)
                said.setdefault("tool_calls", []).extend(delta.get("tool_calls", ()))
        return said

    async def run(self, session_id: str, call: Json) -> str:
        command = json.loads(call["function"]["arguments"])["cmd"]
        call_id = f"{len(self.sessions[session_id])}-{call['id']}"

        async def tell(update: Any) -> None:
            await self.client.session_update(session_id=session_id, update=update)

        await tell(acp.start_tool_call(call_id, command, kind="execute", status="pending"))
        options = [
            schema.PermissionOption(option_id="y", name="Yes", kind="allow_once"),
            schema.PermissionOption(option_id="n", name="No", kind="reject_once"),
        ]
        asked = schema.ToolCallUpdate(tool_call_id=call_id)
        answer = await self.client.request_permission(
            session_id=session_id, tool_call=asked, options=options
        )
        if getattr(answer.outcome, "option_id", "n") != "y":
            await tell(acp.update_tool_call(call_id, status="failed"))
            return "denied"
        process = await asyncio.create_subprocess_shell(
            command, cwd=self.cwd[session_id], stdout=-1, stdin=-3
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        await tell(acp.update_tool_call(call_id, status="completed"))
        return output.decode()


if __name__ == "__main__":
    asyncio.run(acp.run_agent(SmallAgent()))  # type: ignore[arg-type]
