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
        case "chatty":
            sys.stdout.write("Welcome, starting up\n")
            sys.stdout.flush()
            serve("stdio")
        case _:
            serve(kind)


if __name__ == "__main__":
    main(sys.argv[1])
