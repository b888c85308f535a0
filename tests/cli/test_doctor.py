"""`batten doctor`: each thing a run needs, found well and found missing."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

from batten.cli.checks.machine import seconds_ahead
from batten.models.probing import probe
from tests.agent.stage import Stage, bash, say
from tests.models.server import Fault, ModelServer, Reply
from tests.ports import free_port
from tests.session.processes import kill_after

from .invoking import Json, Shell, serving

LISTED = b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"data":[]}'


def refused(status: str, *headers: str) -> Reply:
    return ["\r\n".join([f"HTTP/1.1 {status}", *headers, "content-length: 0", "", ""]).encode()]


def findings(shell: Shell, *flags: str) -> list[Json]:
    return list(msgspec.json.decode(shell("doctor", "--json", *flags).out)["findings"])


def about(found: list[Json], subject: str) -> list[Json]:
    return [one for one in found if one["subject"] == subject]


def only(shell: Shell, subject: str, *flags: str) -> Json:
    (found,) = about(findings(shell, *flags), subject)
    return found


def test_a_machine_without_a_model_is_told_what_to_set(shell: Shell) -> None:
    said = shell("doctor")
    assert said.code == 1
    text = " ".join(said.out.decode().split())
    assert "PROBLEM model no model: give --model PROVIDER/MODEL, or set BATTEN_MODEL," in text
    assert "1 problem, 0 warnings: a run cannot work like this" in text
    assert [line for line in said.out.decode().splitlines() if len(line) > 80] == []


def test_a_machine_that_is_ready_is_told_so(shell: Shell) -> None:
    with serving(shell, [[LISTED]]):
        said = shell("doctor")
        as_json = shell("doctor", "--json")
    text = " ".join(said.out.decode().split())
    assert said.code == 0, text
    for words in (
        "ok model anthropic/claude-sonnet-4-6",
        "ok provider anthropic: ANTHROPIC_API_KEY is set, at http://127.0.0.1:",
        "ok provider openai:",
        "ok provider ollama:",
        "ok mcp no MCP server is configured",
        "ok sandbox commands run in the layer ",
        "ok store no run yet;",
        "ok disk",
        "ok clock",
        "0 problems, 0 warnings: nothing stands in the way of a run",
    ):
        assert words in text
    told = msgspec.json.decode(as_json.out)
    assert (as_json.code, told["ok"]) == (0, True)
    assert told["versions"].keys() >= {"batten", "python", "sqlite"}
    assert "test-key" not in text


@pytest.mark.parametrize(
    ("environ", "status", "message"),
    [
        ({"MAESTRO_EVENT_BUS": "1"}, "warning", "nothing is published: missing nats url"),
        ({"NATS_URL": "nats://a:1", "MAESTRO_EVENT_BUS": "0"}, "ok", "off: flag disabled"),
        ({"EVALOPS_NATS_URL": "nats://me:pw@a:1,nats://b:2"}, "ok", "at nats://a:1, nats://b:2;"),
    ],
)
def test_the_event_bus_is_told_of_if_somebody_asked_for_it(
    shell: Shell, environ: dict[str, str], status: str, message: str
) -> None:
    assert about(findings(shell, "--offline"), "event bus") == []
    shell.set(**environ)
    found = only(shell, "event bus", "--offline")
    assert found["status"] == status
    assert found["message"].startswith(message)


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("anthropic", "/v1/models"),
        ("openai", "/v1/models"),
        ("openai-chat", "/v1/models"),
        ("google", "/v1beta/models"),
        ("ollama", "/api/tags"),
        ("compat", "/v1/models"),
    ],
)
async def test_a_provider_is_asked_for_its_models_with_the_key(provider: str, path: str) -> None:
    async with ModelServer([[LISTED]]) as server:
        answer = await probe(provider, server.environ(COMPAT_API_KEY="test-key"), 5)
    (request,) = server.requests
    assert request.line == f"GET {path} HTTP/1.1"
    assert (answer.status, request.body) == (200, b"")
    if provider != "ollama":
        assert "test-key" in " ".join(request.headers.values())


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        (refused("401 Unauthorized"), "problem", "it does not accept the key"),
        (refused("503 Busy"), "warning", "the provider has trouble"),
        (refused("404 Not Found"), "ok", ""),
        ([Fault.CLOSE], "problem", ""),
    ],
)
def test_the_provider_of_the_usual_model_is_judged(
    shell: Shell, reply: Reply, status: str, words: str
) -> None:
    with serving(shell, [reply]) as server:
        for name in ("OPENAI", "GEMINI", "GOOGLE_GEMINI", "OLLAMA", "COMPAT"):
            shell.set(**{f"{name}_BASE_URL": "", f"{name}_API_KEY": ""})
        found = only(shell, "provider", "--timeout", "5")
        assert len(server.requests) == 1
    assert found["status"] == status
    assert words in found.get("remedy", "")


def test_silent_and_unreachable_providers_do_not_hold_up_the_others(shell: Shell) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    with serving(shell, [[Fault.STALL]]):
        shell.set(GOOGLE_GEMINI_BASE_URL=gone, BATTEN_MODEL="google/gemini-2.5-flash")
        found = about(findings(shell, "--timeout", "0.2"), "provider")
    by_name = {one["message"].split(":")[0]: one for one in found}
    assert by_name["google"]["status"] == "problem"
    assert "no connection to 127.0.0.1" in by_name["google"]["message"]
    assert by_name["anthropic"]["status"] == "warning"


def test_offline_asks_nobody(shell: Shell) -> None:
    with serving(shell, [[LISTED]]) as server:
        found = about(findings(shell, "--offline"), "provider")
        assert server.requests == []
    assert all(one["status"] == "ok" and "not asked" in one["message"] for one in found)


def test_offline_finds_the_keys_and_variables_that_are_missing(shell: Shell) -> None:
    config = shell.stage.directory / ".config" / "batten"
    config.mkdir(parents=True)
    servers = {"db": {"command": "serve", "env": {"URL": "${NO_SUCH_VARIABLE}"}}}
    settings = {"model": "anthropic/claude-sonnet-4-6", "mcpServers": servers}
    (config / "settings.json").write_bytes(msgspec.json.encode(settings))
    found = {one["subject"]: one for one in findings(shell, "--offline")}
    assert found["provider"]["status"] == found["mcp"]["status"] == "problem"
    assert "ANTHROPIC_API_KEY" in found["provider"]["message"]
    assert "NO_SUCH_VARIABLE" in found["mcp"]["message"]


def test_a_wrong_clock_is_noticed_by_the_servers_answer(shell: Shell) -> None:
    late = refused("200 OK", "date: Mon, 01 Jan 2024 00:00:00 GMT")
    with serving(shell, [late]):
        found = only(shell, "clock")
    assert found["status"] == "warning"
    assert "ahead of the servers that answered" in found["message"]
    assert seconds_ahead("no date") is None


def test_mcp_servers_are_started_and_judged_as_they_are_required(
    shell: Shell, tmp_path: Path
) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        "from mcp.server import MCPServer\n"
        "s = MCPServer('t')\n"
        "@s.tool()\n"
        "def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "s.run()\n"
    )
    config = shell.stage.directory / ".config" / "batten"
    config.mkdir(parents=True)
    servers = {
        "good": {"command": sys.executable, "args": [str(server)]},
        "gone": {"command": "/no/such/program"},
        "needed": {"command": "/no/such/program", "required": True},
    }
    (config / "settings.json").write_bytes(msgspec.json.encode({"mcpServers": servers}))
    found = {one["message"].split()[0]: one for one in about(findings(shell), "mcp")}
    assert {name: one["status"] for name, one in found.items()} == {
        "good": "ok", "gone": "warning", "needed": "problem",
    }  # fmt: skip
    assert found["good"]["message"] == "good (stdio): 1 tools"
    assert only(shell, "mcp", "--offline")["message"] == "good, gone, needed: not started"


def test_an_entry_point_that_no_package_has_is_a_problem(shell: Shell) -> None:
    config = shell.stage.directory / ".config" / "batten"
    config.mkdir(parents=True)
    (config / "settings.toml").write_text('[entry_points]\ntools = ["word"]\n')
    found = only(shell, "settings")
    assert found["status"] == "problem"
    assert "the entry point 'word'" in found["message"]


def test_settings_that_cannot_be_read_are_a_problem(shell: Shell) -> None:
    config = shell.stage.directory / ".config" / "batten"
    config.mkdir(parents=True)
    (config / "settings.json").write_text("{")
    found = only(shell, "settings")
    assert found["status"] == "problem"
    assert "settings.json" in found["message"]


def test_a_check_that_fails_is_a_finding_among_the_others(shell: Shell) -> None:
    shell.set(BATTEN_PRICES="/no/such/prices.json", ANTHROPIC_API_KEY="k")
    found = findings(shell, "--offline")
    assert only(shell, "clock", "--offline")["status"] == "problem"
    assert "/no/such/prices.json" in only(shell, "clock", "--offline")["message"]
    assert {"versions", "model", "sandbox", "store", "disk"} <= {one["subject"] for one in found}


def test_a_damaged_store_is_a_problem(shell: Shell) -> None:
    shell.play([say("I look.")])
    assert only(shell, "store")["message"].endswith("the newest 1 runs are sound")
    database = shell.stage.home / "journal.db"
    data = database.read_bytes()
    database.write_bytes(data.replace(b"I look.", b"I loot."))
    found = only(shell, "store")
    assert found["status"] == "problem"
    assert "`batten verify`" in found["remedy"]


def test_a_run_without_its_process_and_a_lost_key_are_warnings(shell: Shell) -> None:
    shell.set(SERVICE_TOKEN="tok-0123456789-abcdefghij")
    shell.play([say("well")], prompt="use tok-0123456789-abcdefghij")
    model = shell.stage.scenario([bash("sleep 60")], [say("x")])
    run_id = kill_after(shell.stage, "tool.shell.command", "--model", model, "--allow", "bash")
    assert len(about(findings(shell), "store")) == 2
    (shell.stage.home / "seal.key").unlink()
    warnings = [one for one in about(findings(shell), "store") if one["status"] == "warning"]
    messages = " ".join(one["message"] for one in warnings)
    assert run_id in messages
    assert "seal.key is missing" in messages


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_cannot_be_written_is_a_problem(shell: Shell) -> None:
    shell.set(BATTEN_HOME="/proc/nowhere")
    assert only(shell, "store")["status"] == "problem"


def test_a_home_that_is_a_file_or_open_to_others_is_said(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shell.set(BATTEN_HOME=str(tmp_path / "file"))
    assert only(shell, "store")["status"] == "problem"
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    shell.set(BATTEN_HOME=str(tmp_path / "open"))
    first = about(findings(shell), "store")[0]
    assert (first["status"], first["remedy"]) == ("warning", f"chmod 700 {tmp_path / 'open'}")


def test_the_sandbox_and_why_it_is_not_stronger(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    found = only(shell, "sandbox")
    assert "the layer landlock" in found["message"]
    assert "bubblewrap, the stronger layer, is not installed" in found["message"]


def test_a_place_that_is_no_directory_is_a_usage_error(shell: Shell) -> None:
    assert shell("doctor", "/no/such/place").code == 64


def test_doctor_writes_nothing(stage: Stage, shell: Shell) -> None:
    before = sorted(stage.directory.rglob("*"))
    shell("doctor", "--offline")
    after = [path for path in sorted(stage.directory.rglob("*")) if path.parent != stage.directory]
    assert after == [path for path in before if path.parent != stage.directory]
