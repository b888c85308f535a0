"""What a hosted runner is started with: flags before variables."""

import os
from pathlib import Path

import pytest

from batten.contract.errors import CallerError
from batten.contract.identity import identity_of
from batten.runner.config import VARIABLES, resolve

KEY = {"MAESTRO_WEB_API_KEY": "k"}
FIELDS = (
    "runner_session_id",
    "owner_instance_id",
    "snapshot_root",
    "workspace_id",
    "agent_run_id",
    "maestro_session_id",
)


def test_every_flag_is_taken(tmp_path: Path) -> None:
    flags = {name: f"flag of {name}" for name in FIELDS}
    config = resolve(
        {**flags, "workspace_root": str(tmp_path), "listen": "10.0.0.1:99", "host": "h"}, KEY
    )
    assert {name: getattr(config.identity, name) for name in FIELDS} == flags
    assert (config.host, config.port) == ("10.0.0.1", 99)
    assert config.identity.workspace_root == str(tmp_path)


@pytest.mark.parametrize("which", [0, 1])
def test_every_variable_is_taken_and_the_first_that_is_not_blank_counts(
    tmp_path: Path, which: int
) -> None:
    environ = {names[min(which, len(names) - 1)]: f" {name} " for name, names in VARIABLES.items()}
    blank = {names[0]: "  " for names in VARIABLES.values() if which and len(names) > 1}
    places = VARIABLES["workspace_root"]
    environ |= {places[which]: str(tmp_path), "MAESTRO_HOSTED_RUNNER_LISTEN": "8081", **blank}
    config = resolve({}, {**environ, **KEY})
    assert {name: getattr(config.identity, name) for name in FIELDS} == {
        name: name for name in FIELDS
    }
    assert (config.host, config.port, config.restore) == ("host", 8081, "restore_manifest")


def test_a_flag_comes_before_a_variable(tmp_path: Path) -> None:
    environ = {
        **KEY,
        "MAESTRO_RUNNER_SESSION_ID": "mrs_variable",
        "WORKSPACE_ROOT": str(tmp_path),
        "REMOTE_RUNNER_OWNER_INSTANCE_ID": "pod_variable",
    }
    config = resolve({"owner_instance_id": "pod_flag"}, environ)
    listening = {**environ, "MAESTRO_HOSTED_RUNNER_LISTEN": "10.0.0.1:99", "PORT": "98"}
    for flags, address in (({}, ("10.0.0.1", 99)), ({"port": "97"}, ("10.0.0.1", 97))):
        told = resolve(flags, listening)
        assert (told.host, told.port) == address
    told = resolve({"host": "::1"}, listening)
    assert (told.host, told.port) == ("::1", 99)
    assert config.identity.owner_instance_id == "pod_flag"
    assert config.identity.runner_session_id == "mrs_variable"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("0.0.0.0", 8080)),
        ({"port": "1"}, ("0.0.0.0", 1)),
        ({"listen": "[::1]:65535"}, ("::1", 65535)),
        ({"host": "127.0.0.1", "listen": "81"}, ("127.0.0.1", 81)),
    ],
)
def test_where_it_listens(
    tmp_path: Path, given: dict[str, str | None], expected: tuple[str, int]
) -> None:
    config = resolve({"runner_session_id": "m", "workspace_root": str(tmp_path), **given}, KEY)
    assert (config.host, config.port) == expected


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"runner_session_id": " "}, "--runner-session-id is missing"),
        ({"workspace_root": None}, "--workspace-root is missing"),
        ({"workspace_root": "/nowhere"}, "is not a directory"),
        ({"port": "65536"}, "1 to 65535"),
        ({"listen": "localhost:http"}, "1 to 65535"),
        ({"owner_instance_id": "a\nb"}, "printable"),
        ({"owner_instance_id": "a" * 513}, "512"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, flags: dict[str, str | None], problem: str) -> None:
    right: dict[str, str | None] = {"runner_session_id": "m", "workspace_root": str(tmp_path)}
    with pytest.raises(CallerError, match=problem):
        resolve({**right, **flags}, KEY)


def test_a_key_is_wanted_unless_it_is_said_that_none_is(tmp_path: Path) -> None:
    flags: dict[str, str | None] = {"runner_session_id": "m", "workspace_root": str(tmp_path)}
    with pytest.raises(CallerError, match="MAESTRO_WEB_API_KEY or MAESTRO_HOSTED_RUNNER_AUTH"):
        resolve(flags, {})
    both = {"MAESTRO_WEB_API_KEY": "a", "MAESTRO_HOSTED_RUNNER_AUTH_TOKEN": "b"}
    assert resolve(flags, both).keys == ("a", "b")
    for no in ("0", "False", "off"):
        assert resolve(flags, {**both, "MAESTRO_WEB_REQUIRE_KEY": no}).keys == ()


def test_the_session_sees_what_was_resolved_and_no_key(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    environ = {"MAESTRO_HOSTED_RUNNER_AUTH_TOKEN": "t", "MAESTRO_PROFILE": "own", "PATH": "/bin"}
    config = resolve({"runner_session_id": "m", "workspace_root": str(link)}, environ)
    root = os.path.realpath(tmp_path)
    assert config.exported == {
        "PATH": "/bin",
        "MAESTRO_PROFILE": "own",
        "MAESTRO_RUNNER_SESSION_ID": "m",
        "MAESTRO_WORKSPACE_ROOT": root,
        "MAESTRO_HOSTED_RUNNER_MODE": "1",
        "MAESTRO_WEB_REQUIRE_REDIS": "0",
        "MAESTRO_WEB_REQUIRE_CSRF": "0",
        "MAESTRO_WEB_REQUIRE_KEY": "1",
        "MAESTRO_AGENT_DIR": f"{root}/.maestro/agent",
    }


def test_runs_of_the_session_name_their_runner_and_workspace(tmp_path: Path) -> None:
    flags: dict[str, str | None] = {
        "runner_session_id": "mrs_1",
        "workspace_root": str(tmp_path),
        "workspace_id": "ws_1",
        "agent_run_id": "run_1",
        "maestro_session_id": "sess_1",
    }
    assert identity_of(resolve(flags, KEY).exported) == {
        "remote_runner_session_id": "mrs_1",
        "workspace_id": "ws_1",
        "agent_run_id": "run_1",
        "session_id": "sess_1",
        "runtime_mode": "hosted",
    }
