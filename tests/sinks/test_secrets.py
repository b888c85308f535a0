"""Planted secrets: none of a secret reaches any receiver, nor a file of the sinks."""

import asyncio
import secrets
from pathlib import Path

import msgspec

from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import Stage, bash, call, end, say
from tests.session.processes import batten
from tests.sinks.http_receiver import http_receiver
from tests.sinks.nats_server import nats_server

PIECE = 12


def leaks(planted: list[str], data: bytes) -> list[str]:
    """Stretches of a secret: a cut one is a leak too."""
    return [
        piece
        for secret in planted
        for start in range(5, len(secret) - PIECE + 1)
        if (piece := secret[start : start + PIECE]).encode() in data
    ]


async def test_no_receiver_and_no_file_of_a_sink_has_a_piece_of_a_secret(tmp_path: Path) -> None:
    known, shaped = f"hush-{secrets.token_hex(20)}", f"ghp_{secrets.token_hex(18)}"
    token, signing = f"tok-{secrets.token_hex(20)}", f"sign-{secrets.token_hex(20)}"
    planted = [known, shaped, token, signing]
    async with http_receiver() as hooks, nats_server(tmp_path, token=token) as server:
        stage = Stage(
            tmp_path / "stage",
            {
                "MY_API_KEY": known,
                "SIGNING_SECRET": signing,
                "MAESTRO_EVENT_BUS_URL": server.url.replace("nats://", f"nats://{token}@"),
                "MAESTRO_EVENT_BUS_TOKEN": token,
                "OTEL_ENABLED": "1",
                "MAESTRO_EVENT_BUS_ATTR_NOTE": f"use {known}",
                "MAESTRO_OBJECTIVE_ID": f"objective-{shaped}",
                "MAESTRO_PROMPT_NAME": "system",
                "MAESTRO_PROMPT_LABEL": f"label-{known}",
                "MAESTRO_PROMPT_HASH": f"hash-{shaped}",
                "MAESTRO_PROMPT_SOURCE": "override",
                "OTEL_EXPORTER_OTLP_ENDPOINT": hooks.url.removesuffix("/hook"),
            },
        )
        await server.add_stream()
        table = {
            "sinks": {
                "webhooks": {"all": {"url": hooks.url, "secret": "$SIGNING_SECRET"}},
                "allow": ["127.0.0.0/8"],
                "tell_within_s": 30,
            }
        }
        (stage.workspace / "key").write_text(f"key = {known}\ntoken = {shaped}\n")
        model = stage.scenario(
            [call("read_file", path="key")],
            [bash(f"echo {shaped}; env; echo {known} >&2; exit 3")],
            [call("save_memory", content=f"The key is {known} or {shaped}.", scope="project")],
            [call("web_fetch", url=f"http://127.0.0.1:1/?key={known}")],
            [say(f"It is {known}, or {shaped}."), end()],
        )
        flags = ("--sandbox", "none", "--auto-allow", "--settings")
        said = ("-p", f"Use {known} and {shaped}.", *flags, msgspec.json.encode(table).decode())
        score = {"tool_call_id": "c", "score": 0.1, "rationale": f"it said {known} and {shaped}"}
        report = ("annotate", "last", "eval.scored", msgspec.json.encode(score).decode())
        for words in ((*said, "--model", model), report, (*said, "--model", model)):
            ended = await asyncio.to_thread(batten, stage, *words)
            assert ended.returncode == 0, ended.stderr
        assert len(hooks.taken) > 5
        events = await server.messages()
        types = {msgspec.json.decode(one.data)["type"].rpartition(".")[2] for one in events}
        assert {"started", "selected", "attempted", "completed", "learned", "scored"} <= types
        for one in hooks.all:
            assert not leaks(planted, one.body + msgspec.json.encode([one.path, one.headers]))
        for one in events:
            assert not leaks(planted, one.data + msgspec.json.encode(dict(one.headers)))
        for command in (("audit", "--json"), ("sinks", "list"), ("sinks", "log", "--json")):
            shown = batten(stage, *command)
            assert not leaks(planted, shown.stdout + shown.stderr), command
        for path in stage.home.rglob("*"):
            if path.is_file() and path.name.startswith(("sinks.db", "audit.db")):
                assert not leaks(planted, path.read_bytes()), path
        journal = SqliteJournal.open(stage.home, read_only=True)
        assert await journal.position() > 10
        journal.close()
