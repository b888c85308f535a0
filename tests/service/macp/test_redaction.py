"""`MACP_REDACT_PATTERNS`: nothing that the control plane serves holds a text that matches."""

from pathlib import Path
from typing import Any

import msgspec

from tests.coordination.published import sdk
from tests.service.macp.plane import COMMIT, Plane, as_, planes

SECRET = "123-45-6789"
PATTERNS = r"[unclosed,\\b\\d{3}-\\d{2}-\\d{4}\\b"


def leak(client: Any) -> str:
    """A decision and a handoff's bytes that hold the text wherever a message can."""
    session = sdk.DecisionSession(client)
    session.start(intent=f"about {SECRET}", participants=["lead", "ann"], ttl_ms=60_000)
    session.propose("p1", f"ship {SECRET}", rationale=f"because of {SECRET}")
    call = {"promptTokens": 3, "completionTokens": 1, "prompt": SECRET, "response": f"<{SECRET}>"}
    client.send_signal(
        signal_type="llm.call.completed",
        data=msgspec.json.encode({"tokenUsage": {"promptTokens": 1}, **call}),
        correlation_session_id=session.session_id,
        **as_("ann"),
    )
    client.send_signal(
        signal_type="raw.bytes",
        data=b"\xff\x00 " + SECRET.encode() + b" \xfe",
        correlation_session_id=session.session_id,
    )
    session.vote("p1", "APPROVE", reason=f"{SECRET} agrees", **as_("ann"))
    session.commit(action="decision.selected", **{**COMMIT, "reason": SECRET})
    session_id: str = session.session_id
    return session_id


async def test_no_copy_of_a_redacted_text_is_in_any_event_raw_row_or_state(tmp_path: Path) -> None:
    async with planes(tmp_path, environ={"MACP_REDACT_PATTERNS": PATTERNS}) as plane:
        run = await plane.run_of(await plane.speak(leak))
        await _check(plane, run)


async def _check(plane: Plane, run: str) -> None:
    paths = ("", "/state", "/events", "/export?includeRaw=true", "/messages", "/artifacts")
    more = ("/export?format=jsonl&includeRaw=true", "/replay/state?seq=9", "/metrics", "/traces")
    bodies = [(await plane.service.request("GET", run + path)).body for path in (*paths, *more)]
    frames = await plane.frames(f"{run}/stream?afterSeq=0")
    bodies.append("\n".join(frame.data for frame in frames).encode())
    for path, body in zip((*paths, *more, "/stream"), bodies, strict=True):
        for spelled in _spellings():
            assert spelled not in body, (path, spelled)
    state = await plane.get(f"{run}/state")
    (call,) = state["llm"]["calls"]
    assert (call["participantId"], call["totalTokens"]) == ("ann", 4)
    event = (await plane.get(f"{run}/events?type=llm.call.completed"))["data"][0]
    told = event["data"]["decodedPayload"]
    assert (told["prompt"], told["response"]) == ("[REDACTED]", "<[REDACTED]>")
    assert state["decision"]["current"]["prompt"] == "because of [REDACTED]"


def _spellings() -> list[bytes]:
    """The text as it is, and its inner part in base64 at each of the three places it can have."""
    from base64 import b64encode

    coded = [b64encode(b"x" * shift + SECRET.encode())[4:12] for shift in range(3)]
    return [SECRET.encode(), *coded]
