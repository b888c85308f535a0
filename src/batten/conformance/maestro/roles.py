"""The limits of a viewer."""

from batten.conformance.bench import Bench
from batten.conformance.check import check, equal, expect
from batten.conformance.maestro.controller import Controller, hello
from batten.conformance.script import Say

_ROLES = "Connection roles"
_ALL = (Say("That is all."),)


async def _viewer(bench: Bench) -> Controller:
    viewer = await Controller.start(bench)
    greeted = await viewer.greet(hello(role="viewer"))
    equal(greeted.get("role"), "viewer", "hello_ok.role")
    return viewer


@check("maestro.viewer.prompt", _ROLES, script=(_ALL,))
async def prompt(bench: Bench) -> None:
    """A viewer's prompt is refused and starts nothing."""
    viewer = await _viewer(bench)
    await viewer.say("prompt", content="go")
    equal((await viewer.refused())["error_type"], "protocol", "error_type")
    await viewer.fence()
    expect(not viewer.of("response_start"), "the prompt was run")


@check("maestro.viewer.utility", _ROLES)
async def utility(bench: Bench) -> None:
    """A viewer's utility command is refused and starts nothing."""
    viewer = await _viewer(bench)
    await viewer.say("utility_command_start", command_id="u", command="touch made")
    await viewer.refused()
    await viewer.fence()
    expect(not viewer.of("utility_command_started"), "the command was started")
    expect(not bench.has("made"), "the command ran")


@check("maestro.viewer.shutdown", _ROLES)
async def shutdown(bench: Bench) -> None:
    """A viewer's shutdown and interrupt are refused, and the process stays."""
    viewer = await _viewer(bench)
    for kind in ("interrupt", "cancel", "shutdown"):
        await viewer.say(kind)
        await viewer.refused()
    await viewer.fence()


@Controller.check("maestro.viewer.negotiation", _ROLES, greets=False, level="should")
async def negotiation(viewer: Controller) -> None:
    """A viewer cannot offer to answer server requests: that hello is refused whole."""
    await viewer.subject.say(hello(["user_input"], role="viewer"))
    await viewer.refused("user_input")
    expect(not viewer.of("hello_ok"), "it was greeted")


@check("maestro.hello.role_kept", _ROLES, level="should")
async def role_kept(bench: Bench) -> None:
    """A role cannot change: a hello with another one is refused, one with none keeps it."""
    viewer = await _viewer(bench)
    await viewer.subject.say(hello(role="controller"))
    await viewer.refused("role")
    greeted = await viewer.fence()
    equal(greeted[-1].get("role"), "viewer", "hello_ok.role")
