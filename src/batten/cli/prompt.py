"""Reads prompts from the command line or standard input, which is read only if needed."""

import os
import select
from argparse import Namespace
from collections.abc import AsyncIterator

from batten.cli.parsing import UsageError
from batten.contract.commands import Command, GoOn, Prompt
from batten.contract.errors import CallerError, PeerError
from batten.serve.output import say

LARGEST = 10 * 1024 * 1024


class TooLarge(CallerError):
    """Standard input exceeds the limit; exit code 78."""

    code = "config"


def commands_of(options: Namespace) -> tuple[AsyncIterator[Command], bool]:
    """The commands of an invocation, and whether they continue an unfinished run."""
    if options.input_format == "stream-json":
        return _frames(), False
    given: str | None = options.given
    going_on = bool(options.resume or options.continue_) and not options.fork_session
    if given is None and going_on and os.isatty(0):
        return _once(GoOn()), True
    prompt = read_stdin() if given in (None, "-") else given
    if prompt.strip():
        return _once(Prompt(text=prompt)), False
    if going_on:
        return _once(GoOn()), True
    raise UsageError('no prompt: give one as batten -p "…" or on standard input')


async def _once(command: Command) -> AsyncIterator[Command]:
    yield command


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


def read_stdin(descriptor: int = 0) -> str:
    """All of standard input as text. A wait of more than a second is reported on stderr."""
    if os.isatty(descriptor):
        say("batten: reading the prompt from the terminal; end with Ctrl-D")
    elif not select.select([descriptor], [], [], 1.0)[0]:
        say("batten: waiting for the prompt on standard input")
    data = bytearray()
    try:
        while piece := os.read(descriptor, 1 << 16):
            data += piece
            if len(data) > LARGEST:
                raise TooLarge(f"standard input has more than {LARGEST} bytes; shorten the prompt")
    except OSError as error:
        raise UsageError(f"no prompt: standard input cannot be read: {error.strerror}") from error
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CallerError(f"standard input is not UTF-8 text: {error}") from error
