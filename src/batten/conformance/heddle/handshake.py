"""init, versions, status and shutdown: checks that need no model."""

from batten.conformance.bench import Bench
from batten.conformance.check import check, equal, expect, fields, part
from batten.conformance.heddle.worker import Worker, init, send, shown, status

_VERSIONS = "Protocol Compatibility"


@check("heddle.init.answered", "init_ok")
async def answered(bench: Bench) -> None:
    """init is answered with init_ok: the same id, a session id and the server's version."""
    worker = await Worker.start(bench)
    ok = await worker.ask(init("first request"), "init_ok")
    fields(ok, session_id=str, protocol_version=str)
    expect(bool(ok["session_id"]), "session_id is empty")
    expect("error" not in ok or ok["error"] is None, f"init_ok has an error: {shown(ok)}")


@check("heddle.init.version_optional", "init")
async def version_optional(bench: Bench) -> None:
    """protocol_version may be left out of init."""
    worker = await Worker.start(bench)
    ok = await worker.ask(init(version=None), "init_ok")
    expect(bool(ok.get("session_id")), f"no session was opened: {shown(ok)}")


@check("heddle.init.unknown_fields", _VERSIONS)
async def unknown_fields(bench: Bench) -> None:
    """Unknown fields are ignored, in a request and in its config."""
    worker = await Worker.start(bench)
    request = {**init(conformance_field={"a": 1}), "another_field": [1]}
    ok = await worker.ask(request, "init_ok")
    expect(bool(ok.get("session_id")), f"no session was opened: {shown(ok)}")


@check("heddle.init.config_required", "init")
async def config_required(bench: Bench) -> None:
    """init without a config is refused with protocol_error, and the process goes on."""
    worker = await Worker.start(bench)
    await worker.subject.say({"type": "init", "id": "i0"})
    refused = await worker.subject.hear("an error result")
    equal(refused.get("type"), "result", "type")
    equal(part(refused, "error").get("code"), "protocol_error", "error.code")
    await worker.open()


@check("heddle.init.again", "init", level="should")
async def again(bench: Bench) -> None:
    """A second init opens a new session in place of the first."""
    worker = await Worker.start(bench)
    first = await worker.open()
    second = await worker.ask(init("i2"), "init_ok")
    expect(bool(second.get("session_id")), "the second session has no id")
    expect(first["session_id"] != second["session_id"], "both sessions have the same id")
    now = await worker.alive()
    equal(now["session_id"], second["session_id"], "status_ok.session_id")


@check("heddle.version.major_refused", _VERSIONS)
async def major_refused(bench: Bench) -> None:
    """Another MAJOR is refused: init_ok with an empty session_id and protocol_version_mismatch."""
    worker = await Worker.start(bench)
    refused = await worker.ask(init(version="9.0.0"), "init_ok")
    equal(refused.get("session_id"), "", "session_id")
    fields(refused, error=dict, protocol_version=str)
    fields(refused["error"], code=str, message=str, retryable=bool)
    equal(refused["error"]["code"], "protocol_version_mismatch", "error.code")
    equal(refused["error"]["retryable"], False, "error.retryable")


@check("heddle.version.refused_exit", _VERSIONS, level="should")
async def refused_exit(bench: Bench) -> None:
    """After another MAJOR is refused the process leaves with 1."""
    worker = await Worker.start(bench)
    await worker.ask(init(version="9.0.0"), "init_ok")
    equal(await worker.subject.exit_code(), 1, "the exit code")


@check("heddle.version.same_major", _VERSIONS)
async def same_major(bench: Bench) -> None:
    """Equal MAJOR versions are compatible, with any MINOR and PATCH of a newer client."""
    worker = await Worker.start(bench)
    ok = await worker.ask(init(version="0.99.7"), "init_ok")
    expect(bool(ok.get("session_id")), f"no session was opened: {shown(ok)}")
    expect(str(ok.get("protocol_version")).startswith("0."), f"it speaks {shown(ok)}")


@check("heddle.version.semver", _VERSIONS)
async def semver(bench: Bench) -> None:
    """Versions with a pre-release and build metadata are versions; init_ok has the server's own."""
    for version in ("0.99.7-rc.1+build.5", "0.2.0+build.5"):
        worker = await Worker.start(bench)
        ok = await worker.ask(init(version=version), "init_ok")
        expect(bool(ok.get("session_id")), f"no session was opened: {shown(ok)}")
        expect(ok.get("protocol_version") != version, f"it repeats the client's: {shown(ok)}")


@check("heddle.order.init_first", "init")
async def init_first(bench: Bench) -> None:
    """Before init, send and status are refused with protocol_error and their own ids."""
    worker = await Worker.start(bench)
    await worker.subject.say(send("early"))
    await worker.refused("early")
    await worker.subject.say(status("early status"))
    await worker.refused("early status")
    await worker.open()


@check("heddle.status.answered", "status_ok")
async def status_answered(bench: Bench) -> None:
    """status_ok has model, messages_count, session_id and active, which is false when idle."""
    worker = await Worker.start(bench)
    opened = await worker.open()
    now = await worker.alive("how")
    fields(now, model=str, messages_count=int, session_id=str, active=bool)
    equal(now["active"], False, "active")
    equal(now["session_id"], opened["session_id"], "session_id")


@check("heddle.shutdown.answered", "shutdown_ok")
async def shutdown(bench: Bench) -> None:
    """shutdown is answered with shutdown_ok, the last message; the exit code is 0."""
    worker = await Worker.ready(bench)
    await worker.ask({"type": "shutdown", "id": "bye"}, "shutdown_ok")
    after = await worker.subject.rest()
    expect(not after, f"this follows shutdown_ok: {after[:1]}")
    equal(await worker.subject.exit_code(), 0, "the exit code")


@check("heddle.shutdown.before_init", "shutdown", level="should")
async def shutdown_early(bench: Bench) -> None:
    """shutdown is taken before init, too."""
    worker = await Worker.start(bench)
    await worker.ask({"type": "shutdown", "id": "bye"}, "shutdown_ok")
    equal(await worker.subject.exit_code(), 0, "the exit code")
