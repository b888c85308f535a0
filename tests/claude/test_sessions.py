"""Sessions of the real SDK: resumed, forked, continued and named."""

from uuid import uuid4

import msgspec
import pytest

from tests.claude.driving import Client, Json, says


async def test_a_resumed_session_keeps_its_id_and_its_conversation(client: Client) -> None:
    async with client.model(says("I remember 7."), says("It was 7.")) as server:
        first = await client.run(prompts="remember 7")
        second = await client.run(prompts="which?", options={"resume": first.session_id})
    assert second.error is None
    assert second.session_id == first.session_id
    asked = msgspec.json.encode(server.requests[1].json()["messages"]).decode()
    assert "remember 7" in asked
    assert "I remember 7." in asked


async def test_a_resumed_session_works_in_the_directory_that_the_client_names(
    client: Client,
) -> None:
    other = client.stage.directory / "other"
    other.mkdir()
    write = ("toolu_1", "write_file", {"file_path": "made", "content": "x"})
    async with client.model(says("one"), says("", write), says("two")):
        first = await client.run(prompts="go")
        there: Json = {"cwd": str(other), "permission_mode": "acceptEdits"}
        second = await client.run(prompts="on", options={"resume": first.session_id, **there})
    assert second.error is None
    assert second.session_id == first.session_id
    assert second.messages[0]["data"]["cwd"] == str(other)
    assert (other / "made").exists()
    assert not (client.stage.workspace / "made").exists()


async def test_a_forked_session_has_an_id_of_its_own_and_leaves_the_first(client: Client) -> None:
    async with client.model(says("one"), says("two"), says("three")) as server:
        first = await client.run(prompts="first")
        fork = {"resume": first.session_id, "fork_session": True}
        forked = await client.run(prompts="forked", options=fork)
        again = await client.run(prompts="again", options={"resume": first.session_id})
    assert forked.session_id != first.session_id == again.session_id
    said = [msgspec.json.encode(one.json()["messages"]).decode() for one in server.requests]
    assert "first" in said[1]
    assert "forked" not in said[2]


async def test_continue_takes_the_newest_session_of_the_directory(client: Client) -> None:
    async with client.model(says("one")):
        await client.run(prompts="older")
        newer = await client.run(prompts="newer")
        going_on = await client.run(prompts="on", options={"continue_conversation": True})
    assert going_on.session_id == newer.session_id


async def test_a_session_gets_the_id_that_is_asked_for(client: Client) -> None:
    wanted = str(uuid4())
    named: Json = {"session_id": wanted}
    if client.sdk.is_oldest:
        named = {"extra_args": {"session-id": wanted}}
    report = await client.ask(says("ok"), prompts="go", options=named)
    assert report.session_id == wanted


async def test_a_session_that_is_not_there_is_an_error_that_says_so(client: Client) -> None:
    missing = str(uuid4())
    report = await client.ask(says("never"), prompts="go", options={"resume": missing})
    assert report.error is not None
    assert any("no session or run" in line for line in report.stderr)
    if not client.sdk.is_oldest:
        assert "no session or run" in report.error["text"]


async def test_settings_of_the_first_start_do_not_bind_the_next(client: Client) -> None:
    async with client.model(says("one"), says("two")):
        first = await client.run(
            prompts="go", options={"max_turns": 1, "permission_mode": "acceptEdits"}
        )
        second = await client.run(prompts="go", options={"resume": first.session_id})
    assert first.messages[0]["data"]["permissionMode"] == "acceptEdits"
    assert second.messages[0]["data"]["permissionMode"] == "default"


async def test_a_fork_may_start_after_an_earlier_message(client: Client) -> None:
    if client.sdk.is_oldest:
        pytest.skip("this SDK cannot name a message")
    async with client.model(says("one"), says("two"), says("three")) as server:
        first = await client.run(prompts=["first", "second"])
        place = {"resume_session_at": first.of("AssistantMessage")[0]["uuid"]}
        fork = {"resume": first.session_id, "fork_session": True, **place}
        forked = await client.run(prompts="third", options=fork)
    assert forked.error is None
    texts = [
        block["text"] for one in server.requests[2].json()["messages"] for block in one["content"]
    ]
    assert texts == ["first", "one", "third"]
