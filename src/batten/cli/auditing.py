"""`batten audit`, and how commands record what they do."""

import os
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import msgspec
from msgspec import UNSET

from batten.cli import current_directory
from batten.cli.amounts import local
from batten.cli.inspection import open_journal
from batten.cli.parsing import UsageError
from batten.contract.errors import BattenError, JournalError, StoreFull
from batten.serve.output import put, say
from batten.sinks.audit.log import AuditLog, AuditQuery
from batten.sinks.contract import Feed
from batten.wiring.home import batten_home


async def print_audit(options: Namespace) -> int:
    from batten.serve.http.validation import instant

    try:
        after = instant("--after", options.after or UNSET, is_down=True)
        before = instant("--before", options.before or UNSET)
    except BattenError as error:
        raise UsageError(str(error)) from None
    home = batten_home(os.environ, current_directory())
    log = AuditLog.open_overlaid(home)
    try:
        if os.path.exists(os.path.join(home, "journal.db")):
            with closing(open_journal(read_only=True)) as journal:
                await log.catch_up(journal)
        query = AuditQuery(
            actor=options.actor,
            action=options.action,
            resource=options.resource,
            resource_id=options.id,
            created_after=after,
            created_before=before,
            limit=options.limit,
        )
        entries, _ = log.find(query)
    finally:
        log.close()
    for one in entries:
        if options.json:
            put(msgspec.json.encode(one).decode())
        else:
            details = " ".join(f"{name}={value}" for name, value in one.details.items())
            what = f"{one.resource} {one.resource_id or ''}".strip()
            put(f"{local(one.created_at)}  {one.actor}  {one.action}  {what}  {details}".rstrip())
    return 0


def record(action: str, resource: str, resource_id: str, **details: Any) -> None:
    """Record what a user of this machine does."""
    try:
        with closing(AuditLog.open(batten_home(os.environ, current_directory()))) as log:
            _append(log, action, resource, resource_id, details)
    except JournalError as error:
        _complain(action, error)


@asynccontextmanager
async def recorded_removal(
    action: str, resource: str, resource_id: str, **details: Any
) -> AsyncGenerator[None]:
    """Record a removal before it is done, and first what the removed facts tell.

    A full disk must not keep a user from making room on it: then it is recorded afterwards.
    """
    is_recorded = True
    try:
        with closing(AuditLog.open(batten_home(os.environ, current_directory()))) as log:
            with closing(open_journal(read_only=True)) as journal:
                await log.catch_up(journal)
            _append(log, action, resource, resource_id, details)
    except StoreFull:
        is_recorded = False
    except JournalError as error:
        _complain(action, error)
    yield
    if not is_recorded:
        record(action, resource, resource_id, **details)


async def catch_up(journal: Feed) -> None:
    """Record what facts tell that are about to be removed."""
    try:
        with closing(AuditLog.open(batten_home(os.environ, current_directory()))) as log:
            await log.catch_up(journal)
    except JournalError as error:
        say(f"batten: the audit log is not complete: {error}")


def _append(
    log: AuditLog, action: str, resource: str, resource_id: str, details: dict[str, Any]
) -> None:
    log.append(
        actor=_user(),
        actor_type="local",
        action=action,
        resource=resource,
        resource_id=resource_id,
        details=details,
    )


def _complain(action: str, error: JournalError) -> None:
    say(f"batten: {action} is not in the audit log: {error}")


def _user() -> str:
    import pwd

    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return str(os.getuid())
