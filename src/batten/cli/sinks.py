"""`batten sinks` and `batten smoke`: looks at receivers of what happens, and tries them."""

import asyncio
import os
import sys
from argparse import Namespace
from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from batten.cli import current_directory
from batten.cli.amounts import local
from batten.cli.auditing import record
from batten.cli.inspection import open_journal
from batten.cli.parsing import UsageError
from batten.contract.errors import BattenError, NotFound
from batten.serve.output import put, say
from batten.sinks.store import Entry, SinkRow, SinkStore, Status
from batten.wiring.home import batten_home

_LISTED: dict[str, Status | None] = {"dead": "dead", "log": None}


def manage_sinks(options: Namespace) -> int:
    home = batten_home(os.environ, current_directory())
    if options.action == "run":
        return _run(home, options)
    if options.leave_with_stdin or options.allow:
        flag = "--allow" if options.allow else "--leave-with-stdin"
        raise UsageError(f"{flag} belongs to `batten sinks run`")
    if not SinkStore.exists(home):
        if options.action in ("list", "dead", "log"):
            say("batten: nothing was told to anybody from this home; see docs/sinks.md")
            return 0
        raise NotFound("nothing was told to anybody from this home: there are no messages")
    store = SinkStore.open(home)
    try:
        if options.action == "list":
            if options.names:
                raise UsageError("`batten sinks list` shows all sinks and takes no name")
            return asyncio.run(_list(store, as_json=options.json))
        if options.action in _LISTED:
            return _entries(store, options)
        return _change(store, options)
    finally:
        store.close()


def _run(home: str, options: Namespace) -> int:
    from batten.redact.redactor import Redactor
    from batten.serve.http.logs import log_to_stderr
    from batten.sinks.process import read_until_stopped, sink_settings

    if options.names:
        raise UsageError("`batten sinks run` reads for all sinks and takes no name")
    environ = dict(os.environ)
    settings = sink_settings(home, environ, current_directory(), options.settings)
    settings = replace(settings, allow=(*settings.allow, *options.allow))
    log = log_to_stderr(Redactor.from_environment(environ).text)
    try:
        pipe = sys.stdin.fileno() if options.leave_with_stdin else None
        read_until_stopped(home, environ, settings, pipe, options.since)
    finally:
        log.flush()
    return 0


async def _list(store: SinkStore, *, as_json: bool) -> int:
    journal = open_journal(read_only=True)
    end = await journal.position()
    for row in store.sinks():
        if as_json:
            put(msgspec.json.encode(_shown(row, end)).decode())
            continue
        state = "read now" if row.is_read else "not read now"
        put(
            f"{row.name}  {row.delivered} delivered, {end - row.position} events behind,"
            f" {row.pending} waiting, {row.dead} dead  {state}"
        )
        if row.problem:
            put(f"  {row.problem}")
    return 0


def _shown(row: SinkRow, end: int) -> dict[str, Any]:
    return {
        "name": row.name,
        "position": row.position,
        "lag": end - row.position,
        "delivered": row.delivered,
        "pending": row.pending,
        "dead": row.dead,
        "problem": row.problem or None,
        "is_read": row.is_read,
    }


def _entries(store: SinkStore, options: Namespace) -> int:
    if len(options.names) > 1:
        raise UsageError(f"name one sink: batten sinks {options.action} NAME")
    name = options.names[0] if options.names else None
    if name is not None and store.sink(name) is None:
        raise NotFound(f"there is no sink {name}; batten sinks list shows them")
    for entry in store.entries(name, _LISTED[options.action], limit=options.limit):
        if options.json:
            put(msgspec.json.encode(_told(entry)).decode())
        else:
            one = entry.message
            put(
                f"{entry.id}  {entry.sink}  {one.type}  {one.run_id}  {local(one.occurred_at)}"
                f"  {entry.status}, {entry.attempts} attempts"
            )
            if entry.problem:
                put(f"  {entry.problem}")
    return 0


def _told(entry: Entry) -> dict[str, Any]:
    one = entry.message
    return {
        "id": entry.id,
        "sink": entry.sink,
        "message_id": one.message_id,
        "type": one.type,
        "run_id": one.run_id,
        "occurred_at": one.occurred_at,
        "status": entry.status,
        "attempts": entry.attempts,
        "answer": entry.answer,
        "problem": entry.problem or None,
        "delivered_at": entry.told_at or None,
    }


def _change(store: SinkStore, options: Namespace) -> int:
    """Replay or drop messages by their numbers, or all dead letters of a sink."""
    if not options.names:
        raise UsageError(f"name messages or a sink: batten sinks {options.action} ID|NAME ...")
    found: set[int] = set()
    for name in options.names:
        if name.isdecimal():
            found.add(int(name[:20]))
        elif store.sink(name) is None:
            raise NotFound(f"there is no sink {name}; batten sinks list shows them")
        else:
            found.update(store.dead(name))
    # Oldest first: their order is the order in which they are told.
    numbers = sorted(found)
    owners = [store.entry(number).sink for number in numbers]
    done = store.replay(numbers) if options.action == "replay" else store.drop(numbers)
    for sink, count in Counter(owners).items():
        kind, _, name = sink.partition(":")
        place = (kind, name) if kind == "webhook" else ("sink", sink)
        action = "replayed" if options.action == "replay" else "dropped"
        record(f"{place[0]}.{action}", *place, messages=count)
    put(f"{done} {'to be told again' if options.action == 'replay' else 'dropped'}")
    return 0


async def smoke(options: Namespace) -> int:
    if options.what == "publisher-fixture":
        from batten.sinks.bus.fixture import publisher_fixture

        put(msgspec.json.format(msgspec.json.encode(publisher_fixture()), indent=2).decode())
        return 0
    from batten.sinks.bus.smoke import smoke_event_bus
    from batten.sinks.configuration import bus_environment
    from batten.sinks.process import sink_settings

    cwd = current_directory()
    home = batten_home(os.environ, cwd)
    settings = sink_settings(home, os.environ, cwd)
    environ = bus_environment(settings.event_bus, os.environ)
    try:
        smoked = await smoke_event_bus(environ, cwd, options.url or "")
    except BattenError as error:
        say(f"batten: {error}")
        return 1
    if options.json:
        put(msgspec.json.encode(smoked).decode())
    else:
        put(f"{smoked.id} is message {smoked.sequence} of the stream {smoked.stream}")
    return 0
