"""An MCP server by hand, quick to start, with one tool that asks people for a word."""

import json
import sys
from typing import Any

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(number: int | str) -> None:
    """Ask before answering; what comes in between is let be."""
    asked = {"message": "Which word?", "requestedSchema": SCHEMA}
    send(id=f"ask-{number}", method="elicitation/create", params=asked)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == f"ask-{number}":
            answer = message.get("result", {})
            said = answer.get("content", {}).get("word") or answer.get("action", "error")
            send(id=number, result={"content": [{"type": "text", "text": said}], "isError": False})
            return


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                version = message["params"]["protocolVersion"]
                info = {"name": "plain", "version": "1"}
                result: dict[str, Any] = {"protocolVersion": version, "serverInfo": info}
                send(id=message["id"], result={**result, "capabilities": {"tools": {}}})
            case "tools/list":
                tool = {"name": "ask", "description": "Asks.", "inputSchema": {"type": "object"}}
                send(id=message["id"], result={"tools": [tool]})
            case "tools/call":
                call(message["id"])
            case "ping":
                send(id=message["id"], result={})
            case _ if "id" in message and "method" in message:
                send(id=message["id"], error={"code": -32601, "message": "not known here"})
            case _:
                pass


if __name__ == "__main__":
    main()
