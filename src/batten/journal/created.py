"""The rows of a run as they are right after its creation: nothing has to be read back."""

from collections.abc import Sequence
from operator import attrgetter

from msgspec.structs import replace

from batten.contract.facts import Fact
from batten.journal.appending import RunState, new_state
from batten.journal.contract import NewRun, RunRow
from batten.journal.rows import Changes, FactContext, fold

_STATE = frozenset(RunState.__struct_fields__)
_OF_STATE = tuple(name for name in RunRow.__struct_fields__ if name in _STATE)
_OF_FOLD = tuple(name for name in RunRow.__struct_fields__ if name not in _STATE)
_NAMES = _OF_STATE + _OF_FOLD
_state_values = attrgetter(*_OF_STATE)
_fold_values = attrgetter(*_OF_FOLD)


def state_of_new(new: NewRun, facts: Sequence[Fact], at: str) -> tuple[RunState, Changes]:
    """A run with all its facts, the first ones, and the other rows that they made."""
    changes = Changes()
    state = new_state(new, 0, at)
    folded = state.fold
    for sequence, fact in enumerate(facts):
        place = FactContext(new.run_id, new.task_id, new.session_id, sequence, at)
        folded = fold(folded, changes, place, fact)
    return replace(state, next_sequence=len(facts), fold=folded), changes


def row_of(run: RunState) -> RunRow:
    values = (*_state_values(run), *_fold_values(run.fold))
    return RunRow(**dict(zip(_NAMES, values, strict=True)))
