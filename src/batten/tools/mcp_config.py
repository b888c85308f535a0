"""The configuration of MCP servers: names, how to reach each, and which are required."""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from batten.contract.errors import CallerError
from batten.contract.facts.task import TaskServer
from batten.contract.numbers import LONGEST_TIMEOUT_S

DEFAULT_TIMEOUT_S = 15.0
Transport = Literal["stdio", "http", "sse"]
_INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ"),
    *("LANG", "LC_ALL", "LC_CTYPE"),
)
"""Environment variables that servers inherit; others must be set in `env`."""


class ServerConfig(Struct, frozen=True, kw_only=True):
    """One server: a command that we start, or the URL of a remote one."""

    name: str
    transport: Transport
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    required: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S


class _Entry(Struct, kw_only=True):
    type: str | None = None
    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    required: bool = False
    disabled: bool = False
    timeout: float = DEFAULT_TIMEOUT_S


def read_config(
    config: Mapping[str, Any], environ: Mapping[str, str], *, cwd: str | None = None
) -> list[ServerConfig]:
    """The servers of `{"mcpServers": {name: {...}}}`; `CallerError` names the mistake."""
    servers = config.get("mcpServers")
    if not isinstance(servers, Mapping):
        raise _wrong('an MCP configuration is {"mcpServers": {name: {...}}}')
    entries: dict[str, Any] = msgspec.to_builtins(servers)
    read = [_read(name, entry, environ, cwd) for name, entry in entries.items()]
    return [server for server in read if server is not None]


def confined_config(server: TaskServer, cwd: str) -> ServerConfig:
    """The server of a task, as it is written: nothing is expanded, and nothing inherited but what
    every command in the sandbox has.
    """
    given: dict[str, Any] = msgspec.to_builtins(server)
    if server.url is not UNSET:
        return ServerConfig(
            name=server.name, transport="http", url=server.url, headers=given.get("headers", {})
        )
    argv = (given["command"], *given.get("args", ()))
    return ServerConfig(
        name=server.name, transport="stdio", argv=argv, env=given.get("env", {}), cwd=cwd
    )


def checked_name(name: str) -> str:
    """Check a server's name, which becomes part of its tools' names; may raise `CallerError`."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", name) or "__" in name:
        raise _wrong(f"MCP server {name!r}: a name is up to 32 letters, digits, - and single _")
    return name


def _read(name: str, raw: Any, environ: Mapping[str, str], cwd: str | None) -> ServerConfig | None:
    checked_name(name)
    try:
        entry = msgspec.convert(raw, _Entry)
    except msgspec.ValidationError as error:
        raise _wrong(f"MCP server {name}: {error}") from None
    if entry.disabled:
        return None
    if (entry.command is None) == (entry.url is None):
        raise _wrong(f"MCP server {name}: give either a command or a url")
    transports: tuple[Transport, ...] = ("stdio",) if entry.command else ("http", "sse")
    transport: Transport | None = next(
        (one for one in transports if entry.type in (None, one)), None
    )
    if transport is None:
        fitting = " or ".join(transports)
        raise _wrong(f"MCP server {name}: type {entry.type!r} is not {fitting}")
    if not 0 < entry.timeout <= LONGEST_TIMEOUT_S:
        most = f"a number of seconds above 0, {LONGEST_TIMEOUT_S} at most"
        raise _wrong(f"MCP server {name}: timeout is {most}")

    def expand(text: str) -> str:
        return _expand(text, environ, name)

    inherited = {key: environ[key] for key in _INHERITED if key in environ}
    return ServerConfig(
        name=name,
        transport=transport,
        argv=(expand(entry.command), *map(expand, entry.args)) if entry.command else (),
        env=inherited | {key: expand(value) for key, value in entry.env.items()},
        cwd=expand(entry.cwd) if entry.cwd else cwd,
        url=expand(entry.url) if entry.url else "",
        headers={key: expand(value) for key, value in entry.headers.items()},
        required=entry.required,
        timeout_s=entry.timeout,
    )


def _expand(text: str, environ: Mapping[str, str], server: str) -> str:
    """Expand `${NAME}` and `${NAME:-default}`; an unset name without a default is an error."""

    def value(found: re.Match[str]) -> str:
        if found["name"] in environ:
            return environ[found["name"]]
        if found["default"] is None:
            raise _wrong(f"MCP server {server}: the variable {found['name']} is not set")
        return found["default"]

    return re.sub(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}", value, text)


def _wrong(message: str) -> CallerError:
    return CallerError(message, code="config")
