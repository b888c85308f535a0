"""Golden transcripts with hooks and settings: what they add to the frames, and what they stop."""

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from tests.agent.acting import Acting
from tests.cli.invoking import Json, Said, Shell, serving
from tests.models.server import Reply, answer
from tests.models.wire import anthropic_turn

from .transcripts import compare, golden, set_prices

FLAGS = ("--model", "anthropic/m", "--sandbox", "none", "-p", "go", "--include-hook-events")
WELL = (answer(anthropic_turn("Well.")),)
CALLING = (answer(anthropic_turn("I look.", [("c1", "acting", {"act": "now"})])), *WELL)


def hook(command: str, **more: Any) -> Json:
    return {"handlers": [{"type": "command", "command": command, **more}]}


def deciding(decision: str, **more: Any) -> str:
    said = {"hookSpecificOutput": {"permissionDecision": decision, **more}}
    return f"echo '{msgspec.json.encode(said).decode()}'"


class Case(Struct, frozen=True):
    hooks: dict[str, list[Json]]
    replies: tuple[Reply, ...] = CALLING
    flags: tuple[str, ...] = ("--allow", "acting")
    code: int = 0


CASES: dict[str, Case] = {
    "hooks_all": Case(
        {
            event: [hook("true")]
            for event in (
                "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop",
                "SessionEnd",
            )
        }
    ),
    "hook_allows": Case({"PreToolUse": [hook(deciding("allow"))]}, flags=()),
    "hook_asks": Case(
        {"PreToolUse": [hook(deciding("ask", permissionDecisionReason="a person must say"))]}
    ),
    "hook_denies": Case({"PreToolUse": [hook("echo 'not that one' >&2; exit 2")]}),
    "hook_denies_and_fails": Case(
        {"PreToolUse": [hook("echo 'not that one' >&2; exit 2")]},
        flags=("--allow", "acting", "--fail-on", "denied"), code=2,
    ),
    "hook_changes": Case(
        {"PreToolUse": [hook(deciding("allow", updatedInput={"act": "otherwise"}))]}
    ),
    "hook_fails": Case({"PreToolUse": [hook("exit 7")]}),
    "hook_fails_leniently": Case({"PreToolUse": [hook("exit 7", on_failure="allow")]}),
    "hook_too_slow": Case({"PreToolUse": [hook("sleep 60", timeout="100ms")]}),
    "hook_beside": Case({"PreToolUse": [hook("exit 2", **{"async": True})]}),
    "hook_denies_the_prompt": Case(
        {"UserPromptSubmit": [hook("echo 'not today' >&2; exit 2")]}, WELL, code=1
    ),
    "hook_of_a_failure": Case(
        {"PostToolUseFailure": [hook("true")]},
        (answer(anthropic_turn("", [("c1", "acting", {"act": "raise"})])), *WELL),
    ),
    "hook_of_a_denial": Case({"PermissionDenied": [hook("true")]}, flags=("--deny", "acting")),
    "hooks_off": Case({"PreToolUse": [hook("exit 2")]}, flags=("--allow", "acting", "--no-hooks")),
    "hooks_bare": Case({"PreToolUse": [hook("exit 2")]}, flags=("--allow", "acting", "--bare")),
}  # fmt: skip


def play(shell: Shell, case: Case, form: str) -> Said:
    settings = msgspec.json.encode({"hooks": case.hooks}).decode()
    set_prices(shell)
    with serving(shell, case.replies):
        said = shell(
            *FLAGS, "--output-format", form, "--settings", settings, *case.flags, tools=[Acting()]
        )
    assert said.code == case.code, said.err
    return said


@pytest.mark.parametrize("name", CASES)
def test_the_frames_with_hooks_are_the_golden_ones(shell: Shell, name: str) -> None:
    compare(name, _in_order(play(shell, CASES[name], "stream-json").frames()), shell)


def _in_order(frames: list[Json]) -> list[Json]:
    """When a hook ends that nobody waits for is left to chance: here it is at the very end."""
    if not any(frame.get("phase") == "dispatch" for frame in frames):
        return frames
    late = [frame for frame in frames if frame.get("phase") == "completion"]
    rest = [frame for frame in frames if frame not in late]
    return [*rest[:-1], *late, rest[-1]]


@pytest.mark.parametrize("name", CASES)
def test_every_event_of_a_hook_is_between_the_beginning_and_the_result(name: str) -> None:
    frames = golden(name)
    assert (frames[0]["subtype"], frames[-1]["type"]) == ("init", "result")
    told = [frame for frame in frames if frame["type"] == "hook_event"]
    completed = [frame for frame in told if frame["phase"] == "completion"]
    assert frames[-1].get("hooks", {"completed": 0})["completed"] == len(completed)
    assert bool(told) == (name not in ("hooks_off", "hooks_bare"))


def test_a_decision_of_a_hook_and_the_verdict_of_the_rules_are_told_apart(shell: Shell) -> None:
    (told,) = [frame for frame in golden("hook_denies") if frame["type"] == "hook_event"]
    assert (told["router_decision"], told["decision"]) == ("deny", "deny")
    (told,) = [frame for frame in golden("hook_allows") if frame["type"] == "hook_event"]
    assert (told["router_decision"], told["permission_action"]) == ("allow", "ask")


def test_a_hook_that_nobody_waits_for_is_told_of_twice() -> None:
    phases = [frame["phase"] for frame in golden("hook_beside") if frame["type"] == "hook_event"]
    assert phases == ["dispatch", "completion"]
