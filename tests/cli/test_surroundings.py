"""What a run takes from around it: settings, hooks, plugins, instructions; and `--bare` without."""

from pathlib import Path

import msgspec
import pytest

from tests.agent.stage import bash, say
from tests.models.server import answer
from tests.models.wire import anthropic_turn

from .invoking import Json, Said, Shell, serving

FRAMES = ("--output-format", "stream-json")
PREVENTING: Json = {
    "hooks": {"PreToolUse": [{"handlers": [{"type": "command", "command": "exit 2"}]}]}
}
SCOPES = ("user", "project", "local")


def place(shell: Shell, scope: str) -> Path:
    stage = shell.stage
    places = {
        "user": stage.directory / ".config" / "batten" / "settings.json",
        "project": stage.workspace / ".batten" / "settings.json",
        "local": stage.workspace / ".batten" / "settings.local.json",
    }
    return places[scope]


def write(shell: Shell, scope: str, content: Json | str) -> None:
    path = place(shell, scope)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    path.write_text(text)


def acted(shell: Shell, *flags: str) -> bool:
    """Whether a run got to do what it wanted."""
    made = shell.stage.workspace / "made"
    made.unlink(missing_ok=True)
    said = shell.play([bash("touch made")], [say("well")], flags=["--allow", "bash", *flags])
    assert said.code == 0, said.err
    return made.exists()


def sources(shell: Shell, *flags: str) -> list[str]:
    said = shell.play([say("well")], flags=[*FRAMES, *flags])
    assert said.code == 0, said.err
    found: list[str] = said.frames()[0]["settingSources"]
    return found


def test_the_first_frame_names_the_whole_chain_the_weakest_first(shell: Shell) -> None:
    assert sources(shell) == []
    for scope in SCOPES:
        write(shell, scope, {"env": {"SCOPE": scope}})
    trusted = "--trust-workspace"
    assert sources(shell, "--settings", "{}", trusted) == [*SCOPES, "flag"]
    assert sources(shell, "--setting-sources", "user,local", trusted) == ["user", "local"]
    assert sources(shell) == ["user"]
    assert sources(shell, "--setting-sources", "") == []
    assert sources(shell, "--bare") == []


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_settings_that_cannot_be_read_are_a_matter_of_configuration(
    shell: Shell, scope: str, form: str
) -> None:
    write(shell, scope, "{broken")
    with serving(shell, [answer(anthropic_turn("never"))]) as server:
        said = shell.print("anthropic/claude-sonnet-4-6", "--output-format", form)
        assert server.requests == []
    assert said.code == 78
    assert place(shell, scope).name in said.err
    _assert_said_once(said, form)
    assert shell.print(shell.stage.scenario([say("well")]), "--bare").code == 0


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_source_that_is_none_is_a_matter_of_configuration(shell: Shell, form: str) -> None:
    said = shell.play(
        [say("well")], flags=["--setting-sources", "user,mine", "--output-format", form]
    )
    assert said.code == 78
    assert "'mine'" in said.err
    _assert_said_once(said, form)


def _assert_said_once(said: Said, form: str) -> None:
    """For programs too, without a beginning that nothing follows."""
    assert [frame["subtype"] for frame in said.frames()] == ([] if form == "text" else ["error"])


def test_a_hook_of_the_user_counts_at_once_and_one_of_the_workspace_once_it_is_trusted(
    shell: Shell,
) -> None:
    assert acted(shell)
    write(shell, "project", PREVENTING)
    assert acted(shell), "nobody has said that this workspace may run programs"
    assert shell("trust", "--yes").code == 0
    assert not acted(shell)
    write(shell, "project", {**PREVENTING, "env": {"X": "changed"}})
    assert acted(shell), "what was trusted is not what is there now"
    write(shell, "user", PREVENTING)
    assert not acted(shell)
    for flag in ("--no-hooks", "--bare"):
        assert acted(shell, flag)


def test_the_environment_turns_hooks_off_too(shell: Shell) -> None:
    write(shell, "user", PREVENTING)
    shell.set(BATTEN_NO_HOOKS="1")
    assert acted(shell)
    shell.set(BATTEN_NO_HOOKS="no")
    assert not acted(shell)


def test_what_a_file_denies_is_denied_whatever_the_command_line_allows(shell: Shell) -> None:
    write(shell, "user", {"permissions": {"deny": ["Bash"]}})
    assert not acted(shell)
    model = shell.stage.scenario([bash("touch never")], [say("well")])
    assert shell.print(model, "--auto-allow").code == 0
    assert not (shell.stage.workspace / "never").exists()


def plugin(folder: Path) -> str:
    """A plugin that prevents everything."""
    (folder / "hooks").mkdir(parents=True)
    manifest = {"name": folder.name, "version": "1.2.3"}
    (folder / "plugin.json").write_bytes(msgspec.json.encode(manifest))
    (folder / "hooks" / "hooks.json").write_bytes(msgspec.json.encode(PREVENTING))
    return str(folder)


def test_a_plugin_is_named_first_and_its_hooks_count_unless_bare(shell: Shell) -> None:
    installed = plugin(place(shell, "user").parent / "plugins" / "guard")
    named: Json = {"name": "guard", "version": "1.2.3", "source": installed}
    for flags, plugins in (([], [named]), (["--bare"], []), (["--no-plugins"], [])):
        said = shell.play([say("well")], flags=[*FRAMES, *flags])
        assert said.frames()[0]["plugins"] == plugins
        assert acted(shell, *flags) is not bool(plugins)


