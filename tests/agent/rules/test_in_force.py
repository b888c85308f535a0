"""Rules while a call runs: what searches show, where redirects lead, what starts at all."""

import pytest

from batten.contract.errors import CallerError
from batten.contract.facts import PolicyToolDecided, ToolCompleted, ToolFailed
from tests.agent.stage import Played, Stage, call, say
from tests.tools.web_server import web_server


def texts(played: Played) -> list[str]:
    """What the model was told by its calls, in their order."""
    return [str(fact.output) for kind in (ToolCompleted, ToolFailed) for fact in played.all(kind)]


async def test_a_search_shows_nothing_of_a_file_that_must_not_be_read(stage: Stage) -> None:
    (stage.workspace / "sub").mkdir()
    (stage.workspace / "sub" / ".env").write_text("needle = 1\n")
    (stage.workspace / "sub" / "open.txt").write_text("needle = 2\n")
    model = stage.scenario(
        [
            call("grep", "c1", pattern="needle"),
            call("grep", "c2", pattern="needle", path="sub/.env"),
        ],
        [call("glob", "c3", pattern="**/.env"), call("read_file", "c4", file_path="sub/.env")],
        [say("done")],
    )
    played = await stage.run("--model", model, "--deny", "Read(.env)")
    shown = "\n".join(texts(played))
    assert "needle = 2" in shown
    assert "needle = 1" not in shown
    verdicts = {fact.tool_call_id: fact.verdict for fact in played.all(PolicyToolDecided)}
    assert verdicts == {"c1": "allow", "c2": "deny", "c3": "allow", "c4": "deny"}


async def test_a_redirect_is_held_to_the_rules_of_its_call(stage: Stage) -> None:
    stage.environ["BATTEN_HTTP_ALLOW"] = "127.0.0.1,localhost"
    async with web_server() as server:
        server.page("/end", b"secret place")
        elsewhere = server.redirect("/start", f"http://localhost:{server.port}/end")
        here = server.redirect("/here", "/end")
        model = stage.scenario(
            [call("web_fetch", "c1", url=elsewhere), call("web_fetch", "c2", url=here)],
            [say("done")],
        )
        played = await stage.run("--model", model, "--allow", "WebFetch(domain:127.0.0.1)")
        (completed,) = played.all(ToolCompleted)
        (failed,) = played.all(ToolFailed)
        assert completed.tool_call_id == "c2"
        assert failed.tool_call_id == "c1"
        assert len(server.requests) == 3


@pytest.mark.parametrize("rule", ["Reed(.env)", "bsh"])
async def test_a_rule_about_no_tool_ends_the_start(stage: Stage, rule: str) -> None:
    model = stage.scenario([say("done")])
    with pytest.raises(CallerError, match="names no tool"):
        await stage.run("--model", model, "--deny", rule)
