"""Additions of later minor versions, for clients and servers that have them."""

from batten.conformance.bench import Bench
from batten.conformance.check import Json, NotOffered, check, equal, expect, fields, part
from batten.conformance.heddle.worker import TOOLS, Worker, events, init, succeeded
from batten.conformance.script import Say

_SECTION = "Compatibility changelog"
_ANSWER = ((Say("That is all."),),)


async def _newest(bench: Bench) -> tuple[Worker, Json]:
    """A worker that speaks 0.5 or above with us, and its greeting."""
    worker = await Worker.start(bench)
    greeted = await worker.ask(init(version="0.5.0"), "init_ok")
    spoken = str(greeted.get("protocol_version"))
    numbers = [int(one) if one.isdigit() else 0 for one in spoken.split(".")[:2]]
    if numbers < [0, 5]:
        raise NotOffered(f"the server speaks {spoken}")
    return worker, greeted


@check("heddle.later.capabilities", _SECTION)
async def capabilities(bench: Bench) -> None:
    """Since 0.5 init_ok names the enabled tools, sorted, and the profile of the session."""
    _, greeted = await _newest(bench)
    offer = part(greeted, "capabilities")
    fields(offer, enabled_tools=list)
    equal(offer["enabled_tools"], sorted(TOOLS), "capabilities.enabled_tools")
    profile = part(greeted, "profile")
    fields(profile, fingerprint=str, model=str)
    expect(profile["fingerprint"].startswith("sha256:"), f"{profile['fingerprint']!r}")


@check("heddle.later.turn_state", _SECTION, script=_ANSWER)
async def turn_state(bench: Bench) -> None:
    """Since 0.5 a send is queued, running and completed, the last right before its result."""
    worker, _ = await _newest(bench)
    heard = await worker.sent()
    succeeded(heard)
    payloads = events(heard)
    states = [one.get("state") for one in payloads if one["event"] == "turn_state"]
    equal(states, ["queued", "running", "completed"], "the states")
    equal([one["event"] for one in payloads[:2]], ["turn_state"] * 2, "the first two events")
    equal(payloads[-1]["event"], "turn_state", "the last event")


@Worker.check(
    "heddle.later.not_told", "Protocol Compatibility", greets=False, level="should", script=_ANSWER
)
async def not_told(worker: Worker) -> None:
    """A client of 0.2 gets nothing that later minors added."""
    greeted = await worker.open()
    added = {"capabilities", "profile", "routing"} & greeted.keys()
    expect(not added, f"init_ok has {sorted(added)}")
    heard = await worker.sent()
    succeeded(heard)
    kinds = {one["event"] for one in events(heard)} & {"turn_state", "routed_model"}
    expect(not kinds, f"these events were sent: {sorted(kinds)}")
