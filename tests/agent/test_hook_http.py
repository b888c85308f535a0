"""Addresses and callbacks as hooks: who may be asked, and what their answers come to."""

import asyncio
import os
from typing import Any

import msgspec
import pytest

from batten.agent.hooks.hooks import ClientHook, Hooks
from batten.agent.hooks.http import expanded, is_allowed, shown
from batten.contract.facts import HookCompleted, PolicyToolBlocked, PolicyToolDecided, ToolInvoked
from batten.models.address import parse_address
from batten.settings.contract import HandlerConfig, HookConfig, HookLimits

from .acting import Acting
from .hook_server import HookServer
from .hooking import brief, deciding
from .stage import Played, Stage, call, say


async def act(stage: Stage, hooks: Hooks, tool: Acting) -> Played:
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    return await stage.run("--model", model, "--allow", "acting", tools=[tool], hooks=hooks)


def posting(
    stage: Stage, url: str, *allowed: str, variables: tuple[str, ...] = (), **more: Any
) -> Hooks:
    handler = HandlerConfig(type="http", url=url, **more)
    limits = HookLimits(http_urls=allowed, http_env_vars=variables)
    config = HookConfig(event="PreToolUse", handlers=(handler,))
    return Hooks([config], limits, workspace=str(stage.workspace), environ=os.environ)


async def test_a_hook_is_posted_what_happens_and_its_json_decides(stage: Stage) -> None:
    tool = Acting()
    answer = msgspec.json.encode(deciding("deny", "not from here"))
    async with HookServer(answer) as server:
        hooks = posting(stage, f"{server.origin}/hook?key=s3cr3t", f"{server.origin}/hook*")
        played = await act(stage, hooks, tool)
        (told,) = server.payloads
        assert (told["hook_event_name"], told["tool_input"]) == ("PreToolUse", {"act": "x"})
        assert server.heads[0].startswith("POST /hook?key=s3cr3t HTTP/1.1\r\n")
        fact = played.one(HookCompleted)
        assert (fact.handler.type, fact.handler.name) == ("http", f"{server.origin}/hook")
    assert brief(fact) == ("deny", "allow", "deny")
    assert tool.acts == []


@pytest.mark.parametrize("body", [b"", b"{}", b" \n"])
async def test_an_answer_that_decides_nothing_leaves_it_to_the_rules(
    stage: Stage, body: bytes
) -> None:
    tool = Acting()
    async with HookServer(body, status=204 if not body else 200) as server:
        played = await act(stage, posting(stage, server.origin, server.origin), tool)
    assert brief(played.one(HookCompleted)) == ("none", "allow", "allow")
    assert tool.acts == ["x"]


FAILING: dict[str, tuple[bytes, int, str]] = {
    "server error": (b"", 500, "it answered with status 500"),
    "not found": (b"{}", 404, "it answered with status 404"),
    "redirect": (b"", 302, "it answered with status 302"),
    "a page": (b"<html>log in</html>", 200, "its answer is no JSON"),
    "a list": (b"[]", 200, "its answer is no JSON object"),
    "too long": (b"{" + b" " * 1_100_000 + b"}", 200, "it answered with more than 1048576 bytes"),
}


@pytest.mark.parametrize("failure", FAILING)
@pytest.mark.parametrize("on_failure", ["deny", "allow"])
async def test_an_answer_that_is_none_counts_as_its_failure_says(
    stage: Stage, failure: str, on_failure: str
) -> None:
    body, status, why = FAILING[failure]
    tool = Acting()
    async with HookServer(body, status=status, headers="location: /elsewhere\r\n") as server:
        hooks = posting(stage, server.origin, server.origin, on_failure=on_failure)
        played = await act(stage, hooks, tool)
        assert len(server.heads) == 1
    assert str(played.one(HookCompleted).failure).startswith(why)
    assert tool.acts == ([] if on_failure == "deny" else ["x"])


async def test_a_server_that_does_not_answer_is_given_up(stage: Stage) -> None:
    tool = Acting()
    async with HookServer() as server:
        server.silent = True
        played = await act(stage, posting(stage, server.origin, server.origin, timeout_s=0.3), tool)
    assert tool.acts == []
    assert played.one(HookCompleted).decision == "deny"