@pytest.mark.parametrize("flag", ["--bare", "--no-plugins"])
def test_a_plugin_asked_for_and_turned_off_is_a_usage_error(shell: Shell, flag: str) -> None:
    folder = plugin(shell.stage.directory / "guard")
    assert not acted(shell, "--plugin-dir", folder)
    said = shell.play([say("well")], flags=["--plugin-dir", folder, flag])
    assert (said.code, said.out) == (64, b"")


def test_instructions_of_the_workspace_are_read_unless_bare(shell: Shell) -> None:
    (shell.stage.workspace / "CLAUDE.md").write_text("Always rhyme.")
    for flags, told in (((), True), (("--bare",), False), (("--no-instructions",), False)):
        with serving(shell, [answer(anthropic_turn("well"))]) as server:
            said = shell.print(
                "anthropic/claude-sonnet-4-6",
                *FRAMES,
                "--append-system-prompt",
                "Be brief.",
                *flags,
            )
            body = server.requests[0].body
        assert said.frames()[0]["bare_mode"] is ("--bare" in flags)
        assert (b"Always rhyme." in body) is told
        assert b"Be brief." in body, "what a flag says counts all the same"


def test_a_session_of_two_messages_starts_once_and_ends_once(shell: Shell) -> None:
    counting: Json = {
        "hooks": {
            event: [{"handlers": [{"type": "command", "command": f"echo {event} >> told"}]}]
            for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd")
        }
    }
    stdin = b'{"type":"user","content":"one"}\n{"type":"user","content":"two"}\n'
    with serving(shell, [answer(anthropic_turn("well"))]):
        said = shell(
            "--model", "anthropic/claude-sonnet-4-6", "--input-format", "stream-json", *FRAMES,
            "--settings", msgspec.json.encode(counting).decode(), "--include-hook-events",
            stdin=stdin,
        )  # fmt: skip
    assert said.code == 0
    told = (shell.stage.workspace / "told").read_text().split()
    pass_ = ["UserPromptSubmit", "Stop"]
    assert told == ["SessionStart", *pass_, *pass_, "SessionEnd"]
    shown = [one["hookEventName"] for one in said.frames() if one["type"] == "hook_event"]
    assert shown == told


def test_a_session_that_ends_by_a_wrong_line_is_told_of_before_the_result(shell: Shell) -> None:
    ending: Json = {
        "hooks": {"SessionEnd": [{"handlers": [{"type": "command", "command": "true"}]}]}
    }
    with serving(shell, [answer(anthropic_turn("well"))]):
        said = shell(
            "--model", "anthropic/claude-sonnet-4-6", "--input-format", "stream-json", *FRAMES,
            "--settings", msgspec.json.encode(ending).decode(), "--include-hook-events",
            stdin=b'{"type":"user","content":"one"}\nnonsense\n',
        )  # fmt: skip
    assert said.code == 64
    assert [frame["type"] for frame in said.frames()[-2:]] == ["hook_event", "result"]


def test_that_nothing_is_held_against_rules_is_said_each_time(shell: Shell) -> None:
    model = shell.stage.scenario([bash("echo 1")], [say("one")], [bash("echo 2")], [say("two")])
    streamed = ("--output-format", "stream-json")
    first = shell.print(model, "--no-permissions", *streamed)
    session = first.result["session_id"]
    assert first.frames()[0]["permission_mode"] == "disabled"
    again = shell.print(model, "--resume", session, *streamed)
    assert again.frames()[0]["permission_mode"] == "default"
    (result,) = [frame for frame in again.frames() if frame["type"] == "tool_result"]
    assert result["is_error"]


def test_who_answers_is_said_each_time(shell: Shell) -> None:
    model = shell.stage.scenario([say("one")], [bash("echo 2")], [say("two")])
    first = shell.print(model, "--ask-operator", "--output-format", "json")
    again = shell.print(model, "--resume", first.result["session_id"])
    assert (again.code, again.out) == (0, b"two\n")
    events = shell("events", shell.run_ids()[-1]).frames()
    assert "approval.requested" not in {event["type"] for event in events}


@pytest.mark.parametrize("flags", [["--resume", "x"], ["--continue"], ["--branch", "run_x"]])
def test_what_is_not_kept_cannot_go_on_with_what_is(shell: Shell, flags: list[str]) -> None:
    said = shell("-p", "go", "--no-save", *flags, "--output-format", "json")
    assert (said.code, said.out) == (64, b"")
    assert "--no-save keeps nothing" in said.err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--no-save", "--ask-operator"], "`batten answer`"),
        (["--no-save", "--review"], "`batten apply`"),
        (["--no-tools", "--tools", "bash"], "give one of them"),
    ],
)
def test_a_flag_that_another_one_makes_useless_is_refused(
    shell: Shell, flags: list[str], told: str
) -> None:
    said = shell("-p", "go", *flags)
    assert (said.code, said.out) == (64, b"")
    assert all(flag in said.err for flag in flags if flag.startswith("--"))
    assert told in said.err


def test_a_flag_goes_before_its_variable(shell: Shell) -> None:
    shell.set(BATTEN_NO_SUB_AGENT="1")
    for flags, offered in ([], False), (["--no-sub-agent=false"], True):
        said = shell.play([say("x")], flags=["--output-format", "stream-json", *flags])
        assert ("agent" in said.frames()[0]["tools"]) is offered


def test_a_bare_run_has_no_memory_to_save_to(shell: Shell) -> None:
    said = shell.play([say("x")], flags=["--output-format", "stream-json", "--bare"])
    assert "save_memory" not in said.frames()[0]["tools"]
