"""Kill -9 under load: no acknowledged message is lost, duplicates are known after the restart."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from batten.serve.grpc import wire
from tests.coordination.given import say, start_message
from tests.coordination.published import sdk
from tests.serve.grpc.running import Server, running


class Agent:
    """Starts sessions and sends proposals until the server is gone; remembers what was taken."""

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self.taken: list[Any] = []
        """Envelopes with an acknowledgement."""
        self.unknown: list[Any] = []
        """Envelopes without an answer."""
        self._client = server.client(name)
        self.session_id: str = sdk.new_session_id()

    def envelope(self, number: int) -> Any:
        """SessionStart, then one proposal after another."""
        if number == 0:
            message = start_message(
                sender=self.name, session_id=self.session_id, participants=(self.name,)
            )
        else:
            proposal = say(self.name, "Proposal", proposal_id=f"p{number}", option="x")
            message = replace(proposal, session_id=self.session_id)
        return wire.write_envelope(replace(message, message_id=sdk.new_message_id()))

    def work(self, enough: threading.Event) -> None:
        while not enough.is_set():
            envelope = self.envelope(len(self.taken))
            try:
                self._client.send(envelope, timeout=10)
            except sdk.MacpTransportError:
                self.unknown.append(envelope)
                break
            self.taken.append(envelope)
        self._client.close()


def kill_under_load(home: Path, agents: int, messages: int) -> None:
    with running(home) as server:
        working = [Agent(server, f"agent-{number}") for number in range(agents)]
        enough = threading.Event()
        with ThreadPoolExecutor(agents) as pool:
            futures = [pool.submit(agent.work, enough) for agent in working]
            while sum(len(agent.taken) for agent in working) < messages:
                assert not any(future.done() and future.exception() for future in futures)
                enough.wait(0.005)
            server.kill()
            for future in futures:
                future.result(30)
    with running(home) as again:
        for agent in working:
            client = again.client(agent.name)
            for envelope in agent.taken:
                assert client.send(envelope).duplicate
            for envelope in agent.unknown:
                client.send(envelope)
            sent = [one.message_id for one in agent.taken + agent.unknown]
            stream = client.open_stream()
            stream.send_subscribe(agent.session_id)
            seen = [stream.read(timeout=10).message_id for _ in sent]
            assert seen == sent
            stream.close()
            client.close()


def test_acknowledged_messages_survive_kill_9(tmp_path: Path) -> None:
    kill_under_load(tmp_path, agents=4, messages=100)


@pytest.mark.soak
def test_acknowledged_messages_survive_many_kills_under_load(tmp_path: Path) -> None:
    for round_ in range(20):
        kill_under_load(tmp_path / str(round_ % 4), agents=16, messages=400)
