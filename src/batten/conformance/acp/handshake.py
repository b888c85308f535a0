"""initialize: versions and capabilities."""

from batten.conformance.acp.editor import METHOD_NOT_FOUND, Editor
from batten.conformance.bench import leave
from batten.conformance.check import equal, expect, fields, part, parts
from batten.conformance.lines import only_objects
from batten.conformance.script import Say

_INITIALIZATION = "Initialization"
_ALL = (Say("That is all."),)


@Editor.check("acp.initialize.answered", _INITIALIZATION, greets=False)
async def answered(editor: Editor) -> None:
    """initialize with version 1 is answered with version 1."""
    greeted = await editor.initialize()
    equal(greeted.get("protocolVersion"), 1, "protocolVersion")


@Editor.check("acp.initialize.newer_version", _INITIALIZATION, greets=False)
async def newer_version(editor: Editor) -> None:
    """A version the agent does not know is answered with the newest it knows, not an error."""
    greeted = await editor.call("initialize", {"protocolVersion": 99, "clientCapabilities": {}})
    fields(greeted, protocolVersion=int)
    expect(1 <= greeted["protocolVersion"] < 99, f"it says {greeted['protocolVersion']}")


@Editor.check("acp.initialize.capabilities", _INITIALIZATION, greets=False)
async def capabilities(editor: Editor) -> None:
    """Advertised capabilities have their types; authMethods is a list."""
    greeted = await editor.initialize()
    agent = editor.agent
    for name, kind in (("loadSession", bool), ("promptCapabilities", dict)):
        expect(isinstance(agent.get(name, kind()), kind), f"{name} is {agent.get(name)!r}")
    for name in ("image", "audio", "embeddedContext"):
        value = part(agent, "promptCapabilities").get(name, False)
        expect(isinstance(value, bool), f"promptCapabilities.{name} is {value!r}")
    for holder, names in (("mcpCapabilities", ("http", "sse")), ("auth", ())):
        expect(isinstance(agent.get(holder) or {}, dict), f"{holder} is {agent.get(holder)!r}")
        for name in names:
            value = part(agent, holder).get(name, False)
            expect(isinstance(value, bool), f"{holder}.{name} is {value!r}")
    for name, marker in part(agent, "sessionCapabilities").items():
        is_marker = marker is None or isinstance(marker, dict) or name.startswith("_")
        expect(is_marker, f"sessionCapabilities.{name} is {marker!r}, not an object")
    methods = greeted.get("authMethods")
    expect(isinstance(methods or [], list), f"authMethods is {methods!r}")
    for method in parts(greeted, "authMethods"):
        fields(method, id=str, name=str)
    if greeted.get("agentInfo") is not None:
        fields(greeted["agentInfo"], name=str, version=str)


@Editor.check("acp.initialize.unknown_fields", "Extensibility", greets=False)
async def unknown_fields(editor: Editor) -> None:
    """_meta and capabilities the agent does not know are ignored."""
    params = {"protocolVersion": 1, "clientCapabilities": {"_meta": {"x": 1}}, "_meta": {"y": [1]}}
    equal((await editor.call("initialize", params)).get("protocolVersion"), 1, "protocolVersion")


@Editor.check("acp.authenticate.unknown", _INITIALIZATION)
async def authenticate_unknown(editor: Editor) -> None:
    """authenticate with a method that was not advertised is an error, and the next request is
    served.
    """
    await editor.refused("authenticate", {"methodId": "conformance-no-method"})
    await editor.refused("session/dance", {}, METHOD_NOT_FOUND)


@Editor.check("acp.eof.exit", "Transports", level="should")
async def eof(editor: Editor) -> None:
    """The end of input ends the process with 0."""
    equal(await leave(editor.subject), 0, "the exit code")


@Editor.check("acp.stdout.only_messages", "Transports", script=(_ALL,))
async def only_messages(editor: Editor) -> None:
    """Standard output holds nothing but JSON-RPC messages, one object a line."""
    await editor.prompt(await editor.open())
    await leave(editor.subject)
    only_objects(editor.subject)
    for one in editor.subject.heard:
        equal(one.get("jsonrpc"), "2.0", f"jsonrpc of {str(one)[:80]}")
