"""Runs a program and spoils one thing of what it says or hears, so that a check must fail.

    python spoiler.py FAULT COMMAND [ARGUMENT ...]

Uses nothing of ours: it stands between two processes and must not be wrong the way they are.
"""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

Frame = dict[str, Any]
Line = Frame | bytes
Spoil = Callable[[Frame], Sequence[Line]]
Pick = Callable[[Frame], bool]
"""Whether this is a message to spoil."""

_RARE_MS = itertools.count(5000, 5000)
"""Durations of heartbeats that come every 5 s, whatever the load does to the true ones."""


def kind(*names: str, **fields: Any) -> Pick:
    """Messages of these types; for an event, the name inside counts."""

    def picked(frame: Frame) -> bool:
        inner: Any = frame.get("event")
        name = inner["event"] if is_event(frame) else frame.get("type")
        return name in names and fields.items() <= frame.items()

    return picked


def update(*names: str) -> Pick:
    """ACP's updates of these kinds."""

    def picked(frame: Frame) -> bool:
        told = frame.get("params", {}).get("update", {})
        return told.get("sessionUpdate") in names

    return picked


def asks(*methods: str) -> Pick:
    return lambda frame: frame.get("method") in methods


def answers(key: str) -> Pick:
    """Answers whose result has this key."""
    return lambda frame: key in (frame.get("result") or {})


def drop(pick: Pick) -> Spoil:
    return lambda frame: [] if pick(frame) else [frame]


def twice(pick: Pick) -> Spoil:
    return lambda frame: [frame, frame] if pick(frame) else [frame]


def change(pick: Pick, **fields: Any) -> Spoil:
    """Other values for fields; a callable is given the old value. `a__b` is b inside of a."""

    def spoiled(frame: Frame) -> Sequence[Line]:
        if pick(frame):
            for path, value in fields.items():
                *way, last = path.split("__")
                holder = frame
                for name in way:
                    holder = holder[name]
                holder[last] = value(holder.get(last)) if callable(value) else value
        return [frame]

    return spoiled


