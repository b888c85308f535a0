"""Agents of ours and programs that connect over gRPC decide together in `batten decide`."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.control.coordination.panels import act, scripted
from tests.coordination.published import core, sdk

TOKENS = {"ben": "ben-token", "cem": "cem-token", "agent": "stolen-token"}


class Deciding:
    """A running `batten decide` with the agent `agent` and these programs."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.address = address

    def client(self, name: str) -> Any:
        auth = sdk.AuthConfig.for_bearer(TOKENS[name], expected_sender=name)
        return sdk.MacpClient(
            target=self.address, allow_insecure=True, auth=auth, default_timeout=20
        )

    def result(self) -> tuple[int, list[dict[str, Any]]]:
        """The exit code, and what it printed."""
        assert self.process.stdout is not None
        frames = [json.loads(line) for line in self.process.stdout]
        return self.process.wait(30), frames


@contextmanager
def deciding(folder: Path, model: str, *flags: str) -> Generator[Deciding]:
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps([{"token": t, "sender": name} for name, t in TOKENS.items()]))
    (folder / "about.txt").write_text("a patch of two lines")
    (folder / "work").mkdir()
    clean = {name: value for name, value in os.environ.items() if "MACP" not in name}
    command = [sys.executable, "-m", "batten", "decide", "Merge it?", "--json", "--bare"]
    command += ["--agents", f"agent={model}", "--about", str(folder / "about.txt")]
    command += ["--bind", "127.0.0.1:0", "--tokens", str(tokens), *flags]
    process = subprocess.Popen(
        command,
        env={**clean, "BATTEN_HOME": str(folder / "home")},
        cwd=folder / "work",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert "may connect to" in line, line + process.stderr.read()
        yield Deciding(process, line.split()[-1])
    finally:
        process.kill()
        process.wait(10)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def asked(client: Any, name: str) -> Any:
    """The session in which this program is asked, once there is one."""
    for event in sdk.SessionLifecycleWatcher(client).changes():
        if name in event.session.participants:
            return event.session
    raise AssertionError("the watch has ended")


def read_until(client: Any, session_id: str, message_type: str) -> list[Any]:
    """The messages of a session, up to the first of a type."""
    found: list[Any] = []
    with closing(client.open_stream()) as stream:
        stream.send_subscribe(session_id)
        while not found or found[-1].message_type != message_type:
            found.append(stream.read(timeout=20))
    return found


def proposing(folder: Path) -> str:
    """A model that proposes, votes, and then has nothing to add."""
    acts = (act("propose", option="merge"), act("vote", vote="APPROVE", reason="small"))
    silent: list[list[dict[str, Any]]] = [[] for _ in range(6)]
    return scripted(folder, "agent", *([one] for one in acts), *silent)


@pytest.mark.parametrize(
    ("vote", "outcome", "code"), [("APPROVE", "approved", 0), ("REJECT", "declined", 3)]
)
def test_an_agent_and_a_program_decide_together(
    tmp_path: Path, vote: str, outcome: str, code: int
) -> None:
    with deciding(tmp_path, proposing(tmp_path), "--connected", "ben, cem") as panel:
        with closing(panel.client("ben")) as ben, closing(panel.client("cem")) as cem:
            session = asked(ben, "ben")
            start, *_, proposal = read_until(ben, session.session_id, "Proposal")
            told = core.SessionStartPayload.FromString(start.payload)
            for client in (ben, cem):
                mine = sdk.DecisionSession(client, session_id=session.session_id)
                mine.vote("p1", vote)
        ended, frames = panel.result()
    assert (list(session.participants), session.initiator) == (["agent", "ben", "cem"], "batten")
    assert told.intent == "Merge it?"
    assert json.loads(told.extensions["batten.question"]) == {"about": "a patch of two lines"}
    assert proposal.sender == "agent"
    assert (ended, frames[-1]["outcome"], frames[-1]["by"]) == (code, outcome, "batten")
    said = [one["data"] for one in frames if one["type"] == "macp.message_accepted"]
    senders = [one["sender"] for one in said if one["message_type"] == "Vote"]
    assert sorted(senders) == ["agent", "ben", "cem"]
    assert frames[-1]["failures"] == {}


def test_no_program_acts_in_the_name_of_an_agent(tmp_path: Path) -> None:
    with deciding(tmp_path, proposing(tmp_path), "--connected", "ben") as panel:
        with closing(panel.client("ben")) as ben, closing(panel.client("agent")) as thief:
            session_id = asked(ben, "ben").session_id
            read_until(ben, session_id, "Proposal")
            with pytest.raises(sdk.MacpAckError) as refused:
                sdk.DecisionSession(thief, session_id=session_id).vote("p1", "REJECT")
            sdk.DecisionSession(ben, session_id=session_id).vote("p1", "APPROVE")
        ended, _ = panel.result()
    assert (refused.value.failure.code, ended) == ("UNAUTHENTICATED", 0)


def test_what_there_is_counts_when_a_program_never_answers(tmp_path: Path) -> None:
    flags = ("--connected", "ben", "--timeout", "3")
    with deciding(tmp_path, proposing(tmp_path), *flags) as panel:
        ended, frames = panel.result()
    assert (ended, frames[-1]["outcome"]) == (0, "approved")
    assert frames[-1]["reason"] == "1 approve and 0 reject p1: merge"
