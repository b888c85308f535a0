"""Where the prompt comes from. Standard input is read only when it is asked for."""

import os
import select
from argparse import Namespace

from batten.cli.arguments import UsageError
from batten.cli.output import say
from batten.contract.errors import CallerError

LARGEST = 10 * 1024 * 1024


class TooLarge(CallerError):
    """More than the limit on standard input; exit code 78."""

    code = "config"


def prompt_of(options: Namespace) -> str:
    """The prompt, from wherever it comes; empty to finish a resumed session's run."""
    words = " ".join(options.prompt_words)
    slots = [slot for slot in (options.print, options.prompt, words) if slot]
    if len(slots) > 1:
        raise UsageError(f"more than one prompt was given: {slots[0]!r} and {slots[1]!r}")
    if slots and slots[0] != "-":
        return str(slots[0])
    if not slots and (options.resume or options.continue_) and os.isatty(0):
        return ""
    return read_stdin()


def read_stdin(descriptor: int = 0) -> str:
    """All of standard input as text. Waiting longer than a second is said on stderr."""
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
