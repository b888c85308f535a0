"""Which service a command is for: `--server` and `BATTEN_SERVER`, and the key for it."""

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from batten.cli import current_directory
from batten.cli.parsing import UsageError
from batten.contract.errors import CallerError
from batten.contract.numbers import seconds_of
from batten.wiring.home import batten_home

if TYPE_CHECKING:
    from batten.client.link import Link

SERVER_VARIABLE = "BATTEN_SERVER"
KEY_VARIABLE = "BATTEN_SERVER_KEY"
TIMEOUT_VARIABLE = "BATTEN_SERVER_TIMEOUT_S"
LOCAL = "local"
"""Instead of an address: the service of this home, which shares our journal."""


def server_of(options: Namespace, environ: Mapping[str, str]) -> str:
    """The address of the service; empty to work without one."""
    given: str | None = options.server
    if given is not None and not given.strip():
        raise UsageError("--server needs the address of a service; it is empty")
    server = given or environ.get(SERVER_VARIABLE, "").strip()
    return "" if server == LOCAL else server


def link_of(options: Namespace, environ: Mapping[str, str], server: str) -> "Link":
    """The link to a service; only commands that ask one load its client."""
    from batten.client.frames import SILENT_S
    from batten.client.home_service import token_for, with_address
    from batten.client.link import Link

    silent_s = seconds_of(environ, TIMEOUT_VARIABLE, SILENT_S)
    key = _key_of(options, environ)
    if not key:
        home = batten_home(environ, current_directory())
        server = with_address(server, home)
        key = token_for(server, home)
    return Link(server, key, silent_s=silent_s)


def _key_of(options: Namespace, environ: Mapping[str, str]) -> str:
    """The key for the service; empty without one."""
    path: str | None = options.server_key_file
    if path is None:
        return environ.get(KEY_VARIABLE, "").strip()
    try:
        with open(path, encoding="utf-8") as file:
            key = file.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(
            f"--server-key-file: cannot read {path}: {error}", code="config"
        ) from error
    if not key:
        raise CallerError(f"--server-key-file: the first line of {path} is empty", code="config")
    return key