def new(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A value that is made from the old one."""
    return make


def before(pick: Pick, line: bytes) -> Spoil:
    return lambda frame: [line, frame] if pick(frame) else [frame]


def instead(pick: Pick, make: Callable[[Frame], bytes]) -> Spoil:
    return lambda frame: [make(frame)] if pick(frame) else [frame]


def last(pick: Pick, behind: Pick) -> Spoil:
    """What is picked is held back until after the next message that is `behind`."""
    held: list[Line] = []

    def spoiled(frame: Frame) -> Sequence[Line]:
        if pick(frame):
            held.append(frame)
            return []
        if held and behind(frame):
            return [frame, *(held.pop() for _ in held[:])]
        return [frame]

    return spoiled


def obliging(frame: Frame) -> Sequence[Line]:
    """Whatever is refused is carried out."""
    if "error" not in frame:
        return [frame]
    return [{"jsonrpc": "2.0", "id": frame["id"], "result": {}}]


def nothing(frame: Frame) -> Sequence[Line]:
    return [frame]


def die(pick: Pick) -> Spoil:
    def spoiled(frame: Frame) -> Sequence[Line]:
        if pick(frame):
            os._exit(9)
        return [frame]

    return spoiled


def torn(frame: Frame) -> bytes:
    return json.dumps(frame).encode()[:-3]


def is_event(frame: Frame) -> bool:
    return frame.get("type") == "event"


def is_any(frame: Frame) -> bool:
    return True


def feigned() -> Spoil:
    """What is to be cancelled is said to be, and goes on."""
    turns: list[Any] = []

    def spoiled(frame: Frame) -> Sequence[Line]:
        if frame.get("method") == "session/prompt":
            turns.append(frame["id"])
        elif frame.get("method") == "session/cancel":
            said = {"jsonrpc": "2.0", "id": turns[-1], "result": {"stopReason": "cancelled"}}
            write(1, json.dumps(said).encode() + b"\n")
            return []
        elif frame.get("type") == "cancel":
            error = {"code": "cancelled", "message": "cancelled", "retryable": False}
            said = {"type": "result", "id": frame["target_id"], "status": "error", "error": error}
            said |= {"tool_calls_made": [], "iterations": 1}
            write(1, json.dumps(said).encode() + b"\n")
            return []
        return [frame]

    return spoiled


STRAY = b"Loading plugins..."

OUTPUT: dict[str, Spoil] = {
    # Heddle
    "skipped number": change(is_event, event_seq=new(lambda number: number + (number > 0))),
    "another id": change(kind("status_ok"), id="other"),
    "two results": twice(kind("result")),
    "stray line": before(kind("result"), STRAY),
    "garbage unanswered": drop(kind("result", id="unknown")),
    "tool without end": drop(kind("tool_end")),
    "another send": change(is_event, send_id="other"),
    "lost text": drop(kind("content_delta")),
    "late event": last(kind("usage"), kind("result")),
    "silent": drop(is_any),
    "dies": die(kind("status_ok")),
    "torn result": instead(kind("result"), torn),
    "last usage only": change(
        kind("result"), usage=new(lambda told: told and dict.fromkeys(told, 1))
    ),
    "any major": change(
        kind("init_ok"), session_id=new(lambda told: told or "made-up"), error=None
    ),
    "no heartbeats": drop(kind("heartbeat")),
    "hasty farewell": last(kind("result"), kind("shutdown_ok")),
    "lost task": change(is_event, task_id=None),
    "nameless": change(kind("result", iterations=0), id="nobody"),
    "no latencies": change(kind("result"), total_latency_ms=None),
    "rare heartbeats": change(kind("heartbeat"), event__duration_ms=new(lambda _: next(_RARE_MS))),
    "one code more": change(
        kind("result"), error=new(lambda told: told and {**told, "code": "max_iterations"})
    ),
    "ends the other": change(kind("result", id="unknown"), id="s"),
    "repeats the version": change(
        kind("init_ok"), protocol_version=new(lambda _: "0.99.7-rc.1+build.5")
    ),
    # Maestro
    "another version": change(kind("hello_ok"), protocol_version="2020-01-01"),
    "two ends": twice(kind("response_end")),
    "no tool start": drop(kind("tool_start")),
    "doubled chunk": twice(kind("response_chunk")),
    "resolved twice": twice(kind("server_request_resolved")),
    "no errors": drop(kind("error")),
    "stray message": before(kind("response_end"), STRAY),
    "chatty": before(kind("hello_ok"), b'{"type":"status","message":"Hello"}'),
    "wrong total": change(kind("response_end"), usage__total_tokens=1),
    "fatal": change(kind("error"), fatal=True),
    "swapped streams": change(kind("utility_command_output"), stream="stdout"),
    "exited twice": twice(kind("utility_command_exited")),
    "dead mid-way": die(kind("response_chunk")),
    "mild": change(kind("error"), fatal=False),
    "no session_info": drop(kind("session_info")),
    "another resolution": change(kind("server_request_resolved"), resolution="approved"),
    # ACP
    "version 2": change(answers("protocolVersion"), result__protocolVersion=2),
    "ids as texts": change(lambda frame: "error" in frame, id=str),
    "obliging": obliging,
    "markers as booleans": change(
        answers("agentCapabilities"),
        result__agentCapabilities__sessionCapabilities={"list": True},
    ),
    "forgotten options": change(
        lambda frame: answers("configOptions")(frame) and not answers("sessionId")(frame),
        result__configOptions=[],
    ),
    "another code": change(lambda frame: "error" in frame, error__code=-32000),
    "late update": last(update("agent_message_chunk"), answers("stopReason")),
    "doubled update": twice(update("agent_message_chunk")),
    "always end_turn": change(answers("stopReason"), result__stopReason="end_turn"),
    "untold call": drop(update("tool_call")),
    "strange option": change(
        asks("session/request_permission"),
        params__options=new(lambda told: [{**one, "kind": "maybe"} for one in told]),
    ),
    "answered twice": twice(answers("stopReason")),
    "one session": change(answers("sessionId"), result__sessionId="the-one"),
    "stray answer": before(answers("stopReason"), STRAY),
    "no envelope": change(answers("stopReason"), jsonrpc="1.0"),
    "relative path": change(asks("fs/read_text_file"), params__path="notes.md"),
    "strange update": change(update("agent_message_chunk"), params__update__sessionUpdate="chat"),
}  # fmt: skip

INPUT: dict[str, Spoil] = {
    "deaf to cancel": drop(kind("cancel")),
    "deaf to interrupt": drop(kind("interrupt")),
    "deaf to session/cancel": drop(asks("session/cancel")),
    "feigned": feigned(),
    "viewers rule": change(kind("hello"), role="controller"),
    "no approval": change(kind("init"), approval_mode="auto"),
    "deaf to init": drop(kind("init")),
    "tireless": change(kind("init"), config__max_iterations=20),
    "all tools": change(kind("init"), config__tools=["read_file", "glob", "bash"]),
    "no system prompt": change(kind("init"), config__system_prompt=""),
    "lost attachments": change(kind("prompt"), attachments=[]),
    "empty answers": change(kind("server_request_response"), content=[]),
    "watches here": change(kind("utility_file_watch_start"), root_dir="."),
    "reads the notes": change(kind("utility_file_read"), path="notes.md"),
    "forgetful fork": change(asks("session/fork"), method="session/new"),
    "no servers": change(asks("session/new"), params__mcpServers=[]),
}

LEAVING = {"another exit code": 3, "never leaves": 0}


def main() -> int:
    fault, command = sys.argv[1], sys.argv[2:]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    heard = threading.Thread(
        target=forward, args=(0, child.stdin, INPUT.get(fault, nothing)), daemon=True
    )
    heard.start()
    spoil = OUTPUT.get(fault, nothing)
    for line in child.stdout:
        write(1, spoiled(line, spoil))
    code = child.wait()
    if fault == "never leaves":
        time.sleep(3600)
    return LEAVING.get(fault, code)


def forward(source: int, target: Any, spoil: Spoil) -> None:
    with os.fdopen(source, "rb") as lines, target:
        for line in lines:
            target.write(spoiled(line, spoil))
            target.flush()


def spoiled(line: bytes, spoil: Spoil) -> bytes:
    try:
        frame: Any = json.loads(line) if len(line) < 1_000_000 else None
    except (ValueError, RecursionError):
        frame = None
    if type(frame) is not dict:
        return line
    said = spoil(cast(Frame, frame))
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in said]
    return b"".join(one + b"\n" for one in lines)


def write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


if __name__ == "__main__":
    sys.exit(main())
