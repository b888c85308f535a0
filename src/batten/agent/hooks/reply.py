"""A handler's reply: exit code, HTTP status and JSON read into one value."""

from typing import Any, cast

import msgspec
from msgspec import Struct

from batten.contract.facts.hook import HookSaid
from batten.contract.surrogates import decode_lone

LONGEST_REASON = 8 * 1024
LONGEST_CONTEXT = 32 * 1024
LARGEST_ANSWER = 1024 * 1024
"""Bytes of a reply; a longer one is a failure."""

_DENIES = 2
_TAKES_TEXT = frozenset({"SessionStart", "UserPromptSubmit"})
"""Events for which plain text on standard output goes to the model."""
_SAID: dict[str, HookSaid] = {
    "allow": "allow",
    "approve": "allow",
    "deny": "deny",
    "block": "deny",
    "ask": "ask",
    "defer": "deny",
}
_DEFERRED = "deferred: nobody takes it up later here"


class HookReply(Struct, frozen=True, kw_only=True):
    """One handler's reply. With a `failure`, only the exit code counts besides."""

    decision: HookSaid = "none"
    reason: str = ""
    updated_input: dict[str, Any] | None = None
    context: str = ""
    system_message: str = ""
    stop: str | None = None
    """Why the run must end; None if it goes on."""
    halt: bool = False
    """Whether denying a permission ends the run."""
    failure: str = ""
    exit_code: int | None = None


class Nonsense(Exception):
    """A reply that cannot be read; the message says why."""


def of_command(event: str, exit_code: int, stdout: bytes, stderr: bytes) -> HookReply:
    """A command's reply. Its JSON may deny with any exit code, but approve only with 0."""
    text = stdout.decode("utf-8-sig", "replace").strip()
    said = _objection(event, text)
    if text.startswith("{"):
        try:
            said = of_reply(event, _decoded(text))
        except Nonsense as error:
            said = HookReply(failure=str(error))
    elif _objects(said):
        pass
    elif event in _TAKES_TEXT and exit_code == 0:
        said = HookReply(context=text[:LONGEST_CONTEXT])
    replace = msgspec.structs.replace
    if exit_code == _DENIES and not _objects(said):
        reason = stderr[:LONGEST_REASON].decode("utf-8", "replace").strip()
        if not reason and said.decision == "none":
            reason = said.reason
        return replace(said, failure="", decision="deny", reason=reason, exit_code=exit_code)
    if exit_code not in (0, _DENIES) and not _objects(said):
        last = stderr.decode("utf-8", "replace").strip()[-300:]
        return HookReply(
            failure=f"it ended with exit code {exit_code}" + (f": {last}" if last else ""),
            exit_code=exit_code,
        )
    return replace(said, exit_code=exit_code)


def _objection(event: str, text: str) -> HookReply:
    """What an object behind other words says against the call: a hook may log before it answers.
    Such an object gives no permission."""
    for start in {text.find("\n{"), text.rfind("\n{")} - {-1}:
        try:
            said = of_reply(event, _decoded(text[start:]))
        except Nonsense:
            continue
        if _objects(said):
            return said
    return HookReply()


def of_response(event: str, status: int, body: bytes) -> HookReply:
    """An HTTP reply: empty or a JSON object, with a success status."""
    if not 200 <= status < 300:
        return HookReply(failure=f"it answered with status {status}")
    text = body.decode("utf-8-sig", "replace").strip()
    if not text:
        return HookReply()
    try:
        return of_reply(event, _decoded(text))
    except Nonsense as error:
        return HookReply(failure=str(error))


def of_reply(event: str, reply: dict[str, Any]) -> HookReply:
    """A reply from its JSON object. Raises `Nonsense` for a field of the wrong type."""
    specific = _object(reply, "hookSpecificOutput")
    decision, reason = _decision(reply, specific)
    updated = _optional(specific, "updatedInput", dict)
    asked = specific.get("decision")
    halt = False
    if event == "PermissionRequest" and isinstance(asked, dict):
        answer = cast("dict[str, Any]", asked)
        decision = _said(answer.get("behavior"), "decision.behavior")
        reason = _reason(answer.get("behavior"), _text(answer, "message") or reason)
        updated = _optional(answer, "updatedInput", dict) or updated
        halt = answer.get("interrupt") is True
    stop: str | None = None
    if reply.get("continue") is False:
        stop = _text(reply, "stopReason") or reason or "a hook asked for the end of the run"
    context = _text(specific, "additionalContext") or _text(reply, "additionalContext")
    return HookReply(
        decision=decision,
        reason=reason[:LONGEST_REASON],
        updated_input=updated,
        context=context[:LONGEST_CONTEXT],
        system_message=_text(reply, "systemMessage")[:LONGEST_REASON],
        stop=None if stop is None else stop[:LONGEST_REASON],
        halt=halt,
    )


def _decision(reply: dict[str, Any], specific: dict[str, Any]) -> tuple[HookSaid, str]:
    """The decision and its reason. The nested form is newer and wins over the flat one."""
    nested = specific.get("permissionDecision")
    if nested is not None:
        said = _said(nested, "permissionDecision")
        reason = _text(specific, "permissionDecisionReason") or _text(reply, "reason")
        return said, _reason(nested, reason)
    flat = reply.get("decision")
    said = "none" if flat is None else _said(flat, "decision")
    return said, _reason(flat, _text(reply, "reason"))


def _reason(decided: object, given: str) -> str:
    """The reason; `defer` denies and says so, since a call cannot wait for a later answer."""
    if decided != "defer":
        return given
    return f"{_DEFERRED}: {given}" if given else _DEFERRED


def _objects(said: HookReply) -> bool:
    """Whether it denies, asks or stops."""
    return said.decision in ("deny", "ask") or said.stop is not None


def _decoded(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        found = decode_lone(text.encode())
        if found is None:
            raise Nonsense(f"its answer is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Nonsense("its answer is no JSON object")
    return cast("dict[str, Any]", found)


def _said(value: object, name: str) -> HookSaid:
    said = _SAID.get(value) if isinstance(value, str) else None
    if said is None:
        raise Nonsense(f"its {name} is {value!r}; it is one of {', '.join(_SAID)}"[:500])
    return said


def _object(reply: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = _optional(reply, name, dict)
    return {} if found is None else found


def _text(reply: dict[str, Any], name: str) -> str:
    found: str | None = _optional(reply, name, str)
    return found or ""


def _optional(reply: dict[str, Any], name: str, kind: type) -> Any:
    """A field of this type; None if it is absent or null."""
    found = reply.get(name)
    if found is not None and not isinstance(found, kind):
        raise Nonsense(f"its {name} is not of type {'object' if kind is dict else 'string'}")
    return found
