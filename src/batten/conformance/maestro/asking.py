"""Server requests: each class answered, denied and answered twice, and unknown ones."""

from batten.conformance.bench import Bench
from batten.conformance.check import Json, check, equal, expect, fields
from batten.conformance.maestro.controller import FINAL, Controller, answer, of
from batten.conformance.script import Call, Say, Script, run

_REQUESTS = "server_request"
_ALL = (Say(FINAL),)
_TOUCH: Script = ((run("touch {workspace}/made"),), _ALL)
_FAILING: Script = ((run("exit 3"),), _ALL)
_ASK: Script = ((Call("ask", {"question": "Which one?"}),), _ALL)
_LOOKUP: Script = ((Call("lookup", {"key": "k"}),), _ALL)
_TOOL = {
    "name": "conformance_lookup",
    "description": "Looks something up.",
    "input_schema": {"properties": {"key": {"type": "string"}}, "required": ["key"]},
}
_TEXT = [{"type": "text", "text": "the second"}]


async def _asked(bench: Bench, kind: str, **init: object) -> tuple[Controller, Json]:
    """A prompt up to the request of this class."""
    controller = await Controller.ready(bench, [kind])
    controller.offers("server_requests", kind)
    await controller.say("init", **init)
    await controller.say("prompt", content="go")
    while True:
        one = await controller.subject.hear(f"a server_request of the class {kind}")
        if one.get("type") == "response_end":
            bench.needs_tools()
            expect(False, f"the prompt ended without a request of the class {kind}")
        if one.get("type") == "server_request" and one.get("request_type") == kind:
            fields(one, request_id=str, call_id=str, tool=str, reason=str)
            expect("args" in one, "server_request has no args")
            return controller, one


async def _resolved(controller: Controller, request: Json, *resolutions: str) -> Json:
    resolved = await controller.until("server_request_resolved", request_id=request["request_id"])
    for name in ("request_type", "call_id"):
        equal(resolved.get(name), request[name], f"server_request_resolved.{name}")
    expect(
        resolved.get("resolution") in resolutions, f"resolution is {resolved.get('resolution')!r}"
    )
    by = resolved.get("resolved_by")
    expect(by in ("user", "policy", "client", "runtime"), f"resolved_by is {by!r}")
    return resolved


async def _over(controller: Controller, request: Json) -> None:
    """The prompt ends, and the request was sent once and resolved once."""
    await controller.answered()
    await controller.fence()
    for kind in ("server_request", "server_request_resolved"):
        messages = controller.of(kind, request_id=request["request_id"])
        equal(len(messages), 1, f"the number of {kind} messages")


@check("maestro.approval.asked", _REQUESTS, script=_TOUCH)
async def asked(bench: Bench) -> None:
    """With approval_mode prompt a tool_call that requires approval and one request are sent."""
    controller, request = await _asked(bench, "approval", approval_mode="prompt")
    (call,) = controller.of("tool_call", call_id=request["call_id"])
    equal(call.get("requires_approval"), True, "tool_call.requires_approval")
    expect(not controller.of("tool_start"), "the tool started before it was approved")
    await controller.subject.say(answer(request, approved=False))
    await _over(controller, request)


@check("maestro.approval.approved", _REQUESTS, script=_TOUCH)
async def approved(bench: Bench) -> None:
    """An approved call is resolved as approved by the user, then runs."""
    controller, request = await _asked(bench, "approval", approval_mode="prompt")
    await controller.subject.say(answer(request, approved=True))
    resolved = await _resolved(controller, request, "approved")
    equal(resolved["resolved_by"], "user", "resolved_by")
    expect(not controller.of("tool_start"), "the tool started before the resolution was sent")
    await controller.until("tool_end", call_id=request["call_id"], success=True)
    await _over(controller, request)
    expect(bench.has("made"), "the approved command did not run")


@check("maestro.approval.denied", _REQUESTS, script=_TOUCH)
async def denied(bench: Bench) -> None:
    """A denied call is resolved as denied by the user, and never starts."""
    controller, request = await _asked(bench, "approval", approval_mode="prompt")
    error = {"success": False, "output": "", "error": "Not now"}
    await controller.subject.say(answer(request, approved=False, result=error))
    equal((await _resolved(controller, request, "denied"))["resolved_by"], "user", "resolved_by")
    await _over(controller, request)
    expect(not controller.of("tool_start"), "the denied call started")
    expect(not bench.has("made"), "the denied command ran")


@check("maestro.approval.twice", _REQUESTS, script=_TOUCH)
async def twice(bench: Bench) -> None:
    """A second answer changes nothing: it is refused, and the request is resolved once."""
    controller, request = await _asked(bench, "approval", approval_mode="prompt")
    await controller.subject.say(answer(request, approved=False), answer(request, approved=True))
    await controller.refused()
    if not controller.of("response_end"):
        await controller.until("response_end")
    await controller.fence()
    resolutions = controller.of("server_request_resolved", request_id=request["request_id"])
    equal([one["resolution"] for one in resolutions], ["denied"], "the resolutions")
    expect(not bench.has("made"), "the denied command ran")


@check("maestro.approval.unknown", _REQUESTS)
async def unknown(bench: Bench) -> None:
    """An answer to a request that is not there is refused, and not fatal."""
    controller = await Controller.ready(bench, ["approval"])
    nobody = {"request_id": "nobody", "request_type": "approval"}
    await controller.subject.say(answer(nobody, approved=True))
    await controller.refused()
    await controller.fence()


