"""Small MCP servers for tests, run as `python mcp_servers.py KIND`."""

import sys
import time


def serve(transport: str) -> None:
    import base64
    import os
    import subprocess

    from mcp.server.mcpserver import Image, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import BlobResourceContents, EmbeddedResource

    server = MCPServer("tiny")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool()
    def fail() -> str:
        raise ToolError("note is read-only")

    @server.tool()
    def picture() -> Image:
        return Image(data=b"\x89PNG-data", format="png")

    @server.tool()
    def blob() -> EmbeddedResource:
        data = base64.b64encode(b"\0\1\2").decode()
        resource = BlobResourceContents(uri="x://y", mime_type="application/x-y", blob=data)
        return EmbeddedResource(resource=resource)

    @server.tool()
    def told_blob() -> EmbeddedResource:
        """Text of the environment, as bytes."""
        data = base64.b64encode(os.environ.get("GREETING", "").encode()).decode()
        resource = BlobResourceContents(uri="x://z", mime_type="text/plain", blob=data)
        return EmbeddedResource(type="resource", resource=resource)

    @server.tool()
    def environment(name: str) -> str:
        return os.environ.get(name, "(unset)")

    @server.tool()
    def die() -> str:
        os._exit(3)

    @server.tool()
    def wait() -> str:
        time.sleep(60)
        return "late"

    @server.tool()
    def child() -> str:
        """Start a process that outlives a polite server."""
        return str(subprocess.Popen(["sleep", "300"]).pid)

    if transport == "stdio":
        server.run("stdio")
    elif transport.startswith("sse:"):
        server.run("sse", host="127.0.0.1", port=int(transport.removeprefix("sse:")))
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(transport))


def serve_endless() -> None:
    """A new page of 100 tools after each page."""
    import json
    from itertools import count

    pages = count()
    for line in sys.stdin:
        asked = json.loads(line)
        result: dict[str, object] = {}
        if asked["method"] == "initialize":
            result["protocolVersion"] = asked["params"]["protocolVersion"]
            result["capabilities"] = {"tools": {}}
            result["serverInfo"] = {"name": "endless", "version": "1"}
        elif asked["method"] == "tools/list":
            page = next(pages)
            named = [f"t{page * 100 + number}" for number in range(100)]
            result["tools"] = [{"name": name, "inputSchema": {"type": "object"}} for name in named]
            result["nextCursor"] = str(page)
        if "id" in asked:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
            sys.stdout.write("\n")
            sys.stdout.flush()


def serve_plain(answer: bytes = b"") -> None:
    """Four of the tools above without the library, which takes a second to import.

    `answer` is what each call is answered with, as it stands.
    """
    import json
    import os
    from typing import Any

    any_ = {"type": "object"}
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        if answer and asked["method"] == "tools/call":
            number = json.dumps(asked["id"]).encode()
            sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%s,%s}\n' % (number, answer))
            sys.stdout.flush()
            continue
        result: dict[str, object] = {}
        match asked["method"]:
            case "initialize":
                result["protocolVersion"] = asked["params"]["protocolVersion"]
                result["capabilities"] = {"tools": {}}
                result["serverInfo"] = {"name": "plain", "version": "1"}
            case "tools/list":
                names = ("add", "environment", "fail", "die")
                result["tools"] = [{"name": name, "inputSchema": any_} for name in names]
            case "tools/call":
                name = asked["params"]["name"]
                given: dict[str, Any] = asked["params"]["arguments"]
                match name:
                    case "add":
                        text = str(given["a"] + given["b"])
                    case "environment":
                        text = os.environ.get(given["name"], "(unset)")
                    case "fail":
                        text = "note is read-only"
                    case _:
                        os._exit(3)
                result["content"] = [{"type": "text", "text": text}]
                result["isError"] = name == "fail"
            case _:
                pass
        if "id" in asked:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
            sys.stdout.write("\n")
            sys.stdout.flush()


def main(kind: str) -> None:
    match kind:
        case "hang":
            time.sleep(300)
        case "stubborn":
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            sys.stderr.write("I stay\n")
            sys.stderr.flush()
            time.sleep(300)
        case "die":
            sys.stderr.write("cannot open the database\n")
            sys.exit(1)
        case "garbage":
            sys.stdout.write("Welcome!\n\xff\n{}\n[1,2]\n" * 100)
            sys.stdout.flush()
            time.sleep(300)
        case "endless":
            serve_endless()
        case "plain":
            serve_plain()
        case _ if kind.startswith("answers:"):
            with open(kind.removeprefix("answers:"), "rb") as file:
                serve_plain(file.read())
        case "chatty":
            sys.stdout.write("Welcome, starting up\n")
            sys.stdout.flush()
            serve("stdio")
        case _:
            serve(kind)


if __name__ == "__main__":
    main(sys.argv[1])
