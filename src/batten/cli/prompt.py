"""Reads prompts from the command line or standard input, and joins what was piped or attached."""

import os
import select
import stat
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping

from batten.cli.parsing import UsageError
from batten.contract.commands import Command, GoOn, Prompt
from batten.contract.errors import CallerError, PeerError
from batten.serve.output import say

LARGEST = 10 * 1024 * 1024
"""Bytes of a prompt, with all that is joined to it."""


class TooLarge(CallerError):
    """The input exceeds the limit; exit code 78."""

    code = "config"


def commands_of(
    options: Namespace, environ: Mapping[str, str]
) -> tuple[AsyncIterator[Command], bool]:
    """The commands of an invocation, and whether they continue an unfinished run."""
    if options.input_format == "stream-json":
        return _frames(), False
    going_on = bool(options.resume or options.continue_) and not options.fork_session
    prompt = _prompt(options, environ, going_on)
    if not prompt.strip():
        if going_on and not options.attach:
            return _once(GoOn()), True
        raise UsageError('no prompt: give one as batten -p "…" or on standard input')
    if not options.attach:
        return _once(Prompt(text=prompt)), False
    from batten.cli.attachments import load

    attached = load(options.attach, LARGEST - len(prompt.encode()))
    text = f"{prompt}\n\n{attached.text}"
    return _once(Prompt(text=text, images=attached.images, files=attached.files)), False


async def _once(command: Command) -> AsyncIterator[Command]:
    yield command


def _prompt(options: Namespace, environ: Mapping[str, str], going_on: bool) -> str:
    """The prompt that was given, with a block of what was piped to us; or else standard input.

    A session that only goes on does not need a prompt, and does not wait for one.
    """
    given: str | None = options.given
    if given == "-" or (given is None and not going_on):
        return read_stdin()
    if given is not None and not given.strip():
        return ""
    data = _piped(given or "", options.reads_stdin, environ)
    if not data.strip():
        return given or ""
    from batten.cli.attachments import marked, readable

    text = readable(data, "standard input")
    return text.rstrip("\r\n") if given is None else f"{given}\n\n{marked('stdin', text)}"


def _piped(given: str, reads_all: bool, environ: Mapping[str, str]) -> bytes:
    """What standard input holds beside a prompt; nothing for a terminal or /dev/null."""
    room = LARGEST - len(given.encode())
    if reads_all:
        return _all_of_stdin(room)
    try:
        status = os.fstat(0)
    except OSError:
        return b""
    if stat.S_ISCHR(status.st_mode) and (
        os.isatty(0) or status.st_rdev == os.stat(os.devnull).st_rdev
    ):
        return b""
    from batten.cli.stdin import patience_of, read_beside

    return read_beside(room, patience_of(environ))


async def _frames() -> AsyncIterator[Command]:
    """The commands on standard input, as they are read."""
    from batten.protocols.stream_json_input import InputError, read_line
    from batten.serve.lines import Lines, LineTooLong

    try:
        async for number, line in Lines(0, longest=LARGEST).strict():
            command = read_line(line, number)
            if command is not None:
                yield command
    except LineTooLong as error:
        raise TooLarge(str(error)) from error
    except PeerError as error:
        raise InputError(str(error)) from error


def read_stdin() -> str:
    """All of standard input as text. A wait of more than a second is reported on stderr."""
    try:
        return _all_of_stdin(LARGEST).decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CallerError(f"standard input is not UTF-8 text: {error}") from error


def _all_of_stdin(room: int) -> bytes:
    """Standard input up to its end, however long that takes."""
    if os.isatty(0):
        say("batten: reading from the terminal; end with Ctrl-D")
    elif not select.select([0], [], [], 1.0)[0]:
        say("batten: waiting for standard input")
    data = bytearray()
    try:
        while piece := os.read(0, 1 << 16):
            data += piece
            if len(data) > room:
                raise TooLarge(f"the prompt has more than {LARGEST} bytes; shorten it")
    except OSError as error:
        raise UsageError(f"no prompt: standard input cannot be read: {error.strerror}") from error
    return bytes(data)
