"""The rows of a run as they are right after its creation: nothing has to be read back."""

from collections.abc import Sequence

from msgspec.structs import replace

from batten.contract.envelope import Envelope
from batten.journal.appending import RunState, new_state
from batten.journal.contract import NewRun, RunRow
from batten.journal.rows import Changes, FactContext, fold

_STATE = frozenset(RunState.__struct_fields__)
_OF_STATE = tuple(name for name in RunRow.__struct_fields__ if name in _STATE)
_OF_FOLD = tuple(name for name in RunRow.__struct_fields__ if name not in _STATE)


def rows_of_new(new: NewRun, envelopes: Sequence[Envelope]) -> tuple[RunRow, Changes]:
    """The row of a run with all its facts, the first ones, and the other rows that they made."""
    changes = Changes()
    state = new_state(new, 0, envelopes[0].occurred_at)
    folded = state.fold
    for one in envelopes:
        place = FactContext(new.run_id, new.task_id, new.session_id, one.sequence, one.occurred_at)
        folded = fold(folded, changes, place, one.data)
    return row_of(replace(state, next_sequence=len(envelopes), fold=folded)), changes


def row_of(run: RunState) -> RunRow:
    fold = run.fold
    return RunRow(
        **{name: getattr(run, name) for name in _OF_STATE},
        **{name: getattr(fold, name) for name in _OF_FOLD},
    )