async def test_a_server_that_is_not_there_is_a_failure(stage: Stage) -> None:
    async with HookServer() as server:
        origin = server.origin
    tool = Acting()
    played = await act(stage, posting(stage, origin, origin), tool)
    assert "it could not be asked" in str(played.one(HookCompleted).failure)
    assert tool.acts == []


@pytest.mark.parametrize("allowed", [(), ("https://*",), ("http://localhost:*",)])
async def test_an_address_that_is_not_allowed_is_not_asked(
    stage: Stage, allowed: tuple[str, ...]
) -> None:
    tool = Acting()
    async with HookServer() as server:
        played = await act(stage, posting(stage, server.origin, *allowed), tool)
        assert server.heads == []
    assert "not among those" in str(played.one(HookCompleted).failure)
    assert tool.acts == []


@pytest.mark.parametrize(
    ("url", "glob", "is_one"),
    [
        ("https://a.example.com/x", "https://a.example.com/x", True),
        ("https://a.example.com/x", "https://a.example.com/*", True),
        ("https://a.example.com/x", "https://a.example.com", True),
        ("https://a.example.com/x", "https://*.example.com/*", True),
        ("https://a.example.com:8443/x", "https://a.example.com:*", True),
        ("http://[::1]:9/x", "http://[::1]:*", True),
        ("https://A.Example.com/x", "https://a.example.com", True),
        ("http://a.example.com/x", "https://a.example.com", False),
        ("https://evil.org/x.example.com/", "https://*.example.com/*", False),
        ("https://a.example.com.evil.org/", "https://a.example.com", False),
        ("https://a.example.com@evil.org/", "https://a.example.com*", False),
        ("https://a.example.com/y", "https://a.example.com/x*", False),
        ("https://a.example.com/x", "a.example.com", False),
        ("https://a.example.com/ok/x", "https://a.example.com/ok/*", True),
        ("https://a.example.com/ok/.x", "https://a.example.com/ok/*", True),
        ("https://a.example.com/ok/x?y=/../", "https://a.example.com/ok/*", True),
        ("https://a.example.com/ok/../x", "https://a.example.com", True),
        ("https://a.example.com/ok/../x", "https://a.example.com/ok/*", False),
        ("https://a.example.com/ok/./x", "https://a.example.com/ok/*", False),
        ("https://a.example.com/ok/..", "https://a.example.com/ok/*", False),
        ("https://a.example.com/ok/..?x", "https://a.example.com/ok/*", False),
        ("https://a.example.com/ok/#/../../x", "https://a.example.com/ok/*", False),
        ("https://a.example.com/ok/%2e%2E/x", "https://a.example.com/ok/*", False),
        ("https://a.example.com/ok/.%2e%2fx", "https://a.example.com/ok/*", False),
        ("https://a.example.com/ok/..;a/x", "https://a.example.com/ok/*", False),
        ("https://a.example.com/ok/..\\x", "https://a.example.com/ok/*", False),
    ],
)
def test_a_glob_of_addresses_keeps_host_and_path_apart(url: str, glob: str, is_one: bool) -> None:
    assert is_allowed(parse_address(url), (glob,)) is is_one


async def test_headers_take_only_the_variables_that_hooks_may_have(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0k3n")
    tool = Acting()
    async with HookServer() as server:
        headers = {"x-token": "Bearer ${HOOK_TOKEN}"}
        hooks = posting(
            stage, server.origin, server.origin, variables=("HOOK_TOKEN",), headers=headers
        )
        await act(stage, hooks, tool)
        assert "x-token: Bearer t0k3n\r\n" in server.heads[0]
        hooks = posting(stage, server.origin, server.origin, headers=headers)
        played = await act(stage, hooks, tool)
        assert len(server.heads) == 1
    assert "uses $HOOK_TOKEN, which hooks may not have" in str(played.one(HookCompleted).failure)
    assert tool.acts == ["x"]


def test_a_variable_is_replaced_in_either_spelling_and_empty_if_unset() -> None:
    given = {"a": "$X-${Y}", "b": "$Z.", "c": "plain"}
    found = expanded(given, ("X", "Y", "Z"), {"X": "1", "Y": "2"})
    assert found == {"a": "1-2", "b": ".", "c": "plain"}


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "http://", "nonsense"])
async def test_an_address_that_is_none_is_a_failure(stage: Stage, url: str) -> None:
    tool = Acting()
    played = await act(stage, posting(stage, url, "*://*"), tool)
    assert played.one(HookCompleted).decision == "deny"
    assert played.one(HookCompleted).handler.name == "an address that is none"


