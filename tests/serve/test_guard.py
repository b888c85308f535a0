"""A process that ends in time and says how, also when it is asked to end as it ends."""

import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agent.stage import Stage, call, say
from tests.campaigns import embedder
from tests.cli.invoking import Shell
from tests.session.processes import BATTEN, PATIENCE_S, environment

from .conversing import Conversation, eventually

SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])


@SIGNALS
def test_a_signal_after_the_result_does_not_change_the_exit_code(
    stage: Stage, number: signal.Signals
) -> None:
    model = stage.scenario([say("well")])
    for step in range(5):
        with subprocess.Popen(
            [BATTEN, "-p", "go", "--model", model, "--output-format", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=stage.workspace,
            env=environment(stage),
        ) as process:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
            assert ready
            assert b'"success"' in process.stdout.readline()
            time.sleep(0.003 * step)
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 0


def test_a_flood_of_signals_neither_stops_it_nor_puts_it_off(stage: Stage) -> None:
    model = stage.scenario([say("x" * 1000, streamMs=60_000)])
    with Conversation(
        stage, "--model", model, "--output-format", "stream-json", "--include-partial-messages"
    ) as talk:
        talk.ask("one")
        talk.until("content_block_delta")
        for _ in range(20_000):
            talk.signal(signal.SIGTERM)
            talk.signal(signal.SIGHUP)
        assert talk.end() == 124
    assert talk.frames()[-1]["subtype"] == "cancelled"


def test_a_program_that_embeds_us_has_its_signals_back(shell: Shell) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert shell.play([say("well")]).code == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_a_loop_that_stands_still_in_a_later_message_is_not_taken_for_the_success_before_it(
    stage: Stage, form: str
) -> None:
    model = stage.scenario([say("First.")], [say("Watch."), call("stuck", how="asleep")])
    with Conversation(
        stage, "--model", model, "--allow", "stuck", "--output-format", form,
        program=(sys.executable, embedder.__file__), BATTEN_WATCHDOG_S="3",
    ) as talk:  # fmt: skip
        talk.ask("one", "two")
        assert talk.end() == 1
    result = talk.frames()[-1]
    assert (result["subtype"], result["last_assistant_text"]) == ("error", "Watch.")
    assert "did not answer" in result["error"]


def test_a_signal_while_modules_are_loaded_is_answered_with_a_result(stage: Stage) -> None:
    """From when our first line has run: earlier, Python itself ends."""
    model = stage.scenario([say("x" * 1000, streamMs=60_000)])
    said: set[bytes] = set()
    for step in range(8):
        with subprocess.Popen(
            [BATTEN, "-p", "go", "--model", model, "--output-format", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=stage.workspace,
            env=environment(stage),
        ) as process:
            _until_signals_are_held(process.pid)
            time.sleep(0.015 * step)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 124
            said.add(out[: len(b'{"type":"result","subtype":"cancelled"')])
    assert said == {b'{"type":"result","subtype":"cancelled"'}


def _until_signals_are_held(pid: int) -> None:
    """SIGTERM is blocked, or taken, from our first line on."""

    def held() -> bool:
        masks = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("Sig")
        )
        waits_or_is_taken = int(masks["SigBlk"], 16) | int(masks["SigCgt"], 16)
        return bool(waits_or_is_taken & 1 << (signal.SIGTERM - 1))

    eventually(held)
