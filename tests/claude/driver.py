"""A program that uses the real SDK the way its users do, told what to do line by line.

Runs under the interpreter of the SDK it is to drive; knows nothing of what it drives. Each
line of standard input is a task, and is answered with one line: the messages that came, what
the callbacks were told, and the exception that ended it, if one did.
"""

import asyncio
import dataclasses
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import claude_agent_sdk as sdk

Json = dict[str, Any]
REACHED_S = 60.0


class Task:
    """One task: options, callbacks and steps."""

    def __init__(self, told: Json) -> None:
        self._told = told
        self.messages: list[Json] = []
        self.callbacks: list[Json] = []
        self.answers: list[Any] = []
        self.error: Json | None = None
        self.stderr: list[str] = []

    async def run(self) -> None:
        try:
            async with asyncio.timeout(REACHED_S):
                if "steps" in self._told:
                    await self._converse()
                else:
                    await self._query()
        except Exception as error:
            self.error = {
                "type": type(error).__name__,
                "bases": [base.__name__ for base in type(error).__mro__],
                "text": str(error),
                "subtype": getattr(error, "subtype", None),
            }

    def report(self) -> Json:
        return {
            "messages": self.messages,
            "callbacks": self.callbacks,
            "answers": self.answers,
            "error": self.error,
            "stderr": self.stderr,
        }

    async def _query(self) -> None:
        prompts = self._told["prompts"]
        prompt: Any = prompts if isinstance(prompts, str) else self._stream(prompts)
        messages: Any = sdk.query(prompt=prompt, options=self._options())
        try:
            async for message in messages:
                self._keep(message)
        finally:
            await messages.aclose()

    async def _stream(self, prompts: list[Any]) -> AsyncIterator[Json]:
        for prompt in prompts:
            message = {"role": "user", "content": prompt}
            yield {
                "type": "user",
                "message": message,
                "parent_tool_use_id": None,
                "session_id": "default",
            }

    async def _converse(self) -> None:
        async with sdk.ClaudeSDKClient(self._options()) as client:
            messages = client.receive_messages()
            for step in self._told["steps"]:
                name, *arguments = step
                if name == "until":
                    await self._until(messages, arguments[0])
                else:
                    await self._call(client, name, arguments)

    async def _until(self, messages: AsyncIterator[Any], kind: str) -> None:
        async for message in messages:
            if self._keep(message)["kind"] == kind:
                return
        raise RuntimeError(f"the stream ended before a {kind}")

    async def _call(self, client: sdk.ClaudeSDKClient, name: str, arguments: list[Any]) -> None:
        try:
            given = [self._named(one) for one in arguments]
            self.answers.append(await getattr(client, name)(*given))
        except Exception as error:
            self.answers.append({"error": str(error)})

    def _named(self, argument: Any) -> Any:
        """`{text}` is the id of the message with this text, as it came back."""
        if not (isinstance(argument, str) and argument.startswith("{")):
            return argument
        return next(one["uuid"] for one in self.messages if one.get("content") == argument[1:-1])

    def _keep(self, message: Any) -> Json:
        kept = {"kind": type(message).__name__, **dataclasses.asdict(message)}
        if isinstance(kept.get("content"), list):
            blocks: list[Any] = message.content
            kept["content"] = [
                {"kind": type(block).__name__, **dataclasses.asdict(block)} for block in blocks
            ]
        self.messages.append(kept)
        return kept

    def _options(self) -> sdk.ClaudeAgentOptions:
        options = dict(self._told["options"])
        if "permission" in self._told:
            options["can_use_tool"] = self._can_use_tool
        if "hooks" in self._told:
            options["hooks"] = {
                event: [self._matcher(event, one) for one in matchers]
                for event, matchers in self._told["hooks"].items()
            }
        if self._told.get("calculator"):
            options["mcp_servers"] = {"calc": self._calculator(), **options.get("mcp_servers", {})}
        if "agents" in options:
            definitions = options["agents"].items()
            options["agents"] = {name: sdk.AgentDefinition(**one) for name, one in definitions}
        return sdk.ClaudeAgentOptions(**options, stderr=self.stderr.append)

    async def _can_use_tool(self, name: str, given: Json, context: Any) -> Any:
        self.callbacks.append(
            {
                "tool": name,
                "input": given,
                "tool_use_id": getattr(context, "tool_use_id", None),
                "suggestions": len(context.suggestions),
                "title": getattr(context, "title", None),
            }
        )
        verdict = self._told["permission"]
        match verdict["do"]:
            case "allow":
                return sdk.PermissionResultAllow(updated_input=verdict.get("input"))
            case "suggested":
                return sdk.PermissionResultAllow(updated_permissions=context.suggestions)
            case "always":
                rule = sdk.types.PermissionRuleValue(name)
                update = sdk.PermissionUpdate(
                    type="addRules", rules=[rule], behavior="allow", destination="session"
                )
                return sdk.PermissionResultAllow(updated_permissions=[update])
            case "raise":
                raise RuntimeError("the callback is broken")
            case _:
                return sdk.PermissionResultDeny(
                    message=verdict.get("message", "no"), interrupt=verdict.get("interrupt", False)
                )

    def _matcher(self, event: str, told: Json) -> sdk.HookMatcher:
        async def call(given: Any, tool_use_id: str | None, context: Any) -> Any:
            self.callbacks.append({"event": event, "input": given, "tool_use_id": tool_use_id})
            if told.get("raise"):
                raise RuntimeError("the hook is broken")
            return told["replies"].pop(0) if told.get("replies") else {}

        more = {"on_failure": told["on_failure"]} if "on_failure" in told else {}
        return sdk.HookMatcher(matcher=told.get("matcher"), hooks=[call], **more)

    def _calculator(self) -> Any:
        @sdk.tool("add", "Adds two numbers.", {"a": float, "b": float})
        async def add(arguments: Json) -> Json:
            self.callbacks.append({"added": arguments})
            if arguments["a"] < 0:
                raise ValueError("no negative numbers")
            text = f"the sum is {arguments['a'] + arguments['b']:g}"
            return {"content": [{"type": "text", "text": text}]}

        return sdk.create_sdk_mcp_server(name="calc", version="1.0.0", tools=[add])


def main() -> None:
    for line in sys.stdin:
        task = Task(json.loads(line))
        asyncio.run(task.run())
        sys.stdout.write(json.dumps(task.report(), default=repr) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
