"""`batten keys`: makes, lists, rotates and revokes the API keys of the service."""

import os
import time
from argparse import Namespace
from datetime import timedelta

import msgspec

from batten.cli import current_directory
from batten.cli.amounts import local
from batten.cli.auditing import record
from batten.cli.parsing import UsageError
from batten.serve.http.keys import KeyStore, StoredKey
from batten.serve.output import put, say
from batten.wiring.home import batten_home, make_home

_OVERLAP = timedelta(hours=24)
_FLAGS = {"create": ("scope", "expires"), "rotate": ("expires", "overlap")}
"""Those that an action takes; the others take none of them."""


def manage_keys(options: Namespace) -> int:
    home = batten_home(os.environ, current_directory())
    _check(options)
    if options.action == "create":
        make_home(home)
    store = KeyStore(home)
    for one in store.damaged():
        say(f"batten: {one}")
    match options.action:
        case "list":
            return _list(store, as_json=options.json)
        case "revoke":
            return _revoke(store, options.name, as_json=options.json)
        case "rotate":
            return _rotate(store, options)
        case _:
            return _create(store, options)


def _check(options: Namespace) -> None:
    action: str = options.action
    for flag in ("scope", "expires", "overlap"):
        if getattr(options, flag) is not None and flag not in _FLAGS.get(action, ()):
            raise UsageError(f"`batten keys {action}` takes no --{flag}")
    if action == "list":
        if options.name is not None:
            raise UsageError("`batten keys list` takes no name")
    elif options.name is None:
        raise UsageError(f"name the key: batten keys {action} NAME")


def _create(store: KeyStore, options: Namespace) -> int:
    key, text = store.create(options.name, options.scope or "operator", options.expires or "")
    record("key.created", "key", key.id, name=key.name, scope=key.scope, **_end(key))
    if options.json:
        put(msgspec.json.encode({**_shown(store, key), "key": text}).decode())
        return 0
    say(
        f"batten: the key of {key.name} has the scope {key.scope}{_until(key)}; it is shown only"
        " now"
    )
    put(text)
    return 0


def _rotate(store: KeyStore, options: Namespace) -> int:
    overlap = _OVERLAP if options.overlap is None else options.overlap
    key, text, ended = store.rotate(options.name, overlap, options.expires or "")
    old = ",".join(one.id for one in ended)
    record("key.rotated", "key", key.id, name=key.name, scope=key.scope, old=old, **_end(key))
    if options.json:
        shown = [_shown(store, one) for one in ended]
        put(msgspec.json.encode({**_shown(store, key), "key": text, "old": shown}).decode())
        return 0
    for one in ended:
        say(f"batten: the old key {one.id} works until {local(one.expires_at)}")
    say(
        f"batten: the new key of {key.name} has the scope {key.scope}{_until(key)}; it is shown"
        " only now"
    )
    put(text)
    return 0


def _revoke(store: KeyStore, name: str, *, as_json: bool) -> int:
    for key in store.revoke(name):
        record("key.revoked", "key", key.id, name=key.name)
        if as_json:
            put(msgspec.json.encode(_shown(store, key)).decode())
        else:
            put(f"revoked the key {key.id} of {key.name}")
    return 0


def _list(store: KeyStore, *, as_json: bool) -> int:
    keys = store.all()
    if as_json:
        for key in keys:
            put(msgspec.json.encode(_shown(store, key)).decode())
        return 0
    if not keys:
        say("batten: there are no keys; batten keys create NAME --scope admin makes one")
        return 0
    width = max(len(key.name) for key in keys)
    for key in keys:
        used = store.last_used(key)
        last = f"last used {local(used)}" if used else "never used"
        put(
            f"{key.name:<{width}}  {key.scope:<8}  {key.id}  created {local(key.created_at)}"
            f"  {last}  {_state(key)}"
        )
    return 0


def _state(key: StoredKey) -> str:
    match key.state(time.time()):
        case "revoked":
            return f"revoked {local(key.revoked_at)}"
        case "expired":
            return f"expired {local(key.expires_at)}"
        case "valid":
            return f"valid{_until(key)}"


def _until(key: StoredKey) -> str:
    return f" until {local(key.expires_at)}" if key.expires_at else ""


def _end(key: StoredKey) -> dict[str, str]:
    return {"expires_at": key.expires_at} if key.expires_at else {}


def _shown(store: KeyStore, key: StoredKey) -> dict[str, str | None]:
    """A key as JSON, without its hash."""
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope,
        "created_at": key.created_at,
        "last_used_at": store.last_used(key) or None,
        "revoked_at": key.revoked_at or None,
        "expires_at": key.expires_at or None,
    }
