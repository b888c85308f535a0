"""All surfaces tell the same of each call's end: they read it in one fold."""

from collections.abc import Iterator
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.protocols.acp.frames import AcpFrames
from batten.protocols.acp.updates import ToolCallProgress
from batten.protocols.claude.frames import ClaudeFrames
from batten.protocols.hecate.step_fold import StepFold
from batten.protocols.maestro import outgoing
from batten.protocols.maestro.frames import MaestroFrames
from batten.protocols.stream_json import FrameOptions, StreamJson
from batten.sinks.bus.fold import BusFold
from tests.contract.call_facts import RandomRun


def envelopes(seed: int) -> Iterator[Envelope]:
    queued = f.RunQueued(
        kind="agent_loop",
        model="m",
        provider="p",
        workspace_path="/w",
        workspace_mode="in_place",
        prior_run_id=None,
    )
    for place, fact in enumerate([queued, *RandomRun(Random(seed)).facts()]):
        yield Envelope(
            event_id=f"evt_{place:026d}",
            run_id="run_1",
            task_id="task_1",
            session_id="chat_1",
            sequence=place,
            occurred_at=f"2026-01-01T00:{place // 60:02d}:{place % 60:02d}.000Z",
            type=fact.type,
            data=fact,
        )


class Surfaces:
    """Shows one run on each surface."""

    def __init__(self) -> None:
        self._acp = AcpFrames("/w", lambda _: None)
        self._maestro = MaestroFrames()
        self._print = StreamJson("s")
        self._claude = ClaudeFrames("s", FrameOptions())
        self._bus = BusFold("run_1", "source")
        self._steps = StepFold()

    def failures(self, envelope: Envelope) -> dict[str, list[bool]]:
        """Whether the calls that a fact ended failed, as each surface tells it."""
        acp, claude = self._acp.feed(envelope), self._claude.feed(envelope)
        maestro, bus = self._maestro.feed(envelope), list(self._bus.take(envelope))
        frames = self._print.feed(envelope.data)
        self._steps.take(envelope)
        return {
            "acp": [
                one.status == "failed"
                for one in acp
                if isinstance(one, ToolCallProgress) and one.status in ("failed", "completed")
            ],
            "maestro": [not one.success for one in maestro if isinstance(one, outgoing.ToolEnd)],
            "print": [one["is_error"] for one in frames if one["type"] == "tool_result"],
            "claude": [
                one["message"]["content"][0]["is_error"]
                for one in claude
                if one["type"] == "user" and isinstance(one["message"]["content"], list)
            ],
            "bus": [
                b"_SUCCEEDED" not in one.body
                for one in bus
                if one.type == "maestro.events.tool_call.completed"
            ],
            "steps": [
                one.result != "success"
                for one in self._steps.steps.values()
                if one.kind not in ("approval", "model") and one.finished_at == envelope.occurred_at
            ],
        }


@given(st.integers(0, 1 << 32))
def test_every_surface_says_of_each_ended_call_whether_it_failed_and_the_same(seed: int) -> None:
    surfaces = Surfaces()
    for envelope in envelopes(seed):
        told = surfaces.failures(envelope)
        fact = envelope.data
        if isinstance(fact, f.ToolEnded):
            wanted = not isinstance(fact, f.ToolCompleted) or fact.error is not UNSET
            assert told == {surface: [wanted] for surface in told}
        elif isinstance(fact, f.PolicyToolBlocked):
            assert told == {surface: [True] for surface in told}
