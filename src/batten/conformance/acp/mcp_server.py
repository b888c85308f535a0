"""The source of a small MCP server that is handed to an agent."""

MCP_TOOL = "weave"

MCP_SERVER = """\
import json, os, sys

TOOL = {"name": "weave", "description": "Weaves.", "inputSchema": {"type": "object"}}
open(os.path.join(os.path.dirname(__file__), os.environ["CONFORMANCE_MARK"]), "w").close()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or "method" not in asked:
        continue
    said = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "initialize":
        said["result"] = {
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "suite", "version": "1"},
        }
    elif asked["method"] == "tools/list":
        said["result"] = {"tools": [TOOL]}
    elif asked["method"] == "ping":
        said["result"] = {}
    else:
        said["error"] = {"code": -32601, "message": "not here"}
    print(json.dumps(said), flush=True)
"""
