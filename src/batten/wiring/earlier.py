"""Finds the session that a specification resumes, and the place where it branches off."""

import os

from msgspec import Struct

from batten.contract.errors import CallerError, NotFound
from batten.contract.ids import from_uuid, is_ulid
from batten.journal.contract import Journal, RunRow, SessionRow
from batten.session.history import prompts_of
from batten.session.session import find_session
from batten.wiring.home import absolute
from batten.wiring.spec import SessionSpec


class Earlier(Struct, frozen=True):
    """The session to resume, or whose history a new one shares."""

    row: SessionRow
    run: RunRow | None = None
    """The run to branch from; None to resume in place, or to fork a session without runs."""
    until: int = 0
    """The last fact of the run that the branch shares."""


async def find_earlier(spec: SessionSpec, journal: Journal) -> Earlier | None:
    """The earlier session of the specification; None for a new one."""
    if spec.branch:
        name, _, sequence = spec.branch.partition(":")
        run = await journal.run(name)
        if run is None or run.session_id is None:
            raise NotFound(f"no run is named {name}; `batten runs` lists them")
        return Earlier(await find_session(journal, name), run, _place(run, sequence))
    row = await resumed_session(spec, journal)
    if row is None:
        return None
    if not spec.fork:
        return Earlier(row)
    runs = await prompts_of(journal, row.session_id)
    if not runs:
        return Earlier(row)
    ended = [run for run in runs if run.outcome is not None]
    if not ended:
        raise NotFound(f"session {row.session_id} has no run that ended, to fork from")
    return Earlier(row, ended[-1], ended[-1].next_sequence - 1)


async def resumed_session(spec: SessionSpec, journal: Journal) -> SessionRow | None:
    """The session to resume: the named one, else the newest."""
    if spec.resume:
        return await find_session(journal, spec.resume)
    if not spec.resume_newest:
        return None
    workspace = workspace_of(spec, None)
    newest = await journal.sessions(workspace_path=workspace, limit=1)
    if not newest:
        raise NotFound(f"there is no session in {workspace} to continue")
    return newest[0]


async def new_id(spec: SessionSpec, journal: Journal) -> str | None:
    """The id that the specification gives a new session, validated."""
    named = spec.session_id
    if named is None:
        return None
    try:
        session_id = named if named.startswith("chat_") else from_uuid(named, "chat")
    except ValueError:
        session_id = ""
    if not is_ulid(session_id):
        raise CallerError(f"--session-id {named!r} is not a UUID", code="usage")
    if await journal.session(session_id) is not None:
        raise CallerError(
            f"session {named} exists; go on with it by --resume {named}", code="usage"
        )
    return session_id


def workspace_of(spec: SessionSpec, earlier: SessionRow | None) -> str:
    """The directory to work in, resolved; it must exist."""
    named = spec.workspace or (earlier.workspace_path if earlier is not None else ".")
    path = os.path.realpath(absolute(named, spec.cwd))
    if not os.path.isdir(path):
        raise CallerError(f"the workspace {path} is not a directory", code="usage")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        message = f"the name of the workspace {path!r} is not UTF-8 text"
        raise CallerError(message, code="usage") from error
    return path


def _place(run: RunRow, sequence: str) -> int:
    """The last fact a branch shares with the run; the run's last one if none is named."""
    if run.parent_run_id is not None:
        raise CallerError(
            f"{run.run_id} is a child run; branch from {run.parent_run_id}", code="usage"
        )
    first, last = run.base_sequence, run.next_sequence - 1
    if not sequence:
        return last
    if not (sequence.isascii() and sequence.isdigit() and first <= int(sequence) <= last):
        raise CallerError(
            f"{run.run_id} has facts {first} to {last}; {sequence!r} is none of them", code="usage"
        )
    return int(sequence)
