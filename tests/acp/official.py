"""Every message of ours against the official types: nothing unknown, nothing that they mend."""

from typing import Any, cast

from pydantic import BaseModel, TypeAdapter

from acp import schema

Json = dict[str, Any]

ASKED: dict[str, Any] = {
    "session/request_permission": schema.RequestPermissionRequest,
    "fs/read_text_file": schema.ReadTextFileRequest,
    "fs/write_text_file": schema.WriteTextFileRequest,
    "terminal/create": schema.CreateTerminalRequest,
    "terminal/output": schema.TerminalOutputRequest,
    "terminal/wait_for_exit": schema.WaitForTerminalExitRequest,
    "terminal/kill": schema.KillTerminalRequest,
    "terminal/release": schema.ReleaseTerminalRequest,
    "elicitation/create": schema.CreateElicitationRequest,
}
TOLD: dict[str, Any] = {
    "session/update": schema.SessionNotification,
    "$/cancel_request": schema.CancelRequestNotification,
}
ANSWERED: dict[str, Any] = {
    "initialize": schema.InitializeResponse,
    "authenticate": schema.AuthenticateResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/fork": schema.ForkSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/close": schema.CloseSessionResponse,
    "session/delete": schema.DeleteSessionResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
}
OF_A_TURN = {
    *("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "plan"),
    *("tool_call", "tool_call_update", "usage_update"),
}
CODES = {-32700, -32600, -32601, -32602, -32603, -32800, -32000, -32002}


class Official:
    """Reads along on one connection, and knows what each answer of ours belongs to."""

    def __init__(self) -> None:
        self._asked: dict[object, tuple[str, str]] = {}
        """What waits for an answer of ours: its method, and its session."""
        self._calls: set[str] = set()
        self.faults: list[str] = []

    def client_said(self, message: Json) -> None:
        if "method" not in message or "id" not in message:
            return
        params = cast("object", message.get("params"))
        named = cast("Json", params) if isinstance(params, dict) else {}
        session_id: object = named.get("sessionId")
        self._asked[message["id"]] = (message["method"], str(session_id))

    def agent_said(self, message: Json) -> None:
        """What is wrong with it is kept for the end of the test."""
        try:
            self._check(message)
        except (AssertionError, ValueError) as error:
            self.faults.append(f"{error}\n{str(message)[:2000]}")

    def _check(self, message: Json) -> None:
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            assert set(message) <= {"jsonrpc", "id", "method", "params"}
            kinds = ASKED if "id" in message else TOLD
            strictly(kinds[message["method"]], message["params"])
            if message["method"] == "session/update":
                self._check_update(message["params"])
            return
        assert set(message) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
        asked = self._asked.pop(message["id"], None)
        if "error" in message:
            strictly(schema.Error, message["error"])
            assert message["error"]["code"] in CODES
        else:
            assert asked is not None, "an answer to nothing that was asked"
            strictly(ANSWERED[asked[0]], message["result"])

    def _check_update(self, params: Json) -> None:
        update = params["update"]
        waiting = self._asked.values()
        again = ("session/load", params["sessionId"]) in waiting
        if update["sessionUpdate"] in OF_A_TURN:
            working = ("session/prompt", params["sessionId"]) in waiting
            assert working or again, "nobody waits for that"
        match update["sessionUpdate"]:
            case "tool_call":
                assert again or update["toolCallId"] not in self._calls, "told twice"
                self._calls.add(update["toolCallId"])
            case "tool_call_update":
                assert update["toolCallId"] in self._calls, "an update of nothing that was told"
            case _:
                pass


def strictly(kind: Any, said: Any) -> None:
    """What they read of it is what was said: no field is lost, none is put right."""
    read: Any = TypeAdapter[Any](kind).validate_python(said)
    assert isinstance(read, BaseModel)
    back = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert back == said, f"{kind.__name__} reads it as {back}"
