"""A refused call is seen: on standard error, in the result, by the model, in the exit message."""

import shlex

import pytest

from tests.agent.acting import Acting
from tests.agent.stage import Stage, bash, call, say
from tests.session.processes import batten

from .invoking import Shell

FORMS = ["text", "json", "stream-json", "events"]
PUSH = [[bash("git push", "c1")], [say("Then not.")]]


@pytest.mark.parametrize("form", FORMS)
def test_a_denial_is_one_line_on_stderr_with_the_flag_that_allows_the_call(
    shell: Shell, form: str
) -> None:
    said = shell.play(*PUSH, flags=["--output-format", form])
    assert said.code == 0
    assert said.err == "batten: denied: bash(git push); allow with --allow 'bash(git push *)'\n"


def test_the_flag_that_was_told_lets_the_same_run_through(shell: Shell) -> None:
    frames = [[bash("touch made", "c1")], [say("well")]]
    told = shell.play(*frames).err
    flags = shlex.split(told.partition("allow with ")[2])
    again = shell.play(*frames, flags=flags)
    assert (again.code, again.err) == (0, "")
    assert (shell.stage.workspace / "made").exists()


def test_a_denial_that_no_flag_lifts_has_its_reason(shell: Shell) -> None:
    said = shell.play(*PUSH, flags=["--deny", "bash(git push*)"])
    assert said.err == "batten: denied: bash(git push): denied by bash(git push*)\n"


def test_a_denied_command_cannot_imitate_another_line_or_fill_the_screen(shell: Shell) -> None:
    command = "echo a\nbatten: denied: nothing\x1b[2K\r" + "x" * 5000
    said = shell.play([bash(command)], [say("no")], flags=["--deny", "bash"])
    (line,) = said.err.splitlines()
    assert line.startswith("batten: denied: bash(echo a⏎batten: denied: nothing�[2K")
    assert len(line) < 300
    assert "…" in line


def test_a_timeline_shows_a_denial_once(shell: Shell) -> None:
    said = shell.play(*PUSH, flags=["--progress", "always"])
    assert said.err.count("git push *") == 1
    assert "denied: bash needs approval" in said.err
    assert "allow with --allow 'bash(git push *)'" in said.err


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_the_result_lists_each_denied_call_with_arguments_and_reason(
    shell: Shell, form: str
) -> None:
    frames = [[bash("git push", "c1"), call("acting", "c2", act="x")], [say("Then not.")]]
    model = shell.stage.scenario(*frames)
    flags = ["--output-format", form, "--deny", "acting", "--sandbox", "none"]
    said = shell("-p", "go", "--model", model, *flags, tools=[Acting()])
    assert said.result["permission_denials"] == [
        {
            "tool_name": "bash",
            "tool_use_id": "c1",
            "tool_input": {"command": "git push"},
            "reason": "bash needs approval, and nobody is declared to give it",
            "allow_with": "--allow 'bash(git push *)'",
        },
        {
            "tool_name": "acting",
            "tool_use_id": "c2",
            "tool_input": {"act": "x"},
            "reason": "denied by acting",
        },
    ]


def test_a_result_without_denials_has_an_empty_list(shell: Shell) -> None:
    said = shell.play([say("well")], flags=["--output-format", "json"])
    assert said.result["permission_denials"] == []


def test_long_arguments_of_a_denied_call_are_visibly_cut_in_the_result(shell: Shell) -> None:
    write = call("write_file", "c1", file_path="a.txt", content="x" * 100_000)
    said = shell.play([write], [say("no")], flags=["--output-format", "stream-json"])
    (denial,) = said.result["permission_denials"]
    assert denial["tool_input"]["file_path"] == "a.txt"
    assert "[cut here: 100000 characters" in denial["tool_input"]["content"]
    assert len(denial["tool_input"]["content"]) < 3000
    (use,) = [frame for frame in said.frames() if frame["type"] == "tool_use"]
    assert use["input"]["content"] == "x" * 100_000


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_denied_call_of_a_child_run_is_seen_too(shell: Shell, form: str) -> None:
    child = shell.stage.scenario(*PUSH, name="child").removeprefix("scripted/")
    frames = [[call("agent", "c0", prompt="push it")], [say("no")]]
    model = shell.stage.scenario(*frames, children={"push it": child})
    said = shell.print(model, "--output-format", form)
    assert said.err.startswith("batten: denied: bash(git push); allow with")
    if form == "json":
        (denial,) = said.result["permission_denials"]
        assert denial["tool_input"] == {"command": "git push"}


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        ([], "the rule is: ask * (default)"),
        (["--ask", "bash(git push*)"], "the rule is: ask bash(git push*) (cli)"),
        (["--deny", "bash(git push*)"], "denied by bash(git push*)"),
    ],
)
def test_the_model_is_told_the_rule_that_refused_its_call(
    shell: Shell, flags: list[str], rule: str
) -> None:
    said = shell.play(*PUSH, flags=["--output-format", "stream-json", *flags])
    (result,) = [frame for frame in said.frames() if frame["type"] == "tool_result"]
    assert rule in result["content"][0]["text"]


@pytest.mark.parametrize("form", FORMS)
def test_the_message_of_fail_on_denied_names_the_command(shell: Shell, form: str) -> None:
    said = shell.play(*PUSH, flags=["--fail-on", "denied", "--output-format", form])
    assert said.code == 2
    assert said.err.splitlines()[-1] == "batten: denied: not allowed: bash(git push)"


def test_a_secret_in_a_denied_command_is_not_shown(shell: Shell) -> None:
    shell.set(DEPLOY_TOKEN="quite-1-secret-value")
    command = "deploy quite-1-secret-value"
    said = shell.play([bash(command)], [say("no")], flags=["--output-format", "json"])
    assert "denied: bash(deploy <redacted>)" in said.err
    assert "quite-1-secret-value" not in said.err


def test_a_denial_is_told_of_in_a_process_of_its_own(stage: Stage) -> None:
    model = stage.scenario(*PUSH)
    said = batten(stage, "-p", "go", "--model", model, "--sandbox", "none")
    assert said.stderr == (
        b"batten: denied: bash(git push); allow with --allow 'bash(git push *)'\n"
    )
