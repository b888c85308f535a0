"""A conversation over real pipes: what is agreed, what is refused, and in which order it goes."""

from itertools import groupby

import msgspec
import pytest

from tests.agent.stage import Stage, bash, end, say
from tests.maestro.schemas import OUTGOING, PRESENT, PUBLISHED, Json, Published, checked
from tests.maestro.shapes import MESSAGES, problem
from tests.maestro.speaking import Speaker, speaking

DONE = [say("Done."), end()]


async def test_a_greeting_is_echoed_and_the_last_one_counts(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        greeted = await client.hello(
            *("approval", "tool_retry", "approval"),
            client_info={"name": "cp", "version": "0.1"},
            role="controller",
            opt_out_notifications=["status", "connection_info", "status"],
        )
        expected = {
            "connection_id": "local",
            "client_protocol_version": "2026-04-02",
            "client_info": {"name": "cp", "version": "0.1"},
            "role": "controller",
            "controller_connection_id": "local",
            "lease_expires_at": None,
            "opt_out_notifications": ["status", "connection_info"],
        }
        assert expected.items() <= greeted.items()
        assert greeted["capabilities"]["server_requests"] == ["approval", "tool_retry"]
        assert greeted["server_capabilities"] == {
            "server_requests": [
                "approval",
                "client_tool",
                "mcp_elicitation",
                "user_input",
                "tool_retry",
            ],
            "utility_operations": ["command_exec", "file_search", "file_watch", "file_read"],
            "raw_agent_events": True,
            "connection_roles": ["controller", "viewer"],
        }
        client.say("init")  # answered by a status, which is not wanted
        await client.prompt()
        assert client.of("status") == client.of("connection_info") == []
        client.say("hello", protocol_version="2025-01-01")
        again = await client.until("hello_ok")
        assert "capabilities" not in again
        assert "opt_out_notifications" not in again
        info = await client.until("connection_info")
        assert info["connection_count"] == 1
        spoken = "Client protocol 2025-01-01 attached to server 2026-04-02"
        await client.until("status", message=spoken)


async def test_lines_that_are_no_messages_are_refused_and_the_next_one_is_taken(
    stage: Stage,
) -> None:
    bad = (
        b"\n   \n",
        b"{nonsense\n",
        b"[1,2]\n",
        b'"text"\n',
        b'{"type":"sing"}\n',
        b'{"no":"type"}\n',
        b'{"type":"prompt"}\n',
        b'{"type":"init","thinking_level":"deep"}\n',
        b'{"type":"client_tool_result","call_id":"c","is_error":false,"content":[{"type":"x"}]}\n',
        b"\xff\xfe{}\n",
        b"[" * 100_000 + b"\n",
    )
    async with speaking(stage, DONE) as client:
        await client.hello()
        for line in bad:
            client.write(line)
        client.say("init", something_new=1)
        await client.until("status", message="Init received with no changes")
        errors = client.of("error")
        assert len(errors) == len(bad) - 1  # blank lines are nothing
        assert {(one["fatal"], one["error_type"]) for one in errors} == {(False, "protocol")}
        assert all(one["message"].startswith("Failed to parse command: ") for one in errors)
        assert errors[3]["message"] == "Failed to parse command: Unknown headless command type"
        await client.prompt()
        # JavaScript writes half a character where it cut a text.
        client.write(b'{"type":"hello","client_info":{"name":"cut \\ud83d"}}\n')
        greeted = await client.until("hello_ok")
        assert greeted["client_info"] == {"name": "cut \ufffd"}


async def test_raw_events_come_before_what_is_made_of_them_and_only_to_who_asks(
    stage: Stage,
) -> None:
    async with speaking(stage, [bash("echo hi", "c1")], DONE, DONE) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        await client.prompt()
        assert client.of("raw_agent_event") == []
        # What is allowed without being asked about says nothing of approvals.
        assert client.of("server_request") == client.of("server_request_resolved") == []
        assert [one["requires_approval"] for one in client.of("tool_call")] == [False]
        await client.hello_again(raw_agent_events=True)
        shown = await client.prompt()
    kinds = [(one["type"], one.get("event_type")) for one in shown]
    kinds = kinds[kinds.index(("raw_agent_event", "run.queued")) :]
    raw = [event for kind, event in kinds if kind == "raw_agent_event"]
    assert raw[:3] == ["run.queued", "run.started", "user.message"]
    assert raw[-1] == "run.finished"
    assert "turn.started" in raw  # which nothing is made of
    starts = kinds.index(("response_start", None))
    assert kinds[starts - 1] == ("raw_agent_event", "run.started")
    chunk = kinds.index(("response_chunk", None))
    assert kinds[chunk - 1] == ("raw_agent_event", "assistant.text_delta")
    (queued,) = (one["event"] for one in shown if one.get("event_type") == "run.queued")
    assert (queued["type"], queued["sequence"]) == ("run.queued", 0)


async def test_the_canonical_transcript_is_spoken_in_its_order(stage: Stage) -> None:
    command = "echo x | tee -a tries > hello.txt; wc -l < tries; test $(wc -l < tries) = 2"
    frames = [[bash(command, "call_write_1")], [say("Created hello.txt after a retry."), end()]]
    async with speaking(stage, *frames) as client:
        await client.hello("approval", "tool_retry", capabilities={"raw_agent_events": False})
        client.say(
            "init", append_system_prompt="Be exact.", thinking_level="off", approval_mode="prompt"
        )
        client.say("prompt", content="Create hello.txt and retry once if the first write fails.")
        approval = await client.until("server_request")
        client.say(
            "server_request_response",
            request_id=approval["request_id"],
            request_type="approval",
            approved=True,
            result={"success": True, "output": "Approved by the test"},
        )
        retry = await client.until("server_request")
        client.say(
            "server_request_response",
            request_id=retry["request_id"],
            request_type="tool_retry",
            decision_action="retry",
            reason="Once more.",
        )
        ended = await client.until("response_end")
    dull = ("status", "connection_info", "session_info", "tool_call")
    spoken = [one for one in client.kinds() if one not in dull]
    assert [kind for kind, _ in groupby(spoken)] == [
        *("hello_ok", "ready", "response_start"),
        *("server_request", "server_request_resolved", "tool_start", "tool_output", "tool_end"),
        *("server_request", "server_request_resolved", "tool_start", "tool_output", "tool_end"),
        *("response_chunk", "response_end"),
    ]
    _check_requests(client)
    reasons = [one["reason"] for one in client.of("server_request_resolved")]
    assert reasons == ["Approved by the test", "Once more."]
    assert retry["call_id"] == approval["call_id"] == "call_write_1"
    assert retry["request_id"] != approval["request_id"]
    ends = client.of("tool_end")
    assert [(one["success"], one.get("error_code")) for one in ends] == [
        (False, "exit_status"),
        (True, None),
    ]
    usage = ended["usage"]
    counters = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    assert usage["total_tokens"] == sum(usage[name] for name in counters)
    summary = ended["tools_summary"]
    assert (summary["calls_succeeded"], summary["calls_failed"]) == (1, 1)
    assert len(summary["summary_labels"]) == 2
    assert ended["ttft_ms"] <= ended["duration_ms"]


def _check_requests(client: Speaker) -> None:
    """Each request is resolved once, after it, under the same names and times."""
    requests = client.of("server_request")
    resolved = client.of("server_request_resolved")
    assert len({one["request_id"] for one in requests}) == len(requests) == len(resolved)
    for request, resolution in zip(requests, resolved, strict=True):
        for name in ("request_id", "request_type", "call_id", "started_at_ms"):
            assert request[name] == resolution[name]
        assert resolution["resolved_at_ms"] >= request["started_at_ms"]
        assert client.heard.index(resolution) > client.heard.index(request)


DULL = ("raw_agent_event", "status", "connection_info", "session_info", "tool_call")
"""What the transcript leaves out, and a server may say."""


SAME = (
    *("protocol_version", "client_protocol_version", "role", "request_type", "call_id"),
    *("resolution", "resolved_by", "success", "is_thinking"),
)
"""What every server says as the transcript does."""


@pytest.mark.skipif(not PRESENT, reason="the published fixtures are not here")
async def test_the_published_transcript_is_replayed_word_by_word(stage: Stage) -> None:
    transcript = PUBLISHED / "headless-conformance-v1.json"
    steps = [
        (step["direction"] == "client_to_agent", step["message"])
        for step in msgspec.json.decode(transcript.read_bytes())["steps"]
    ]
    command = "echo x >> tries; test $(wc -l < tries) = 2 && echo hello > hello.txt; cat tries"
    frames = [[bash(f"{command}; test -e hello.txt", "call_write_1")], [say("Created."), end()]]
    requests: list[str] = []
    async with speaking(stage, *frames) as client:
        for is_ours, message in steps:
            if is_ours:
                fields = {key: value for key, value in message.items() if key != "type"}
                if "request_id" in fields:
                    fields["request_id"] = requests[-1]
                client.say(message["type"], **fields)
                continue
            heard = await client.hear()
            while heard["type"] in DULL:
                heard = await client.hear()
            assert heard["type"] == message["type"]
            kept = [(key, message[key]) for key in SAME if key in message]
            assert [(key, heard[key]) for key, _ in kept] == kept
            if heard["type"] == "server_request":
                requests.append(heard["request_id"])
    assert len(set(requests)) == 2
    _check_requests(client)
    assert (stage.workspace / "hello.txt").read_text() == "hello\n"


@pytest.mark.skipif(not PRESENT, reason="the published fixtures are not here")
def test_the_published_transcript_is_valid_against_the_published_schemas() -> None:
    published = Published()
    transcript = PUBLISHED / "headless-conformance-v1.json"
    for step in msgspec.json.decode(transcript.read_bytes())["steps"]:
        published.check(step["message"])


def test_a_message_that_is_not_as_described_is_found_by_our_own_judges() -> None:
    """Those that are at hand everywhere: the shapes, and the types."""
    good = {"type": "ready", "protocol_version": "v", "model": "m", "provider": "p"}
    good |= {"executor_type": "live", "session_id": "s"}
    assert problem(good) is None
    checked(good)
    faults: list[Json] = [
        {key: value for key, value in good.items() if key != "provider"},
        {**good, "executor_type": "dead"},
        {**good, "session_id": 1},
        {**good, "more": True},
        {**good, "type": "unready"},
    ]
    for fault in faults:
        assert problem(fault) is not None
        with pytest.raises((ValueError, AssertionError, KeyError)):
            checked(fault)
    assert set(MESSAGES) == set(OUTGOING)
