"""What a person decides about or reads on a terminal has a mark for each hidden character."""

import msgspec
import pytest

from batten.contract.marks import MARK
from tests.agent.stage import Stage, bash, call, say
from tests.session.processes import batten, running, until

from .invoking import Shell
from .watching import watch

pytestmark = pytest.mark.attack

HIDDEN = "\u200b\u200d\u2060\ufeff\U000e0041\u200f\u061c\u200e\u2066\ufe0f\u00ad\u034f\u3164"
JOINED = "ی\u200cخ"
"""A joiner that prose keeps, and commands and names do not."""


def raw_id(raw: bytes) -> str:
    return str(msgspec.json.decode(raw)["request_id"])


def shows(text: str, hidden: str = HIDDEN) -> bool:
    """Whether any of these characters are there as they are."""
    return any(one in text for one in hidden)


def test_a_question_has_marks_for_hidden_characters_on_the_way_to_its_answer(
    stage: Stage,
) -> None:
    command = f"echo {HIDDEN}{JOINED}"
    model = stage.scenario([bash(command)], [say("x")])
    with running(stage, "--model", model, "--ask-operator", "--progress", "always") as process:
        until(process, "approval.requested")
        listed = batten(stage, "requests").stdout.decode()
        shown = batten(stage, "show", "last").stdout.decode()
        raw = batten(stage, "requests", "--json").stdout
        assert batten(stage, "answer", raw_id(raw), "deny").returncode == 0
        _, err = process.communicate(timeout=20)
    for text in (listed, shown, err.decode()):
        assert f"echo {MARK}" in text
        assert not shows(text)
        assert JOINED not in text
    assert f"echo {MARK * len(HIDDEN)}ی{MARK}خ" in listed
    assert msgspec.json.decode(raw)["input"]["command"] == command, "a program gets it unchanged"


def test_a_timeline_a_denial_and_the_lists_have_marks(shell: Shell) -> None:
    said = shell.play(
        [say(f"say {HIDDEN} {JOINED}"), bash(f"printf 'x{HIDDEN}'", "c1")],
        [call(f"tool{HIDDEN}", "c2", x=1), call("web_fetch", "c3", url=f"https://a{HIDDEN}.b/")],
        [call("write_file", "c4", path=f"a{HIDDEN}{JOINED}b", content=f"x{HIDDEN}\n")],
        [say("bye")],
        prompt=f"title {HIDDEN} 👩‍👧",
        flags=["--permission-mode", "acceptEdits", "--allow", "bash", "--progress", "always"],
    )
    (run_id,) = shell.run_ids()
    commands = (
        ["show", run_id],
        ["runs"],
        ["artifacts", run_id],
        ["diff", run_id, "--color=always"],
    )
    texts = [said.err, *(shell(*command).out.decode() for command in commands)]
    texts.append(shell("revert", run_id).out.decode())
    for text in texts:
        assert MARK in text
        assert not shows(text.replace("👩‍👧", "")), ascii(text)
    assert f"say {MARK * len(HIDDEN)} {JOINED}" in said.err
    assert "👩‍👧" in texts[2]
    assert JOINED not in texts[3] + texts[4] + texts[5], "a path has no use for it"


def test_an_answer_on_a_terminal_has_marks(stage: Stage) -> None:
    model = stage.scenario([say(f"well {HIDDEN} {JOINED} done")])
    shown = watch(stage, "-p", "go", "--model", model).raw.decode()
    assert f"well {MARK * len(HIDDEN)}" in shown
    assert not shows(shown)
    assert JOINED in shown
