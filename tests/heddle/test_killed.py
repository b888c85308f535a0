"""A worker killed in the middle of a send: what was shown is stored, and the work goes on."""

import msgspec

from tests.agent.stage import Stage, bash, end, say
from tests.heddle.working import Json, Worker, events, init, working
from tests.session.processes import batten


async def killed(worker: Worker) -> tuple[str, list[Json]]:
    """Kill a worker while a tool of its send runs; the session, and what was heard of it."""
    greeted = await worker.ask(init(), "init_ok")
    await worker.say({"type": "send", "id": "s", "message": "go"})
    heard = await worker.until("tool_start")
    worker.process.kill()
    await worker.process.wait()
    return greeted["session_id"], heard


def runs(stage: Stage) -> list[Json]:
    return [msgspec.json.decode(one) for one in batten(stage, "runs", "--json").stdout.splitlines()]


def stored(stage: Stage, run_id: str) -> list[Json]:
    lines = batten(stage, "events", run_id).stdout.splitlines()
    return [msgspec.json.decode(line) for line in lines]


async def test_what_was_shown_is_stored_and_the_send_is_finished_by_who_goes_on(
    stage: Stage,
) -> None:
    model = stage.scenario([*[say("word ")] * 300, bash("sleep 300", "c1")], [say("Done."), end()])
    async with working(stage, "--model", model) as worker:
        session_id, heard = await killed(worker)
    (run,) = runs(stage)
    before = stored(stage, run["run_id"])
    deltas = [one["data"]["delta"] for one in before if one["type"] == "assistant.text_delta"]
    shown = [event["text"] for event in events(heard, "content_delta")]
    assert deltas[: len(shown)] == shown == ["word "] * 300
    assert before[-1]["type"] in ("tool.invoked", "tool.started", "tool.shell.command")
    allowed = ("--permission-mode", "dontAsk", "--sandbox", "none")
    ended = batten(stage, "-p", "--resume", session_id, *allowed)
    assert (ended.returncode, ended.stdout) == (0, b"Done.\n")
    after = stored(stage, run["run_id"])
    assert after[: len(before)] == before, "nothing that was stored has changed"
    assert [one["sequence"] for one in after] == list(range(len(after)))
    assert after[-1]["type"] == "run.finished"
    assert batten(stage, "verify").returncode == 0


async def test_another_worker_starts_where_one_was_killed(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([bash("sleep 300")])) as worker:
        first, _ = await killed(worker)
    model = stage.scenario([say("Hello."), end()], name="after")
    async with working(stage, "--model", model) as worker:
        second = (await worker.ask(init(), "init_ok"))["session_id"]
        assert second != first
        assert (await worker.send("s"))[-1]["response"] == "Hello."
    assert batten(stage, "verify").returncode == 0
