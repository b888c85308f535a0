"""The toy as a program of its own, with a home and OPTION=JSON as its arguments."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from batten.contract.errors import CallerError
from batten.serve.http.app import App
from batten.serve.http.limits import Limits
from batten.serve.http.logs import log_to_stderr
from batten.serve.http.server import ServeOptions, serve
from tests.serve.http.toy import Boxes, surfaces


def main(arguments: list[str]) -> int:
    given: dict[str, Any] = {"home": arguments[0], "port": 0}
    for argument in arguments[1:]:
        name, _, value = argument.partition("=")
        given[name] = msgspec.json.decode(value)
    limits = msgspec.convert(given.pop("limits", {"grace_s": 5}), Limits)
    options = msgspec.convert(given, ServeOptions)

    @asynccontextmanager
    async def opening() -> AsyncGenerator[App]:
        yield App(surfaces(Boxes()), limits=limits)
        sys.stdout.write("closed\n")

    log = log_to_stderr(str)
    try:
        return serve(opening, options)
    except CallerError as error:
        sys.stderr.write(f"{error}\n")
        return 78 if error.code == "config" else 1
    finally:
        log.flush()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
