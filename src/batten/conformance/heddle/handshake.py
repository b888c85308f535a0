"""init, versions, status and shutdown: checks that need no model."""

from batten.conformance.bench import Bench
from batten.conformance.check import check, equal, expect, fields, part
from batten.conformance.heddle.worker import Worker, init, send, shown, status

_VERSIONS = "Protocol Compatibility"


@Worker.check("heddle.init.answered", "init_ok", greets=False)
async def answered(worker: Worker) -> None:
    """init is answered with init_ok: the same id, a session id and the server's version."""
    ok = await worker.ask(init("first request"), "init_ok")
    fields(ok, session_id=str, protocol_version=str)
    expect(bool(ok["session_id"]), "session_id is empty")
    expect("error" not in ok or ok["error"] is None, f"init_ok has an error: {shown(ok)}")


@Worker.check("heddle.init.version_optional", "init", greets=False)
async def version_optional(worker: Worker) -> None:
    """protocol_version may be left out of init."""
    ok = await worker.ask(init(version=None), "init_ok")
    expect(bool(ok.get("session_id")), f"no session was opened: {shown(ok)}")


@Worker.check("heddle.init.unknown_fields", _VERSIONS, greets=False)
async def unknown_fields(worker: Worker) -> None:
    """Unknown fields are ignored, in a request and in its config."""
    request = {**init(conformance_field={"a": 1}), "another_field": [1]}
    ok = await worker.ask(request, "init_ok")
    expect(bool(ok.get("session_id")), f"no session was opened: {shown(ok)}")


@Worker.check("heddle.init.config_required", "init", greets=False)
async def config_required(worker: Worker) -> None:
    """init without a config is refused with protocol_error, and the process goes on."""
    await worker.subject.say({"type": "init", "id": "i0"})
    refused = await worker.subject.hear("an error result")
    equal(refused.get("type"), "result", "type")
    equal(part(refused, "error").get("code"), "protocol_error", "error.code")
    await worker.open()


@Worker.check("heddle.init.again", "init", greets=False, level="should")
async def again(worker: Worker) -> None:
    """A second init opens a new session in place of the first."""
    first = await worker.open()
    second = await worker.ask(init("i2"), "init_ok")
    expect(bool(second.get("session_id")), "the second session has no id")
    expect(first["session_id"] != second["session_id"], "both sessions have the same id")
    now = await worker.alive()
    equal(now["session_id"], second["session_id"], "status_ok.session_id")


@Worker.check("heddle.version.major_refused", _VERSIONS, greets=False)
async def major_refused(worker: Worker) -> None:
    """Another MAJOR is refused: init_ok with an empty session_id and protocol_version_mismatch."""
    refused = await worker.ask(init(version="9.0.0"), "init_ok")
    equal(refused.get("session_id"), "", "session_id")
    fields(refused, error=dict, protocol_version=str)
    fields(refused["error"], code=str, message=str, retryable=bool)
    equal(refused["error"]["code"], "protocol_version_mismatch", "error.code")
    equal(refused["error"]["retryable"], False, "error.retryable")


@Worker.check("heddle.version.refused_exit", _VERSIONS, greets=False, level="should")
async def refused_exit(worker: Worker) -> None:
    """After another MAJOR is refused the process leaves with 1."""
    await worker.ask(init(version="9.0.0"), "init_ok")
    equal(await worker.subject.exit_code(), 1, "the exit code")


@Worker.check("heddle.version.same_major", _VERSIONS, greets=False)
async def same_major(worker: Worker) -> None:
    """Equal MAJOR versions are compatible, with any MINOR and PATCH of a newer client."""
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


@Worker.check("heddle.order.init_first", "init", greets=False)
async def init_first(worker: Worker) -> None:
    """Before init, send and status are refused with protocol_error and their own ids."""
    await worker.subject.say(send("early"))
    await worker.refused("early")
    await worker.subject.say(status("early status"))
    await worker.refused("early status")
    await worker.open()


@Worker.check("heddle.status.answered", "status_ok", greets=False)
async def status_answered(worker: Worker) -> None:
    """status_ok has model, messages_count, session_id and active, which is false when idle."""
    opened = await worker.open()
    now = await worker.alive("how")
    fields(now, model=str, messages_count=int, session_id=str, active=bool)
    equal(now["active"], False, "active")
    equal(now["session_id"], opened["session_id"], "session_id")


@Worker.check("heddle.shutdown.answered", "shutdown_ok")
async def shutdown(worker: Worker) -> None:
    """shutdown is answered with shutdown_ok, the last message; the exit code is 0."""
    await worker.ask({"type": "shutdown", "id": "bye"}, "shutdown_ok")
    after = await worker.subject.rest()
    expect(not after, f"this follows shutdown_ok: {after[:1]}")
    equal(await worker.subject.exit_code(), 0, "the exit code")


@Worker.check("heddle.shutdown.before_init", "shutdown", greets=False, level="should")
async def shutdown_early(worker: Worker) -> None:
    """shutdown is taken before init, too."""
    await worker.ask({"type": "shutdown", "id": "bye"}, "shutdown_ok")
    equal(await worker.subject.exit_code(), 0, "the exit code")
