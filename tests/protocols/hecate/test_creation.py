"""Tasks from requests: defaults, one clear error, and no secret in clear."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.errors import CallerError
from batten.contract.facts import TaskCreated, TaskUpdated
from batten.protocols.hecate.creation import (
    TITLE_BYTES,
    concealed,
    new_task,
    raised_budget,
    source_of,
    title_of,
)
from batten.protocols.hecate.tasks import CreateTask, task_now, task_object

from .making import CHAT, RUN, TASK, run_row, session_row


def created(**fields: Any) -> TaskCreated:
    """The task of a request body."""
    body = msgspec.json.encode(fields)
    return new_task(msgspec.json.decode(body, type=CreateTask), by="ada")


def refused(**fields: Any) -> str:
    with pytest.raises(CallerError) as caught:
        created(**fields)
    assert caught.value.code == "invalid_request"
    return caught.value.message


def test_a_prompt_alone_is_a_task_for_an_agent_in_a_copy() -> None:
    assert created(prompt="Count the parcels.") == TaskCreated(
        title="Count the parcels.",
        execution_kind="agent_loop",
        workspace_mode="clone",
        priority="normal",
        by="ada",
        prompt="Count the parcels.",
    )


def test_empty_and_zero_values_count_as_left_out() -> None:
    empty = created(
        prompt="x",
        title="",
        execution_kind="",
        execution_profile="",
        workspace_mode="",
        priority="",
        timeout_ms=0,
        budget_micros_usd=0,
        mcp_servers=[],
        working_directory=".",
    )
    assert empty == created(prompt="x")


def test_unknown_keys_of_a_request_are_ignored() -> None:
    assert created(prompt="x", colour="green") == created(prompt="x")


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        (
            {"execution_kind": "shell", "shell_command": "make test"},
            {"shell_command": "make test"},
        ),
        ({"execution_kind": "git", "git_command": "status"}, {"git_command": "status"}),
        (
            {"execution_kind": "file", "file_path": "a/b.txt"},
            {"file_path": "a/b.txt", "file_content": "", "file_operation": "write"},
        ),
        (
            {"execution_kind": "file", "file_path": "a", "file_operation": "append"},
            {"file_path": "a", "file_content": "", "file_operation": "append"},
        ),
    ],
)
def test_each_kind_keeps_its_own_fields(fields: dict[str, Any], kept: dict[str, Any]) -> None:
    task = msgspec.to_builtins(created(**fields))
    assert task == {
        "title": "New task",
        "execution_kind": fields["execution_kind"],
        "workspace_mode": "clone",
        "priority": "normal",
        "by": "ada",
        "sandbox_read_only": False,
        "sandbox_network": False,
        "auto_apply": True,
        **kept,
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "prompt is missing: a task of the kind agent_loop needs the instructions"),
        ({"prompt": "  \n"}, "prompt is missing"),
        ({"execution_kind": "shell"}, "shell_command is missing"),
        ({"execution_kind": "git", "prompt": "x"}, "git_command is missing"),
        ({"execution_kind": "file"}, "file_path is missing"),
        (
            {"execution_kind": "shell", "shell_command": "ls", "git_command": "log"},
            "git_command belongs to the kind git, and execution_kind is shell",
        ),
        (
            {"prompt": "x", "file_content": "y"},
            "file_content belongs to the kind file, and execution_kind is agent_loop",
        ),
        (
            {
                "execution_kind": "shell",
                "shell_command": "ls",
                "mcp_servers": [{"name": "a", "command": "a"}],
            },
            "mcp_servers belongs to the kind agent_loop",
        ),
        (
            {"execution_kind": "git", "git_command": "log", "execution_profile": "repo_local"},
            "execution_profile belongs to the kind agent_loop",
        ),
        ({"prompt": "a\0b"}, "prompt contains a NUL character"),
        ({"prompt": "x", "working_directory": "src"}, "working_directory 'src' is not an absolute"),
        ({"prompt": "x", "repo": "https://example.org/r.git"}, "repo 'https://example.org/r.git'"),
        ({"prompt": "x", "sandbox_allowed_root": "~/x"}, "sandbox_allowed_root '~/x'"),
        ({"prompt": "x", "base_branch": "--upload-pack=x"}, "is no name of a branch"),
        (
            {
                "prompt": "x",
                "base_branch": "main",
                "workspace_mode": "in_place",
                "working_directory": "/w",
            },
            "base_branch needs workspace_mode clone or worktree",
        ),
    ],
)
def test_a_wrong_field_is_named_with_what_would_be_right(
    fields: dict[str, Any], words: str
) -> None:
    assert words in refused(**fields)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "~/x", ".", "a/", "./"])
def test_line_51_a_path_that_leaves_the_workspace_is_refused(path: str) -> None:
    assert "file_path" in refused(execution_kind="file", file_path=path)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"name": "a"}, "mcp_servers[0] needs either a command or a url"),
        ({"name": "a", "command": "x", "url": "http://h"}, "needs either a command or a url"),
        ({"name": "a", "url": "ftp://h"}, "'ftp://h' is not an http or https address"),
        ({"name": "a", "url": "http://["}, "is not an http or https address"),
        ({"name": "a", "url": "http://h:65536"}, "is not an http or https address"),
        ({"name": "a", "url": "http://h", "env": {"A": "b"}}, "args and env belong to a command"),
        ({"name": "a", "command": "x", "headers": {"A": "b"}}, "headers belongs to a url"),
        ({"name": "a", "command": "x", "env": {"A B": "b"}}, "'A B' is no name of a variable"),
        ({"name": "a", "url": "http://h", "headers": {"A": "b\r\nC: d"}}, "'A' is no header"),
    ],
)
def test_a_wrong_tool_server_is_named(server: dict[str, Any], words: str) -> None:
    assert words in refused(prompt="x", mcp_servers=[server])


def test_names_of_tool_servers_differ() -> None:
    twice = [{"name": "a", "command": "x"}, {"name": "a", "command": "y"}]
    assert "mcp_servers[1].name 'a' is used twice" in refused(prompt="x", mcp_servers=twice)


@pytest.mark.parametrize(
    "fields",
    [
        {"execution_kind": "magic"},
        {"workspace_mode": "copy"},
        {"priority": "highest"},
        {"timeout_ms": -1},
        {"budget_micros_usd": -1},
        {"budget_micros_usd": 2**63},
        {"file_operation": "delete"},
        {"mcp_servers": [{"name": f"s{n}", "command": "x"} for n in range(17)]},
        {"mcp_servers": [{"name": "a__b", "command": "x"}]},
        {"mcp_servers": [{"name": "x" * 33, "command": "x"}]},
        {"mcp_servers": [{"name": "a", "command": "x", "approval_policy": "maybe"}]},
    ],
)
def test_the_type_itself_refuses_what_is_out_of_range(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"prompt": "x", **fields}, CreateTask)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("ephemeral", "clone"),
        ("persistent", "clone"),
        ("clone", "clone"),
        ("worktree", "worktree"),
        ("in_place", "in_place"),
    ],
)
def test_older_names_of_workspace_modes_mean_a_copy(name: str, mode: str) -> None:
    assert created(prompt="x", workspace_mode=name).workspace_mode == mode


@pytest.mark.parametrize(
    ("profile", "given_ms", "timeout_ms"),
    [("repo_local", 0, 120_000), ("coding_agent", 0, 300_000), ("coding_agent", 7, 7)],
)
def test_a_profile_sets_the_time_limit_unless_one_is_given(
    profile: str, given_ms: int, timeout_ms: int
) -> None:
    task = created(prompt="x", execution_profile=profile, timeout_ms=given_ms)
    assert (task.execution_profile, task.timeout_ms) == (profile, timeout_ms)


def test_a_title_is_the_first_80_bytes_of_the_prompt() -> None:
    assert title_of("") == title_of(" \n ") == "New task"
    assert title_of("Two\n lines ") == "Two lines"
    assert title_of("a" * 80) == "a" * 80
    assert title_of("a" * 81) == "a" * 80 + "..."
    assert created(prompt="x", title=" Mine ").title == "Mine"


@given(st.text(min_size=1, max_size=400))
def test_a_title_is_never_cut_inside_a_character(prompt: str) -> None:
    title = title_of(prompt)
    assert len(title.encode(errors="replace")) <= TITLE_BYTES + 3
    assert "\n" not in title


@pytest.mark.parametrize("mode", ["in_place", "worktree"])
def test_line_52_a_mode_that_needs_a_directory_fails_the_start_without_one(mode: str) -> None:
    with pytest.raises(CallerError, match=f"workspace_mode {mode} needs a working_directory"):
        source_of(created(prompt="x", workspace_mode=mode))


def test_a_copy_is_made_of_the_first_directory_named_and_may_be_of_none() -> None:
    assert source_of(created(prompt="x")) == ""
    assert source_of(created(prompt="x", repo="/r")) == "/r"
    assert source_of(created(prompt="x", repo="/r", working_directory="/w")) == "/w"


def test_line_37_a_budget_can_be_raised_and_not_lowered() -> None:
    task = created(prompt="x", budget_micros_usd=500)
    assert raised_budget(task, 500) == 500
    assert raised_budget(task, 900) == 900
    with pytest.raises(CallerError, match="can only be raised: it is 500, not 499"):
        raised_budget(task, 499)
    assert raised_budget(created(prompt="x"), 900) == 900


SERVERS = [
    {
        "name": "notes",
        "command": "notes-server",
        "env": {"TOKEN": "$NOTES_TOKEN", "OTHER": "${OTHER}", "KEY": "s3cret-value"},
    },
    {
        "name": "far",
        "url": "https://far.example/mcp",
        "headers": {"Authorization": "Bearer s3cret-value"},
        "approval_policy": "block",
    },
]


def test_line_57_literal_secrets_are_redacted_and_references_are_shown_verbatim() -> None:
    task = created(prompt="x", mcp_servers=SERVERS)
    shown = concealed(task)
    assert b"s3cret-value" in msgspec.json.encode(task)
    assert b"s3cret-value" not in msgspec.json.encode(shown)
    reply = msgspec.to_builtins(task_object(session_row(), shown, None))
    assert reply["mcp_servers"] == [
        {
            "name": "notes",
            "command": "notes-server",
            "env": {"TOKEN": "$NOTES_TOKEN", "OTHER": "${OTHER}", "KEY": "[redacted]"},
        },
        {
            "name": "far",
            "url": "https://far.example/mcp",
            "headers": {"Authorization": "[redacted]"},
            "approval_policy": "block",
        },
    ]


def test_a_task_without_literal_secrets_needs_no_seal() -> None:
    plain = created(prompt="x")
    assert concealed(plain) is plain
    referring = created(prompt="x", mcp_servers=[{"name": "a", "command": "a", "env": {"A": "$A"}}])
    assert concealed(referring) is referring


def test_updates_of_a_task_show_in_its_object() -> None:
    task = created(prompt="x", budget_micros_usd=500)
    updates = [
        TaskUpdated(by="ada", budget_micros_usd=700),
        TaskUpdated(by="bob", title="Other", budget_micros_usd=900),
    ]
    shown = task_object(session_row(), task_now(task, updates), None)
    assert (shown.title, shown.budget_micros_usd) == ("Other", 900)
    assert task_now(task) is task


def test_a_task_that_was_never_started_is_queued_without_a_run() -> None:
    shown = msgspec.to_builtins(task_object(session_row(), created(prompt="x"), None))
    assert shown == {
        "id": TASK,
        "session_id": CHAT,
        "status": "queued",
        "title": "x",
        "execution_kind": "agent_loop",
        "workspace_mode": "clone",
        "priority": "normal",
        "prompt": "x",
        "created_by": "ada",
        "created_at": "2026-09-02T07:59:00.000Z",
        "updated_at": "2026-09-02T07:59:30.000Z",
    }


@pytest.mark.parametrize("status", ["queued", "running", "awaiting_approval", "failed"])
def test_a_task_has_the_status_of_its_latest_run(status: str) -> None:
    latest = run_row(status=status)
    shown = task_object(session_row(), created(prompt="x"), latest)
    assert (shown.status, shown.latest_run_id, shown.latest_model) == (status, RUN, "m-small")
    assert shown.updated_at == "2026-09-02T08:00:00.000Z"


def test_a_session_of_the_command_line_is_a_task_too() -> None:
    ended = run_row(status="completed", outcome="completed", ended_at="2026-09-02T08:00:09.000Z")
    shown = task_object(session_row(surface="print"), None, ended)
    assert shown.title == shown.prompt == "Count the parcels."
    assert (shown.origin_kind, shown.workspace_mode, shown.working_directory) == (
        "print",
        "in_place",
        "/work",
    )
    assert shown.finished_at == shown.updated_at == "2026-09-02T08:00:09.000Z"
