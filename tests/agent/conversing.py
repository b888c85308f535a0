"""Generated facts of a conversation, and a place their content is kept in."""

import msgspec
from hypothesis import strategies as st

from batten.contract import facts as f
from batten.contract.conversation import Thinking, ToolCall
from batten.contract.facts import Fact
from batten.contract.facts.assistant import MessageBlock, Usage

PICTURE = b"\xff\xd8 a picture"


class Bodies:
    """Content that is not in a fact."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def keep(self, data: bytes) -> str:
        artifact_id = f"art_{len(self.kept)}"
        self.kept[artifact_id] = data
        return artifact_id


class Script:
    """Writes the facts of one conversation after another, as a run would."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.bodies = Bodies()
        self.facts: list[Fact] = []
        self.void: list[Fact] = []
        """Facts of answers that were taken back, and the facts that say so."""
        self._calls = 0
        self._turn = 0

    def text(self) -> str:
        return self._draw(st.text(max_size=12))

    def yes(self) -> bool:
        return self._draw(st.booleans())

    def say(self) -> None:
        text = self.text()
        sealed = self.bodies.keep(text.encode()) if self.yes() else msgspec.UNSET
        shown = text if sealed is msgspec.UNSET else "***"
        self.facts.append(f.UserMessage(0, shown, sealed_artifact_id=sealed))
        if self.yes():
            kept = self.bodies.keep(PICTURE)
            self.facts.append(f.UserAttachment(0, "image", "image/jpeg", kept))

    def turn(self) -> None:
        self._turn += 1
        self.facts.append(f.TurnStarted(self._turn, "m", "p", 1))
        if self._draw(st.integers(0, 3)) == 0:
            self._attempt_in_vain()
        blocks, calls = self._answer()
        if self._draw(st.integers(0, 5)) == 0:
            self.facts.append(f.TurnFailed(self._turn, "broken", "it broke", False))
            return
        self.facts.append(self._complete(blocks))
        for call in self._draw(st.permutations(calls)):
            self._end(call)
        if self.yes():
            self.facts.append(f.TurnCompleted(self._turn, 1, 1, 0, 0, 1, len(calls), "tool_use"))

    def _attempt_in_vain(self) -> None:
        """An answer that breaks off and is taken back."""
        begin = len(self.facts)
        _, calls = self._answer()
        self.facts.append(f.AssistantRetracted(self._turn, "it broke", calls))
        self.void += self.facts[begin:]

    def _answer(self) -> tuple[list[MessageBlock], list[str]]:
        """The blocks of a message, and the ids of its calls."""
        blocks: list[MessageBlock] = []
        calls: list[str] = []
        for index, kind in enumerate(self._draw(st.lists(st.sampled_from("tck"), max_size=4))):
            match kind:
                case "t":
                    blocks.append(self._text(index))
                case "c":
                    blocks.append(self._call(index))
                    calls.append(str(blocks[-1].tool_call_id))
                case _:
                    blocks.append(self._thinking(index))
        return blocks, calls

    def _text(self, index: int) -> MessageBlock:
        self.facts.append(f.AssistantTextComplete(self._turn, index, self.text()))
        return MessageBlock("text", index)

    def _thinking(self, index: int) -> MessageBlock:
        thinking = Thinking(self.text(), "p", "signed")
        sealed = self.bodies.keep(msgspec.json.encode(thinking))
        return MessageBlock("thinking", index, sealed_artifact_id=sealed)

    def _call(self, index: int) -> MessageBlock:
        self._calls += 1
        call = ToolCall(f"call_{self._calls}", "tool", {"argument": self.text()})
        if self.yes():
            sealed = self.bodies.keep(msgspec.json.encode(call))
            proposed = f.AssistantToolCallProposed(
                self._turn, call.id, call.name, {"argument": "***"}, sealed_artifact_id=sealed
            )
        else:
            proposed = f.AssistantToolCallProposed(self._turn, call.id, call.name, call.input)
        self.facts.append(proposed)
        return MessageBlock("tool_call", index, tool_call_id=call.id)

    def _complete(self, blocks: list[MessageBlock]) -> Fact:
        return f.AssistantMessageComplete(
            self._turn, "m", "p", blocks, Usage(1, 1), "tool_use", None, None, 1, None
        )

    def _end(self, call: str) -> None:
        match self._draw(st.sampled_from(["completed", "failed", "blocked", "never", "seen"])):
            case "completed":
                self.facts.append(f.ToolCompleted(call, "tool", "custom", 1, output=self.text()))
            case "failed":
                self.facts.append(f.ToolFailed(call, "tool", "custom", 1, output=self.text()))
            case "blocked":
                self.facts.append(f.PolicyToolBlocked(call, "tool", "no", output=self.text()))
            case "seen":
                images = [self.bodies.keep(PICTURE)]
                self.facts.append(
                    f.ToolCompleted(call, "tool", "custom", 1, image_artifact_ids=images)
                )
            case _:
                pass

    def prune(self) -> None:
        if self._calls:
            known = st.sampled_from([f"call_{number + 1}" for number in range(self._calls)])
            chosen = self._draw(st.lists(known, unique=True))
            self.facts.append(f.ContextPruned(chosen, 10, 5))

    def compact(self) -> None:
        kept = self._draw(st.integers(0, 3))
        self.facts.append(f.ContextCompacted(self.text(), 4, 10, 5, kept))

    def finish(self) -> None:
        self.facts.append(
            self._draw(
                st.sampled_from(
                    [
                        f.RunFinished("completed", 1, 0, 1),
                        f.RunFailed("internal_error", "broken", False, 1),
                        f.RunCancelled("operator", "enough"),
                        f.GapRunDisconnected(1, "", "worker_lost"),
                    ]
                )
            )
        )


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    script = Script(draw)
    script.say()
    steps = st.lists(st.sampled_from(["turn", "turn", "turn", "say", "prune", "compact", "finish"]))
    for step in draw(steps):
        getattr(script, step)()
    return script
