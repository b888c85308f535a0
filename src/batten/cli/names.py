"""The names in flags of sessions: shortened ones become the exact ids that a session needs."""

from msgspec.structs import replace

from batten.journal.contract import Journal
from batten.session.naming import named_run, named_session
from batten.wiring.spec import SessionSpec


async def with_exact_names(spec: SessionSpec, journal: Journal) -> SessionSpec:
    """The specification with the ids that `--resume` and `--branch` name.

    Raises `NotFound`, or `Ambiguous` with the candidates.
    """
    if spec.branch:
        name, colon, sequence = spec.branch.partition(":")
        run = await named_run(journal, name)
        return replace(spec, branch=f"{run.run_id}{colon}{sequence}")
    if spec.resume:
        return replace(spec, resume=(await named_session(journal, spec.resume)).session_id)
    return spec
