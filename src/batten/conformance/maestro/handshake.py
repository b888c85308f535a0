"""hello, ready, capabilities, and greeting again."""

from batten.conformance.bench import Bench, leave
from batten.conformance.check import NotOffered, check, equal, expect, fields, part
from batten.conformance.maestro.controller import (
    FINAL,
    REQUESTS,
    UTILITIES,
    VERSION,
    Controller,
    hello,
    of,
)
from batten.conformance.script import Say

_FLOW = "Typical controller flow"


@Controller.check("maestro.hello.answered", _FLOW, greets=False)
async def answered(controller: Controller) -> None:
    """hello is answered with hello_ok, and ready comes; both name the protocol's version."""
    await controller.greet(hello())
    for kind in ("hello_ok", "ready"):
        (message,) = controller.of(kind)
        equal(message.get("protocol_version"), VERSION, f"{kind}.protocol_version")


@Controller.check("maestro.hello.order", _FLOW, level="should")
async def order(controller: Controller) -> None:
    """hello_ok comes before ready."""
    kinds = [one.get("type") for one in controller.subject.heard]
    expect(kinds.index("hello_ok") < kinds.index("ready"), f"the order is {kinds}")


@Controller.check("maestro.hello.echo", _FLOW, greets=False)
async def echo(controller: Controller) -> None:
    """hello_ok names the role and the client's version; other fields it repeats are unchanged."""
    greeting = hello(["approval"], ["file_read"], opt_out_notifications=["status"])
    greeted = await controller.greet(greeting)
    equal(greeted.get("role"), "controller", "role")
    equal(greeted.get("client_protocol_version"), VERSION, "client_protocol_version")
    for name in ("client_info", "opt_out_notifications"):
        equal(greeted.get(name, greeting[name]), greeting[name], name)
    capabilities = part(greeted, "capabilities")
    for name in ("server_requests", "utility_operations"):
        wanted = greeting["capabilities"][name]
        equal(capabilities.get(name, wanted), wanted, f"capabilities.{name}")


@Controller.check("maestro.hello.server_capabilities", "Advertised server capabilities")
async def server_capabilities(controller: Controller) -> None:
    """server_capabilities names request classes, utilities and roles of the protocol only."""
    offer = controller.capabilities
    fields(
        offer, server_requests=list, utility_operations=list,
        raw_agent_events=bool, connection_roles=list,
    )  # fmt: skip
    known = {
        "server_requests": REQUESTS,
        "utility_operations": UTILITIES,
        "connection_roles": ("controller", "viewer"),
    }
    for name, values in known.items():
        strange = set(offer[name]) - set(values)
        expect(not strange, f"{name} names {sorted(strange)}")
        expect(len(offer[name]) == len(set(offer[name])), f"{name} names one twice")


@Controller.check("maestro.hello.ready_fields", "Initial runtime state")
async def ready_fields(controller: Controller) -> None:
    """ready names model, provider and session_id; executor_type is live or replay."""
    (ready,) = controller.of("ready")
    fields(ready, model=str, provider=str, session_id=(str, type(None)), executor_type=str)
    expect(ready["executor_type"] in ("live", "replay"), f"{ready['executor_type']!r}")


@Controller.check("maestro.hello.session_info", "Server messages")
async def session_info(controller: Controller) -> None:
    """session_info names the session, its directory and the git branch."""
    heard = controller.of("session_info")
    info = heard[0] if heard else await controller.until("session_info")
    fields(info, session_id=(str, type(None)), cwd=str, git_branch=(str, type(None)))


@Controller.check("maestro.hello.another_version", "Compatibility expectations", greets=False)
async def another_version(controller: Controller) -> None:
    """A client of another version is greeted all the same; it decides whether to leave."""
    greeted = await controller.greet(hello(protocol_version="2031-01-01"))
    equal(greeted.get("protocol_version"), VERSION, "hello_ok.protocol_version")
    await controller.fence()


@Controller.check("maestro.hello.again", "Negotiated client capabilities", level="should")
async def again(controller: Controller) -> None:
    """A later hello replaces the capabilities of the earlier one."""
    await controller.say("hello")
    await controller.until("hello_ok")
    await controller.say("utility_file_read", read_id="r", path="notes.md")
    await controller.refused()
    expect(not controller.of("utility_file_read_result"), "it read without the capability")


@check("maestro.optout.status", "Optional notification opt-outs")
async def optout_status(bench: Bench) -> None:
    """A client that opted out of status gets none."""
    controller = await Controller.ready(bench, opt_out_notifications=["status"])
    await controller.say("init", append_system_prompt="Be brief.")
    await controller.fence()
    expect(not controller.of("status"), f"{controller.of('status')[:1]}")


@check("maestro.optout.connection_info", "Optional notification opt-outs")
async def optout_connection_info(bench: Bench) -> None:
    """A client that opted out of connection_info gets none, but still hello_ok."""
    controller = await Controller.ready(bench, opt_out_notifications=["connection_info"])
    heard = [*controller.subject.heard, *(await controller.fence())]
    expect(not of(heard, "connection_info"), "connection_info was sent")


@Controller.check("maestro.init.answered", "Client messages", level="should")
async def init_answered(controller: Controller) -> None:
    """init is answered with a status that names each setting."""
    await controller.say("init", append_system_prompt="Be brief.", thinking_level="off")
    status = await controller.until("status")
    for name in ("append_system_prompt", "thinking_level"):
        expect(name in str(status.get("message")), f"it does not name {name}: {status}")


@Controller.check("maestro.init.system_prompt", "Client messages", script=((Say(FINAL),),))
async def system_prompt(controller: Controller) -> None:
    """The system prompt of init, and the text appended to it, reach the model with the prompt."""
    texts = {"system_prompt": "Answer like a conductor.", "append_system_prompt": "Be brief."}
    await controller.say("init", **texts)
    await controller.prompt("What is a score?")
    for text in (*texts.values(), "What is a score?"):
        expect(
            controller.bench.model.last_request().says(text),
            f"the request to the model lacks {text!r}",
        )


@Controller.check(
    "maestro.start.fails",
    "Transport rules",
    greets=False,
    level="should",
    more=("--no-such-option-of-this",),
)
async def start_fails(controller: Controller) -> None:
    """A failing start, here for an unknown option, is a fatal error message, without ready."""
    await controller.subject.say(hello())
    first = await controller.subject.until(
        lambda one: one.get("type") in ("error", "hello_ok", "ready"), "a fatal error"
    )
    if first["type"] != "error":
        raise NotOffered("the program takes any option")
    equal(first.get("fatal"), True, "error.fatal")
    equal(first.get("error_type"), "fatal", "error.error_type")
    fields(first, message=str)
    messages = await controller.subject.rest()
    expect(not of(messages, "ready"), "ready was sent")
    expect(await controller.subject.exit_code() != 0, "the exit code is 0")


@Controller.check("maestro.eof.greeted", "Transport rules")
async def eof_greeted(controller: Controller) -> None:
    """After hello, the end of input ends the process with 0."""
    equal(await leave(controller.subject), 0, "the exit code")
