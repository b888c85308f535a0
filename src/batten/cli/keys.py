"""`batten keys`: makes, lists and revokes the API keys of the service."""

import os
from argparse import Namespace

import msgspec

from batten.cli import current_directory
from batten.cli.amounts import local
from batten.cli.auditing import record
from batten.cli.parsing import UsageError
from batten.serve.http.keys import KeyStore, StoredKey
from batten.serve.output import put, say
from batten.wiring.home import batten_home


def manage_keys(options: Namespace) -> int:
    store = KeyStore(batten_home(os.environ, current_directory()))
    if options.action == "list":
        if options.name is not None or options.scope is not None:
            raise UsageError("`batten keys list` takes no name and no scope")
        return _list(store, as_json=options.json)
    if options.name is None:
        raise UsageError(f"name the key: batten keys {options.action} NAME")
    if options.action == "revoke":
        if options.scope is not None:
            raise UsageError("`batten keys revoke` takes no scope")
        return _revoke(store, options.name, as_json=options.json)
    return _create(store, options)


def _create(store: KeyStore, options: Namespace) -> int:
    key, text = store.create(options.name, options.scope or "operator")
    record("key.created", "key", key.id, name=key.name, scope=key.scope)
    if options.json:
        put(msgspec.json.encode({**_shown(store, key), "key": text}).decode())
        return 0
    say(f"batten: the key of {key.name} has the scope {key.scope}; it is shown only now")
    put(text)
    return 0


def _revoke(store: KeyStore, name: str, *, as_json: bool) -> int:
    key = store.revoke(name)
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
        state = f"revoked {local(key.revoked_at)}" if key.revoked_at else "valid"
        last = f"last used {local(used)}" if used else "never used"
        put(
            f"{key.name:<{width}}  {key.scope:<8}  {key.id}  created {local(key.created_at)}"
            f"  {last}  {state}"
        )
    return 0


def _shown(store: KeyStore, key: StoredKey) -> dict[str, str | None]:
    """A key as JSON, without its hash."""
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope,
        "created_at": key.created_at,
        "last_used_at": store.last_used(key) or None,
        "revoked_at": key.revoked_at or None,
    }