@check("maestro.approval.wrong_class", _REQUESTS, script=_TOUCH)
async def wrong_class(bench: Bench) -> None:
    """An answer with another request_type is refused, and the request still waits."""
    controller, request = await _asked(bench, "approval", approval_mode="prompt")
    wrong = answer(request, approved=True) | {"request_type": "tool_retry"}
    await controller.subject.say({**wrong, "decision_action": "retry"})
    await controller.refused()
    await controller.subject.say(answer(request, approved=False))
    await _resolved(controller, request, "denied")
    await _over(controller, request)


@check("maestro.approval.legacy", "tool_response", script=_TOUCH)
async def legacy(bench: Bench) -> None:
    """tool_response answers an approval by its call_id."""
    controller, request = await _asked(bench, "approval", approval_mode="prompt")
    await controller.say("tool_response", call_id=request["call_id"], approved=True)
    await _resolved(controller, request, "approved")
    await _over(controller, request)
    expect(bench.has("made"), "the approved command did not run")


@check("maestro.approval.auto", "init", script=_TOUCH)
async def auto(bench: Bench) -> None:
    """With approval_mode auto the call runs without a request."""
    controller = await Controller.ready(bench, ["approval"])
    heard = await controller.use_tools()
    expect(not of(heard, "server_request"), "a request was put")
    expect(not of(heard, "tool_call", requires_approval=True), "approval was required")
    expect(bench.has("made"), "the command did not run")


@check("maestro.approval.fail", "init", level="should", script=_TOUCH)
async def fail(bench: Bench) -> None:
    """With approval_mode fail a call that needs approval is denied without a request."""
    controller = await Controller.ready(bench, ["approval"])
    heard = await controller.use_tools("fail")
    expect(not of(heard, "tool_start"), "the call started")
    expect(not bench.has("made"), "the command ran")


@check("maestro.user_input.answered", _REQUESTS, script=_ASK)
async def user_input(bench: Bench) -> None:
    """A question to the user is resolved as answered, and the model sees the answer."""
    controller, request = await _asked(bench, "user_input", approval_mode="auto")
    await controller.subject.say(answer(request, content=_TEXT, is_error=False))
    await _resolved(controller, request, "answered")
    await _over(controller, request)
    if bench.model.requests:
        expect(bench.model.last_request().says("the second"), "the model did not get the answer")


@check("maestro.user_input.failed", _REQUESTS, script=_ASK)
async def user_input_failed(bench: Bench) -> None:
    """An answer with is_error is resolved as failed, and the prompt goes on."""
    controller, request = await _asked(bench, "user_input", approval_mode="auto")
    await controller.subject.say(answer(request, content=_TEXT, is_error=True))
    await _resolved(controller, request, "failed")
    await _over(controller, request)


@check("maestro.client_tool.completed", _REQUESTS, script=_LOOKUP)
async def client_tool(bench: Bench) -> None:
    """A tool of the client's is sent as client_tool_request, and its result completes it."""
    init = {"client_tools": [_TOOL], "approval_mode": "auto"}
    controller, request = await _asked(bench, "client_tool", **init)
    expect(bool(controller.of("client_tool_request", call_id=request["call_id"])), "not sent")
    result = {"call_id": request["call_id"], "content": _TEXT, "is_error": False}
    await controller.say("client_tool_result", **result)
    await _resolved(controller, request, "completed")
    await _over(controller, request)


@check("maestro.tool_retry.skipped", _REQUESTS, script=_FAILING)
async def retry_skipped(bench: Bench) -> None:
    """A failed call is sent to a client that offers tool_retry; skip lets the run go on."""
    controller, request = await _asked(bench, "tool_retry", approval_mode="auto")
    expect(request["request_id"] != request["call_id"], "the request has the id of the call")
    await controller.subject.say(answer(request, decision_action="skip"))
    await _resolved(controller, request, "skipped")
    await _over(controller, request)


@check("maestro.tool_retry.retried", _REQUESTS, script=_FAILING)
async def retry_retried(bench: Bench) -> None:
    """retry runs the call again under its own call_id."""
    controller, request = await _asked(bench, "tool_retry", approval_mode="auto")
    before = len(controller.of("tool_start", call_id=request["call_id"]))
    await controller.subject.say(answer(request, decision_action="retry"))
    await _resolved(controller, request, "retried")
    await controller.until("tool_start", call_id=request["call_id"])
    after = len(controller.of("tool_start", call_id=request["call_id"]))
    equal(after, before + 1, "how often the call started")


@check("maestro.tool_retry.aborted", _REQUESTS, script=_FAILING)
async def retry_aborted(bench: Bench) -> None:
    """abort is resolved as aborted, and the call does not start again."""
    controller, request = await _asked(bench, "tool_retry", approval_mode="auto")
    before = len(controller.of("tool_start"))
    await controller.subject.say(answer(request, decision_action="abort"))
    await _resolved(controller, request, "aborted")
    await controller.fence()
    equal(len(controller.of("tool_start")), before, "how often a call started")


@check("maestro.tool_retry.not_offered", "Negotiated client capabilities", script=_FAILING)
async def retry_not_offered(bench: Bench) -> None:
    """A client that did not offer tool_retry is not asked."""
    controller = await Controller.ready(bench, ["approval"])
    heard = await controller.use_tools()
    expect(not of(heard, "server_request"), "a request was put")
