"""What a runtime tells, as facts of the run that observes it."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from batten.contract import facts
from batten.control.coordination.records import Keeping, Written, told_call, write_payload
from batten.control.observer.contract import Said, SessionSnapshot, StreamError
from batten.protocols.macp.json_values import object_of
from batten.protocols.macp.payloads import decode_payload, text_of
from batten.protocols.macp.redaction import redact

_LARGEST_DETAIL = 48 * 1024
"""Bytes of a payload's readable form; only short texts are kept of a larger one."""
_LONGEST_TEXT = 4000
_LONGEST_NAME = 2048
"""Characters of an id or a name. Runtimes allow far fewer; a fact must fit its envelope."""
_LARGEST_LIST = 64 * 1024
"""Bytes of a list of names."""


def snapshot_fact(told: SessionSnapshot, *, state: str = "") -> facts.MacpFrameObserved:
    """A session as it was told; `state` in place of its own."""
    return facts.MacpFrameObserved(
        kind="session_snapshot",
        session_id=told.session_id,
        detail={
            "state": f"SESSION_STATE_{state or told.state}",
            "modeName": told.mode[:_LONGEST_NAME],
            "modeVersion": told.mode_version[:_LONGEST_NAME],
            "configurationVersion": told.configuration_version[:_LONGEST_NAME],
            "policyVersion": told.policy_version[:_LONGEST_NAME],
            "initiator": told.initiator[:_LONGEST_NAME],
            "participants": _fitting(told.participants),
            "startedAtUnixMs": told.started_at_unix_ms,
            "expiresAtUnixMs": told.expires_at_unix_ms,
            **({"contextId": told.context_id[:_LONGEST_NAME]} if told.context_id else {}),
            **({"extensionKeys": _fitting(told.extension_keys)} if told.extension_keys else {}),
        },
    )


def _fitting(names: Sequence[str]) -> list[str]:
    """As many of the names as a fact has room for."""
    kept, size = [name[:_LONGEST_NAME] for name in names], 0
    for count, name in enumerate(kept):
        size += len(msgspec.json.encode(name)) + 1
        if size > _LARGEST_LIST:
            return kept[:count]
    return kept


def status_fact(session_id: str, status: str, detail: str = "") -> facts.MacpFrameObserved:
    """The observer lost the session's stream, or has it again."""
    told = {"status": status}
    if detail:
        told["detail"] = detail[:_LONGEST_TEXT]
    return facts.MacpFrameObserved(kind="stream_status", session_id=session_id, detail=told)


def write_error(told: StreamError, session_id: str, keeping: Keeping) -> Written:
    detail: dict[str, Any] = {
        "code": told.code[:_LONGEST_NAME],
        "message": keeping.redactor.text(told.message)[:_LONGEST_TEXT],
        "messageId": told.message_id[:_LONGEST_NAME],
    }
    if told.details:
        detail["details"] = keeping.redactor.text(told.details)[:_LONGEST_TEXT]
    fact = facts.MacpFrameObserved(
        kind="stream_error",
        session_id=session_id,
        detail=detail,
        message_id=told.message_id[:_LONGEST_NAME] or UNSET,
    )
    return Written([fact], [])


def write_said(
    said: Said, run_id: str, session_id: str, ordinal: int, hidden: list[str], keeping: Keeping
) -> Written:
    """The facts of a message; `ordinal` is 0 for a signal. Its bytes are sealed if they hold a
    secret, or what the patterns in `hidden` find.
    """
    said = replace(
        said,
        mode=said.mode[:_LONGEST_NAME],
        message_id=said.message_id[:_LONGEST_NAME],
        message_type=said.message_type[:_LONGEST_NAME],
        sender=said.sender[:_LONGEST_NAME],
    )
    detail, has_secret = _readable(said, hidden, keeping)
    written = Written([], [])
    places = write_payload(
        said.message_type, said.payload, run_id, keeping, written, has_secret=has_secret
    )
    if "payload" not in places:
        detail |= told_call(said.mode, said.message_type, said.payload, keeping.redactor)
    written.facts.append(
        facts.MacpFrameObserved(
            kind="envelope",
            session_id=session_id,
            detail=detail,
            ordinal=ordinal or UNSET,
            mode=said.mode,
            message_id=said.message_id,
            message_type=said.message_type,
            sender=said.sender,
            timestamp_unix_ms=said.timestamp_unix_ms,
            **places,
        )
    )
    return written


def cancel_of(said: Said, keeping: Keeping) -> tuple[str, str]:
    """Who cancelled the session, and why, by its SessionCancel."""
    fields = object_of(decode_payload(said.mode, said.message_type, said.payload).value) or {}
    found = [fields.get(name) for name in ("cancelledBy", "reason")]
    by, reason = (one if isinstance(one, str) else "" for one in found)
    return by[:_LONGEST_NAME], keeping.redactor.authored.text(reason)[:_LONGEST_TEXT]


def _readable(said: Said, hidden: list[str], keeping: Keeping) -> tuple[dict[str, Any], bool]:
    """The payload for people, without secrets, and whether it holds any."""
    plain = object_of(decode_payload(said.mode, said.message_type, said.payload).value) or {}
    redactor = keeping.redactor.authored
    clean, paths = redactor.value(plain)
    masked: dict[str, Any] = redact(clean, hidden)
    has_secret = bool(paths) or masked != clean
    if redactor.contains(said.payload.decode("utf-8", "replace")) and not paths:
        # It is in a field of bytes, whose readable form is base64.
        has_secret = True
        masked = {name: field for name, field in masked.items() if text_of(field) is None}
    if len(msgspec.json.encode(masked)) > _LARGEST_DETAIL:
        masked = {
            name: field[:_LONGEST_TEXT] if isinstance(field, str) else field
            for name, field in masked.items()
            if isinstance(field, str | bool | int | float)
        }
    return masked, has_secret
