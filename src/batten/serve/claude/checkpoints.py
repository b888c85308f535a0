"""Finds the places in a session that a client names by frame ids."""

from batten.contract.errors import NotFound
from batten.contract.facts import RunCheckpointSaved, UserMessage
from batten.contract.ids import from_uuid
from batten.journal.contract import Journal, RunRow
from batten.session.history import envelopes_of, prompts_of


async def place_after(journal: Journal, session_id: str, message_id: str) -> str:
    """The start of a branch that includes a message: the end of its turn, as `RUN:SEQUENCE`."""
    for run in await prompts_of(journal, session_id):
        found = False
        async for envelope in envelopes_of(journal, run.run_id):
            found = found or _is_of(envelope.event_id, message_id)
            if found and isinstance(envelope.data, RunCheckpointSaved):
                return f"{run.run_id}:{envelope.sequence}"
        if found:
            return run.run_id
    raise NotFound(f"no message of the session is {message_id}")


async def runs_since(journal: Journal, session_id: str, message_id: str) -> list[RunRow]:
    """The runs from the one that a prompt started."""
    rows = await prompts_of(journal, session_id)
    for first, row in enumerate(rows):
        async for envelope in envelopes_of(journal, row.run_id):
            if isinstance(envelope.data, UserMessage):
                if _is_of(envelope.event_id, message_id):
                    return rows[first:]
                break
    raise NotFound(f"no prompt of this session is the message {message_id}")


def _is_of(event_id: str, message_id: str) -> bool:
    """Whether a frame's id was derived from this event's id."""
    try:
        return from_uuid(message_id, event_id.partition("_")[0]) == event_id
    except ValueError:
        return False
