"""Standard input beside a prompt: read if it has data, and never waited for without end.

A shell gives every command an open standard input, often one that is never written to or closed. So
a pipe is waited for only as long as its writer deserves: a program that runs beside us, as in
`make | batten -p "Why?"`, may take its time; a pipe that only our parents hold is probably theirs.
"""

import math
import os
import select
import stat
from collections.abc import Iterator, Mapping

from msgspec import Struct

from batten.cli.prompt import LARGEST, TooLarge
from batten.contract.errors import CallerError
from batten.contract.numbers import parse_number
from batten.serve.output import say

_PIECE = 1 << 16
_VARIABLE = "BATTEN_STDIN_S"
_FIRST_S = 3.0
_PAUSE_S = 30.0
_PRODUCER_S = 600.0
_QUIET_S = 1.0
_HOW_ELSE = "`-` after the prompt waits for all of it, </dev/null skips it"


class Patience(Struct, frozen=True):
    """How long standard input may be silent, in seconds."""

    first_s: float = _FIRST_S
    """Before its first byte, if no other program writes to it."""
    pause_s: float = _PAUSE_S
    """After its first byte."""
    producer_s: float = _PRODUCER_S
    """If another program writes to it."""
    quiet_s: float = _QUIET_S
    """Before the wait is said."""


def patience_of(environ: Mapping[str, str]) -> Patience:
    """`BATTEN_STDIN_S` sets how long a pipe is waited for that no other program writes to."""
    text = environ.get(_VARIABLE)
    if not text:
        return Patience()
    seconds = parse_number(text)
    if seconds is None or seconds < 0:
        raise CallerError(f"{_VARIABLE} is {text!r}; it is seconds", code="config")
    return Patience(first_s=seconds, pause_s=seconds)


def read_beside(room: int, patience: Patience, descriptor: int = 0) -> bytes:
    """What was piped or redirected to us, up to `room` bytes; what is not read is said.

    Nothing for a terminal, /dev/null and a closed descriptor. Raises `TooLarge`.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return b""
    if stat.S_ISCHR(status.st_mode):
        if not os.isatty(descriptor) and status.st_rdev != os.stat(os.devnull).st_rdev:
            say("batten: standard input is a device, so it is not read; `-` reads it")
        return b""
    try:
        return _read(room, patience, descriptor, is_pipe=stat.S_ISFIFO(status.st_mode))
    except OSError as error:
        say(f"batten: standard input is not read: {error.strerror}")
        return b""


def _read(room: int, patience: Patience, descriptor: int, *, is_pipe: bool) -> bytes:
    data = bytearray()
    limit_s = patience.first_s
    quiet_s = patience.quiet_s
    while True:
        is_ready = _is_ready(descriptor, min(quiet_s, limit_s))
        may_take_longer = not is_ready and is_pipe and limit_s < patience.producer_s
        if may_take_longer and has_producer(descriptor):
            limit_s, quiet_s = patience.producer_s, math.inf
            say(f"batten: waiting for standard input: a program writes to it; {_HOW_ELSE}")
            continue
        if not is_ready and quiet_s < limit_s:
            say(f"batten: waiting up to {limit_s:g} s for standard input; {_HOW_ELSE}")
            is_ready = _is_ready(descriptor, limit_s - quiet_s)
            quiet_s = math.inf  # it is said once
        if not is_ready:
            _say_unread(len(data), limit_s)
            break
        piece = os.read(descriptor, _PIECE)
        if not piece:
            break
        data += piece
        if len(data) > room:
            raise TooLarge(
                f"standard input and the prompt have more than {LARGEST} bytes; shorten them"
            )
        limit_s = max(limit_s, patience.pause_s)
    return bytes(data)


def _is_ready(descriptor: int, limit_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(limit_s * 1000))


def _say_unread(size: int, limit_s: float) -> None:
    if size:
        say(
            f"batten: standard input stayed open and silent for {limit_s:g} s: the {size} bytes "
            f"that came are used, the rest is not read; {_HOW_ELSE}"
        )
    else:
        say(
            f"batten: nothing came on standard input in {limit_s:g} s, so it is not read; "
            f"{_HOW_ELSE}"
        )


class _Caller:
    """The process that standard input belongs to, if this one reads it for another."""

    pid = 0


def read_for(pid: int) -> None:
    """Take the parents of this process for ours."""
    _Caller.pid = pid


def has_producer(descriptor: int) -> bool:
    """Whether a process that is not one of our parents can write to this pipe."""
    pipe = os.fstat(descriptor)
    family = {os.getpid(), *_parents(_Caller.pid or os.getpid())}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in family and _writes(name, pipe):
            return True
    return False


def _parents(pid: int) -> Iterator[int]:
    """A process, its parent, and so on."""
    while pid:
        yield pid
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name, in parentheses, may hold anything; the parent is the second field after.
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def _writes(pid: str, pipe: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:  # another user's, or gone
        return False
    for name in names:
        try:
            held, link = os.stat(f"{folder}/{name}"), os.lstat(f"{folder}/{name}")
        except OSError:
            continue
        # The mode of the link is that of the descriptor.
        is_pipe = (held.st_dev, held.st_ino) == (pipe.st_dev, pipe.st_ino)
        if is_pipe and link.st_mode & stat.S_IWUSR:
            return True
    return False
