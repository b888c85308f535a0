"""Runs as a random choice makes them: turns, calls that overlap, retries, denials, retractions."""

from collections.abc import Iterator
from random import Random
from typing import Any

from msgspec import UNSET, UnsetType

from batten.contract import facts as f
from batten.contract.facts.assistant import MessageBlock, Usage
from batten.contract.facts.policy import Verdict

_TOOLS = {
    "bash": "shell",
    "read_file": "file_read",
    "edit_file": "edit",
    "memory": "memory",
    "skill": "custom",
}
_AUTHORS = ("rule:x", "mode:plan", "bounds:read_only")
_VERDICTS: tuple[Verdict, ...] = ("allow", "ask", "deny")


class RandomRun:
    """The facts of one run, in an order that the agent could have written."""

    def __init__(self, random: Random, name: str = "") -> None:
        self._random = random
        self._name = name
        self._calls = 0

    def facts(self) -> Iterator[f.Fact]:
        chance = self._random
        yield f.RunStarted(worker_id="w", lease_until="2026-01-01T00:00:00.000Z")
        yield f.UserMessage(turn_index=0, text="go")
        for turn in range(1, chance.randint(1, 4) + 1):
            yield from self._turn(turn)
            if chance.random() < 0.1:
                break
        yield self._end()

    def _turn(self, turn: int) -> Iterator[f.Fact]:
        chance = self._random
        yield f.TurnStarted(
            turn_index=turn, model="m", provider="p", input_tokens_estimate=chance.randint(0, 99)
        )
        while chance.random() < 0.25:
            calls = list(self._answer(turn))
            yield from calls
            ids = [
                one.tool_call_id for one in calls if isinstance(one, f.AssistantToolCallProposed)
            ]
            yield f.AssistantRetracted(turn_index=turn, reason="broke off", tool_call_ids=ids)
        answer = list(self._answer(turn))
        yield from answer
        proposed = [one for one in answer if isinstance(one, f.AssistantToolCallProposed)]
        blocks = [
            MessageBlock("text", one.block_index)
            for one in answer
            if isinstance(one, f.AssistantTextComplete)
        ]
        blocks += [MessageBlock("tool_call", 9, tool_call_id=one.tool_call_id) for one in proposed]
        yield f.AssistantMessageComplete(
            turn_index=turn,
            model="m",
            provider="p",
            blocks=blocks,
            usage=Usage(3, 4),
            stop_reason="tool_use" if proposed else "end_turn",
            cost_micros_usd=chance.choice((None, 7)),
            price_as_of=None,
            duration_ms=chance.randint(0, 50),
            time_to_first_token_ms=1,
        )
        yield from self._woven([self._life(turn, call) for call in proposed])
        if chance.random() < 0.1:
            yield f.GapRunDisconnected(
                since_sequence=1, since_at="2026-01-01T00:00:00.000Z", reason="worker_lease_expired"
            )

    def _answer(self, turn: int) -> Iterator[f.Fact]:
        chance = self._random
        for block in range(chance.randint(0, 2)):
            text = f"text {turn}.{block}. "
            for piece in (text[:4], text[4:]):
                yield f.AssistantTextDelta(turn_index=turn, block_index=block, delta=piece)
            yield f.AssistantTextComplete(turn_index=turn, block_index=block, text=text)
        for _ in range(chance.randint(0, 3)):
            self._calls += 1
            unreadable = chance.random() < 0.1
            name = chance.choice(tuple(_TOOLS))
            yield f.AssistantToolCallProposed(
                turn_index=turn,
                tool_call_id=f"call{self._name}_{self._calls}",
                tool_name=name,
                input={"raw": "{"} if unreadable else self._arguments(name),
                block_index=9,
                unreadable=True if unreadable else UNSET,
            )

    def _arguments(self, name: str) -> dict[str, Any]:
        number = self._random.randint(0, 99)
        match name:
            case "bash":
                return {"command": f"echo {number}"}
            case "memory":
                return {"content": f"remember {number}", "scope": "project"}
            case "skill":
                return {"name": f"skill{number}"}
            case _:
                return {"file_path": f"f{number}.txt"}

    def _woven(self, lives: list[Iterator[f.Fact]]) -> Iterator[f.Fact]:
        """The facts of calls that run at the same time."""
        while lives:
            life = self._random.choice(lives)
            fact = next(life, None)
            if fact is None:
                lives.remove(life)
            else:
                yield fact

    def _life(self, turn: int, call: f.AssistantToolCallProposed) -> Iterator[f.Fact]:
        chance = self._random
        changed: dict[str, Any] | UnsetType = UNSET
        named: dict[str, Any] = {"tool_call_id": call.tool_call_id, "tool_name": call.tool_name}
        if chance.random() < 0.1:
            return  # the run ends before it
        for attempt in range(1, 4):
            # The answer to the question whether to try again is the verdict on the next attempt.
            verdict = chance.choice(_VERDICTS) if attempt == 1 else "allow"
            by = "rule:x" if attempt == 1 else "resolver:someone"
            yield f.PolicyToolDecided(verdict=verdict, reason="r", decided_by=by, **named)
            denied_by = chance.choice(_AUTHORS) if verdict == "deny" else ""
            if verdict == "ask":
                changed = self._arguments(call.tool_name) if chance.random() < 0.3 else changed
                approval = f"{call.tool_call_id}.{attempt}"
                yield f.ApprovalRequested(
                    approval_id=approval,
                    tool_call_id=call.tool_call_id,
                    kind=call.tool_name,
                    summary="may it run?",
                    policy_reason="because",
                    input=changed,
                )
                if chance.random() < 0.1:
                    return
                yes = chance.random() < 0.7
                yield (
                    f.ApprovalResolved(
                        approval_id=approval,
                        decision="approved" if yes else "rejected",
                        by="someone",
                        comment="a word",
                    )
                    if chance.random() < 0.8
                    else f.ApprovalTimedOut(approval_id=approval, after_seconds=3)
                )
                denied_by = "" if yes else "resolver:someone"
            if denied_by:
                yield f.PolicyToolBlocked(
                    reason="no", policy_id=denied_by, output="Denied: no", **named
                )
                return
            numbered: dict[str, Any] = {"attempt": attempt if attempt > 1 else UNSET}
            kind = _TOOLS[call.tool_name]
            yield f.ToolInvoked(kind=kind, turn_index=turn, input=changed, **numbered, **named)
            yield f.ToolStarted(kind=kind, **named)
            yield from self._reports(call, kind)
            if chance.random() < 0.1:
                return
            ended = self._ended(kind, {**numbered, **named})
            yield ended
            if not isinstance(ended, f.ToolFailed) or chance.random() < 0.5:
                return
            question: dict[str, Any] = {"request_id": f"retry.{call.tool_call_id}.{attempt}"}
            yield f.RequestOpened(
                request_class="tool_retry",
                tool_call_id=call.tool_call_id,
                summary="again?",
                detail={},
                digest="d",
                **question,
            )
            yield f.RequestClosed(resolution="answered", by="someone", answer={}, **question)

    def _reports(self, call: f.AssistantToolCallProposed, kind: str) -> Iterator[f.Fact]:
        if kind == "shell":
            yield f.ToolShellOutputChunk(
                tool_call_id=call.tool_call_id, stream="stdout", data="out\n", byte_offset=0
            )
            yield f.ToolShellExited(
                tool_call_id=call.tool_call_id,
                exit_code=self._random.randint(0, 2),
                signal=None,
                stdout_bytes=4,
                stderr_bytes=0,
                truncated=False,
            )
        elif kind == "file_read":
            yield f.ToolFileReadCompleted(
                tool_call_id=call.tool_call_id, path="f.txt", size_bytes=1, lines=1
            )

    def _ended(self, kind: str, named: dict[str, Any]) -> f.ToolEnded:
        common: dict[str, Any] = {
            "kind": kind,
            "duration_ms": self._random.randint(0, 500),
            "summary": "a line",
            "output": "a line\nand more",
            **named,
        }
        match self._random.randint(0, 5):
            case 0:
                return f.ToolFailed(error="broken", error_kind="exit_status", **common)
            case 1:
                return f.ToolFailed(error="gone", error_kind="outcome_unknown", **common)
            case 2:
                return f.ToolCancelled(error="stopped", **common)
            case 3:
                return f.ToolTimedOut(error="late", after_ms=5, **common)
            case 4:
                return f.ToolCompleted(error="the server says no", result="tool_error", **common)
            case _:
                return f.ToolCompleted(**common)

    def _end(self) -> f.Fact:
        totals: dict[str, Any] = {"turns": 1, "cost_micros_usd": 7, "duration_ms": 99}
        match self._random.randint(0, 2):
            case 0:
                return f.RunFailed(
                    code="timeout", message="too long", retriable=True, outcome="timeout", **totals
                )
            case 1:
                return f.RunCancelled(by="someone", reason="enough", outcome="cancelled", **totals)
            case _:
                return f.RunFinished(final_status="completed", **totals)
