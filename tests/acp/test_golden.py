"""Whole conversations, line by line: what the page on the protocol shows is what is said."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.acp.wire import Wire, wire
from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.contract.journals import ROOT

GOLDEN = Path(__file__).parent / "golden"
SCENARIOS: dict[str, Sequence[Sequence[Statement]]] = {
    "turn": [[say("Let me look."), bash("cat a.txt", "c1")], [say("It says hello."), end()]],
    "edit": [
        [call("edit_file", "c1", file_path="a.txt", old_string="hello", new_string="goodbye")],
        [end()],
    ],
    "cancel": [[bash("sleep 60", "c1")], [end()]],
    "form": [[call("ask_user", "c1", question="Which?", options=["a", "b"])], [say("b"), end()]],
}


def test_every_conversation_is_played() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(SCENARIOS)


def test_the_page_is_what_its_script_writes() -> None:
    script = ROOT / "scripts" / "generate_acp_page.py"
    checked = subprocess.run([sys.executable, script, "--check"], check=False)
    assert checked.returncode == 0, f"run {script.name}"


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_conversation_goes_as_it_is_written_down(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    (stage.workspace / "a.txt").write_text("hello\n")
    written = (GOLDEN / f"{name}.txt").read_text().splitlines()
    async with wire(stage, model=stage.scenario(*SCENARIOS[name])) as at:
        assert await played(at, stage, written) == written


async def played(at: Wire, stage: Stage, written: list[str]) -> list[str]:
    """Say what the client says; the conversation with what was really answered."""
    heard: list[str] = []
    session_id = ""
    for line in written:
        if line.startswith("> "):
            said = line[2:].replace('"cwd":"/w"', f'"cwd":"{stage.workspace}"')
            said = said.replace('"sessionId":"…"', f'"sessionId":"{session_id}"')
            at.say(said.encode() + b"\n")
            heard.append(line)
        else:
            answered = await at.line()
            found = re.search('"sessionId":"([^"]+)"', answered)
            session_id = session_id if found is None else found[1]
            heard.append(f"< {normal(answered, stage)}")
    return heard


def normal(line: str, stage: Stage) -> str:
    """Without what differs from one place and one time to the next."""
    line = line.replace(str(stage.workspace), "/w").replace(f"{stage.directory}/", "")
    line = re.sub(r'"(sessionId|updatedAt|version)":"[^"]+"', r'"\1":"…"', line)
    return re.sub(r"run_[0-9A-Z]{26}", "run", line)
