"""Two runs side by side."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec import UNSET, Struct, UnsetType

from batten.protocols.macp.metrics import RunMetrics
from batten.protocols.macp.state import ProjectedState, RunStatus

N = TypeVar("N", int, float)


class ComparedRun(Struct, frozen=True, kw_only=True, rename="camel"):
    run_id: str
    status: RunStatus
    mode_name: str | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET


class SignalsDiff(Struct, frozen=True, kw_only=True):
    """Names that only one side has: the right one added them, or they were removed."""

    added: list[str]
    removed: list[str]


class ParticipantsDiff(SignalsDiff, frozen=True, kw_only=True):
    common: list[str]


class Comparison(Struct, frozen=True, kw_only=True, rename="camel"):
    """Differences are right less left; without a value on one side they are absent."""

    left: ComparedRun
    right: ComparedRun
    status_match: bool
    duration_delta_ms: int | UnsetType = UNSET
    confidence_delta: float | UnsetType = UNSET
    participants_diff: ParticipantsDiff
    signals_diff: SignalsDiff


class Side(Struct, frozen=True):
    """A run to compare."""

    state: ProjectedState
    metrics: RunMetrics


def compare(left: Side, right: Side) -> Comparison:
    people = [
        _names(one.participant_id for one in side.state.participants) for side in (left, right)
    ]
    signals = [_names(one.name for one in side.state.signals.signals) for side in (left, right)]
    return Comparison(
        left=_run(left),
        right=_run(right),
        status_match=left.state.run.status == right.state.run.status,
        duration_delta_ms=_delta(left.metrics.duration_ms, right.metrics.duration_ms),
        confidence_delta=_delta(_confidence(left), _confidence(right)),
        participants_diff=ParticipantsDiff(
            added=_without(people[1], people[0]),
            removed=_without(people[0], people[1]),
            common=[name for name in people[0] if name in people[1]],
        ),
        signals_diff=SignalsDiff(
            added=_without(signals[1], signals[0]), removed=_without(signals[0], signals[1])
        ),
    )


def _run(side: Side) -> ComparedRun:
    run = side.state.run
    return ComparedRun(
        run_id=run.run_id,
        status=run.status,
        mode_name=run.mode_name,
        duration_ms=side.metrics.duration_ms,
    )


def _confidence(side: Side) -> float | UnsetType:
    current = side.state.decision.current
    return UNSET if current is UNSET else current.confidence


def _delta(left: N | UnsetType, right: N | UnsetType) -> N | UnsetType:
    return UNSET if left is UNSET or right is UNSET else right - left


def _names(names: Iterable[str]) -> list[str]:
    """Each once, in order."""
    return list(dict.fromkeys(names))


def _without(names: list[str], others: list[str]) -> list[str]:
    return [name for name in names if name not in others]
