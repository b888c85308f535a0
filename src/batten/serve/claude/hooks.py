"""Calls the client's hook callbacks through the control protocol."""

from collections.abc import Callable
from typing import Any, get_args

from batten.agent.hooks.dispatch import ClientHook, Reply
from batten.agent.hooks.hooks import DENIERS
from batten.contract.errors import CallerError, PeerError
from batten.protocols.claude.control import HookMatcher
from batten.protocols.claude.frames import session_uuid
from batten.serve.claude.control_channel import ControlChannel
from batten.settings.contract import RESERVED_EVENTS, HookEvent, OnFailure

_DEFAULT_SECONDS = 60.0
_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
_OURS = frozenset({"hookEventName", "tool", "fact", "turn_index", "run_id"})
"""Payload fields that are sent only to our own hooks."""


def client_hooks(
    channel: ControlChannel, declared: dict[str, tuple[HookMatcher, ...]], mode: Callable[[], str]
) -> list[ClientHook]:
    """A hook for each callback that a client declared; raises `CallerError` for unknown events.

    Reserved events, which nothing fires yet, are accepted. `mode` returns the client's name of the
    permission mode.
    """
    unknown = sorted(declared.keys() - set(_EVENTS) - RESERVED_EVENTS)
    if unknown:
        raise CallerError(f"no hook is told of {unknown[0]!r}; there are: {', '.join(_EVENTS)}")
    return [
        _hook(channel, event, matcher, callback_id, mode)
        for event in _EVENTS
        for matcher in declared.get(event, ())
        for callback_id in matcher.hook_callback_ids
    ]


def _hook(
    channel: ControlChannel,
    event: HookEvent,
    matcher: HookMatcher,
    callback_id: str,
    mode: Callable[[], str],
) -> ClientHook:
    # Any value but `continue` makes a failure block; no value does not.
    on_failure: OnFailure = "allow" if matcher.on_failure in (None, "continue") else "deny"
    return ClientHook(
        event=event,
        callback_id=callback_id,
        call=_reply(channel, event, callback_id, mode),
        matcher=matcher.matcher or "*",
        timeout_s=matcher.timeout or _DEFAULT_SECONDS,
        on_failure=on_failure,
    )


def _reply(
    channel: ControlChannel, event: HookEvent, callback_id: str, mode: Callable[[], str]
) -> Reply:
    """Calls the client. A hook that may deny and cannot be called counts as a denial."""

    async def call(payload: dict[str, Any], tool_call_id: str | None) -> dict[str, Any]:
        fields = {key: value for key, value in payload.items() if key not in _OURS}
        fields["session_id"] = session_uuid(str(payload["session_id"]))
        fields["permission_mode"] = mode()
        try:
            answered = await channel.ask(
                "hook_callback", callback_id=callback_id, input=fields, tool_use_id=tool_call_id
            )
        except Exception as error:
            if event not in DENIERS:
                raise
            return {"decision": "block", "reason": f"its hook could not be asked: {error}"}
        if answered.error is not None:
            raise PeerError(answered.error)
        return answered.body

    return call
