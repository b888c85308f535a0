"""Replays: a descriptor with addresses that work as they are, and the pace of a timed one."""

from urllib.parse import urlencode

from msgspec import UNSET

from batten.protocols.macp.metrics import milliseconds
from batten.protocols.macp.requests import ReplayParameters


class ReplayDescriptor(ReplayParameters, frozen=True, kw_only=True):
    run_id: str
    stream_url: str
    state_url: str


def replay_descriptor(run_id: str, asked: ReplayParameters) -> ReplayDescriptor:
    given = {"mode": asked.mode, "speed": repr(asked.speed).removesuffix(".0")}
    if asked.from_seq is not UNSET:
        given["fromSeq"] = str(asked.from_seq)
    if asked.to_seq is not UNSET:
        given["toSeq"] = str(asked.to_seq)
    path = f"/runs/{run_id}/replay"
    return ReplayDescriptor(
        run_id=run_id,
        mode=asked.mode,
        speed=asked.speed,
        from_seq=asked.from_seq,
        to_seq=asked.to_seq,
        stream_url=f"{path}/stream?{urlencode(given)}",
        state_url=f"{path}/state",
    )


def delay_ms(before: str, ts: str, speed: float, most_ms: int) -> int:
    """How long a timed replay waits between two events."""
    return min(most_ms, max(0, round(milliseconds(before, ts) / speed)))
