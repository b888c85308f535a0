"""The variables of the control plane: what they mean, and what a service does not start with."""

import re
from pathlib import Path

import pytest

from batten.contract.errors import CallerError
from batten.settings.control_plane import (
    ControlPlaneSettings,
    check_control_plane,
    read_control_plane,
    said_at_start,
)

RUNTIME = {"RUNTIME_ADDRESS": "runtime.example:50051"}


def test_nothing_set_is_the_defaults() -> None:
    assert read_control_plane({}) == ControlPlaneSettings()
    check_control_plane(ControlPlaneSettings())
    assert said_at_start(ControlPlaneSettings(), {}) == []


@pytest.mark.parametrize("text", ["1", "true", "YES", "On"])
def test_words_for_yes(text: str) -> None:
    assert read_control_plane({"RUNTIME_TLS": text}).runtime_tls
    assert not read_control_plane({"RUNTIME_TLS": f"{text}?"}).runtime_tls


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "\u0661", " "])
def test_a_value_that_is_no_number_is_the_default(text: str) -> None:
    assert read_control_plane({"THROTTLE_LIMIT": text}).throttle_limit == 100


def test_a_time_or_size_of_nothing_is_the_default() -> None:
    fields = ControlPlaneSettings.__struct_fields__
    defaults = {name: getattr(ControlPlaneSettings(), name) for name in fields}
    numbers = {name for name, default in defaults.items() if type(default) is int}
    read = read_control_plane({name.upper(): "0" for name in numbers})
    assert {name for name in numbers if getattr(read, name) != defaults[name]} == {
        *("throttle_limit", "replay_max_delay_ms", "stream_max_retries"),
        *("runtime_circuit_breaker_reset_ms", "data_retention_ttl_days"),
    }


def test_keys_and_patterns_are_lists() -> None:
    found = read_control_plane({"AUTH_API_KEYS": " a , ,b,", "MACP_REDACT_PATTERNS": "x+,y"})
    assert found.auth_api_keys == ("a", "b")
    assert found.macp_redact_patterns == ("x+", "y")


def test_insecure_runtimes_and_development_headers_are_for_development() -> None:
    for name, is_on in (("development", True), ("production", False), ("", False)):
        found = read_control_plane({"NODE_ENV": name})
        assert found.runtime_allow_insecure is found.runtime_use_dev_header is is_on
    off = {"NODE_ENV": "development", "RUNTIME_USE_DEV_HEADER": "false"}
    assert not read_control_plane(off).runtime_use_dev_header


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"DATA_RETENTION_ENABLED": "1", "DATA_RETENTION_TTL_DAYS": "0"}, "DATA_RETENTION_TTL"),
        ({"PORT": "74301"}, "PORT is 74301"),
        ({"AUTH_API_KEYS": "a-long-key-0123456789,short"}, "less than 8 characters"),
        ({"CORS_ORIGIN": "*"}, "CORS_ORIGIN"),
        ({"CORS_ORIGIN": "http://a/b"}, "CORS_ORIGIN"),
        ({"CORS_ORIGIN": "http://a,http://b"}, "CORS_ORIGIN"),
        ({"CORS_ORIGIN": "http://[::1"}, "CORS_ORIGIN"),
        (RUNTIME, "RUNTIME_TLS"),
        ({"RUNTIME_ADDRESS": "127.0.0.1:1", "NODE_ENV": "production"}, "RUNTIME_TLS"),
        (
            {**RUNTIME, "NODE_ENV": "test", "RUNTIME_TLS": "1", "RUNTIME_USE_DEV_HEADER": "1"},
            "RUNTIME_BEARER_TOKEN",
        ),
    ],
)
def test_a_service_does_not_start_with(environ: dict[str, str], named: str) -> None:
    with pytest.raises(CallerError, match=named) as refused:
        check_control_plane(read_control_plane(environ))
    assert refused.value.code == "config"


@pytest.mark.parametrize(
    "environ",
    [
        {"CORS_ORIGIN": "https://console.example:3000"},
        {"RUNTIME_ADDRESS": "127.0.0.1:50051"},
        {"RUNTIME_ADDRESS": "[::1]:50051"},
        {"RUNTIME_ADDRESS": "localhost:50051"},
        {**RUNTIME, "RUNTIME_TLS": "true"},
        {**RUNTIME, "RUNTIME_ALLOW_INSECURE": "true", "NODE_ENV": "production"},
        {**RUNTIME, "NODE_ENV": "development"},
        {"DATA_RETENTION_TTL_DAYS": "0"},
    ],
)
def test_a_service_starts_with(environ: dict[str, str]) -> None:
    check_control_plane(read_control_plane(environ))


def test_what_means_nothing_here_is_said_without_its_value() -> None:
    environ = {
        "DATABASE_URL": "postgres://u:hunter2@h/d",
        "REDIS_URL": "redis://h",
        "STREAM_HUB_STRATEGY": "redis",
        "DB_POOL_MAX": "20",
        "AUTH_API_KEYS": "short",
        "LOG_LEVEL": "loud",
        "OTEL_ENABLED": "1",
        "RUNTIME_ADDRESS": "127.0.0.1:1",
    }
    said = "\n".join(said_at_start(read_control_plane(environ), environ))
    for name in environ:
        assert name in said
    assert "hunter2" not in said
    assert "short" not in said.replace("shorter", "")


def test_patterns_that_hide_nothing_are_said_at_the_start() -> None:
    environ = {"MACP_REDACT_PATTERNS": r"sk-\w+,((bad,\\b\\d{3}\\b,x{2,3}"}
    said = said_at_start(read_control_plane(environ), environ)
    assert ["'((bad'" in one for one in said] == [True]


def shown(default: object) -> str:
    """A default as the page has it."""
    match default:
        case bool():
            return str(default).lower()
        case str() | int():
            return str(default)
        case _:
            assert default == ()
            return ""


def test_the_page_names_every_variable_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs/control-plane.md").read_text("utf-8")
    table = page.split("\n## Variables\n", 1)[1].split("\n## ", 1)[0]
    documented = dict(re.findall(r"^\| `([A-Z_]+)` \| (\S*) ?\|", table, re.MULTILINE))
    defaults = ControlPlaneSettings()
    assert documented == {
        name.upper(): shown(getattr(defaults, name)) for name in defaults.__struct_fields__
    }
    for name in ("DATABASE_URL", "REDIS_URL", "STREAM_HUB_STRATEGY"):
        assert f"`{name}`" in table
