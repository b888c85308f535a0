"""An MCP server whose tools ask people, for a word and to visit an address, or tell a variable.

Written by hand, since it speaks an earlier version, in which a server asks in the middle of a call.
"""

import json
import os
import sys
from typing import Any

Json = dict[str, Any]
VERSION = "2025-11-25"
QUESTIONS: dict[str, Json] = {
    "ask_word": {
        "mode": "form",
        "message": "Which word?",
        "requestedSchema": {
            "type": "object",
            "properties": {"word": {"type": "string", "minLength": 1}},
            "required": ["word"],
        },
    },
    "visit": {
        "mode": "url",
        "message": "Please look here.",
        "url": "https://example.test/look",
        "elicitationId": "e1",
    },
}


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def elicit(question: Json) -> str:
    """Ask, and wait for the answer: nothing else is said meanwhile."""
    say(id="asked", method="elicitation/create", params=question)
    for line in sys.stdin:
        message: Json = json.loads(line)
        if message.get("id") == "asked":
            result: Json = message.get("result", {"action": "error"})
            content: Json = result.get("content") or {}
            word: str = content["word"] if "word" in content else result["action"]
            return word
    return "gone"


def main() -> None:
    for line in sys.stdin:
        message: Json = json.loads(line)
        if "id" not in message:
            continue
        result: Json
        match message["method"]:
            case "initialize":
                info = {"name": "asking", "version": "1"}
                result = {
                    "protocolVersion": VERSION,
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
            case "tools/list":
                kind = {"type": "object"}
                names = [*QUESTIONS, "greeting"]
                result = {"tools": [{"name": name, "inputSchema": kind} for name in names]}
            case "tools/call":
                question = QUESTIONS.get(message["params"]["name"])
                answer = os.environ["GREETING"] if question is None else elicit(question)
                result = {"content": [{"type": "text", "text": answer}]}
            case _:
                say(id=message["id"], error={"code": -32601, "message": "no such method"})
                continue
        say(id=message["id"], result=result)


if __name__ == "__main__":
    main()
