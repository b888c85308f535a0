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
OBSERVER = {"type": "observer"}
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
    late = [frame for frame in _told_to_hooks(frames) if frame["phase"] == "completion"]
    rest = [frame for frame in frames if frame not in late]
    return [*rest[:-1], *late, rest[-1]]


def _told_to_hooks(frames: list[Json]) -> list[Json]:
    """Without the events that no hook was told of."""
    told = [frame for frame in frames if frame["type"] == "hook_event"]
    return [frame for frame in told if frame["handler"] != OBSERVER]


@pytest.mark.parametrize("name", CASES)
def test_every_event_of_a_hook_is_between_the_beginning_and_the_result(name: str) -> None:
    frames = golden(name)
    assert (frames[0]["subtype"], frames[-1]["type"]) == ("init", "result")
    told = _told_to_hooks(frames)
    completed = [frame for frame in told if frame["phase"] == "completion"]
    assert frames[-1].get("hooks", {"completed": 0})["completed"] == len(completed)
    assert bool(told) == (name not in ("hooks_off", "hooks_bare"))


def test_a_decision_of_a_hook_and_the_verdict_of_the_rules_are_told_apart(shell: Shell) -> None:
    (told,) = _told_to_hooks(golden("hook_denies"))
    assert (told["router_decision"], told["decision"]) == ("deny", "deny")
    (told,) = _told_to_hooks(golden("hook_allows"))
    assert (told["router_decision"], told["permission_action"]) == ("allow", "ask")


def test_a_hook_that_nobody_waits_for_is_told_of_twice() -> None:
    phases = [frame["phase"] for frame in _told_to_hooks(golden("hook_beside"))]
    assert phases == ["dispatch", "completion"]


@pytest.mark.parametrize("name", ["hooks_all", "hooks_off", "hooks_bare"])
def test_every_event_is_told_of_once_whether_a_hook_was_told_or_not(name: str) -> None:
    told = [frame for frame in golden(name) if frame["type"] == "hook_event"]
    assert [frame["hookEventName"] for frame in told] == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd",
    ]  # fmt: skip


def test_what_the_rules_say_of_a_call_is_told_without_any_hook() -> None:
    (told,) = [
        frame
        for frame in golden("hook_of_a_denial")
        if frame["type"] == "hook_event" and frame["hookEventName"] == "PreToolUse"
    ]
    assert (told["handler"], told["router_decision"]) == (OBSERVER, "none")
    assert (told["permission_action"], told["decision"]) == ("deny", "deny")


def test_a_message_comes_after_the_beginning_of_its_session(shell: Shell) -> None:
    case = Case({"SessionStart": [hook("true")]}, WELL, ("--replay-user-messages",))
    frames = play(shell, case, "stream-json").frames()
    shown = [frame.get("hookEventName") or frame["type"] for frame in frames]
    assert shown[:4] == ["system", "SessionStart", "user", "UserPromptSubmit"]
    assert shown.count("user") == 1


def test_a_call_that_the_rules_deny_is_not_counted_as_one_that_a_hook_denied(
    shell: Shell,
) -> None:
    for handler in (hook("true"), hook("exit 7", on_failure="allow")):
        case = Case({"PreToolUse": [handler]}, flags=("--deny", "acting"))
        (result,) = play(shell, case, "json").frames()
        assert result["hooks"]["denied"] == 0
    by_failure = Case({"PreToolUse": [hook("exit 7")]}, flags=("--deny", "acting"))
    (result,) = play(shell, by_failure, "json").frames()
    assert result["hooks"] == {"completed": 1, "denied": 1, "failed": 1}