def test_an_address_is_shown_without_what_may_be_a_secret() -> None:
    assert shown("https://me:pw@a.example.com:8443/x/y?token=1") == "https://a.example.com:8443/x/y"


class Client:
    """A client's end of a callback."""

    def __init__(self, reply: object, *, error: Exception | None = None) -> None:
        self._reply = reply
        self._error = error
        self.asked: list[tuple[dict[str, Any], str | None]] = []

    async def __call__(self, payload: dict[str, Any], call_id: str | None) -> object:
        self.asked.append((payload, call_id))
        if self._error is not None:
            raise self._error
        if self._reply is None:
            await asyncio.Event().wait()
        return self._reply


def lent(client: Client, **more: Any) -> ClientHook:
    return ClientHook(event="PreToolUse", callback_id="hook_0", call=client, **more)


async def test_a_callback_is_asked_with_the_id_of_the_call(stage: Stage) -> None:
    tool, client = Acting(), Client(deciding("allow", updatedInput={"act": "y"}))
    hooks = Hooks(clients=[lent(client, matcher="acting")])
    played = await act(stage, hooks, tool)
    ((payload, call_id),) = client.asked
    assert (payload["tool_name"], call_id) == ("acting", "c1")
    assert tool.acts == ["y"]
    assert played.one(ToolInvoked).input == {"act": "y"}
    fact = played.one(HookCompleted)
    assert (fact.handler.type, fact.handler.name) == ("callback", "hook_0")


async def test_a_callback_may_be_lent_later_and_comes_after_the_user_s_own(stage: Stage) -> None:
    tool, client = Acting(), Client({})
    handler = HandlerConfig(type="command", command="exit 2")
    hooks = Hooks(
        [HookConfig(event="PreToolUse", handlers=(handler,))], workspace="/tmp", environ=os.environ
    )
    hooks.register(lent(client))
    await act(stage, hooks, tool)
    assert (tool.acts, client.asked) == ([], [])


@pytest.mark.parametrize(
    "client",
    [
        Client("a string"),
        Client({"decision": "whatever"}),
        Client(None),
        Client({}, error=RuntimeError("gone")),
    ],
    ids=["no object", "no decision", "silence", "an error"],
)
@pytest.mark.parametrize("on_failure", ["deny", "allow"])
async def test_a_callback_that_fails_counts_as_it_was_lent(
    stage: Stage, client: Client, on_failure: str
) -> None:
    tool = Acting()
    hooks = Hooks(clients=[lent(client, timeout_s=0.2, on_failure=on_failure)])
    played = await act(stage, hooks, tool)
    assert played.one(HookCompleted).failure
    assert tool.acts == ([] if on_failure == "deny" else ["x"])


async def test_a_callback_that_answers_later_has_no_objection(stage: Stage) -> None:
    tool = Acting()
    played = await act(stage, Hooks(clients=[lent(Client({"async": True}))]), tool)
    assert brief(played.one(HookCompleted)) == ("none", "allow", "allow")
    assert tool.acts == ["x"]


async def test_a_denial_of_a_callback_names_it(stage: Stage) -> None:
    hooks = Hooks(clients=[lent(Client({"decision": "block", "reason": "no"}))])
    played = await act(stage, hooks, Acting())
    assert played.one(PolicyToolDecided).decided_by == "hook:hook_0"
    assert played.one(PolicyToolBlocked).policy_id == "hook:hook_0"
