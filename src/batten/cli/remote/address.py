"""Which service a command is for: `--server` and `BATTEN_SERVER`, and the key for it."""

from argparse import Namespace
from collections.abc import Mapping

from batten.cli.parsing import UsageError
from batten.contract.errors import CallerError

SERVER_VARIABLE = "BATTEN_SERVER"
KEY_VARIABLE = "BATTEN_SERVER_KEY"
LOCAL = "local"
"""Instead of an address: the service of this home, which shares our journal."""


def server_of(options: Namespace, environ: Mapping[str, str]) -> str:
    """The address of the service; empty to work without one."""
    given: str | None = options.server
    if given is not None and not given.strip():
        raise UsageError("--server needs the address of a service; it is empty")
    server = given or environ.get(SERVER_VARIABLE, "").strip()
    return "" if server == LOCAL else server


def key_of(options: Namespace, environ: Mapping[str, str]) -> str:
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
