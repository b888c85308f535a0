"""Messages between a batten process, its keeper and the shims of single commands.

Shared by both ends; imports nothing that would slow the keeper's start.
"""

import struct

HEADER = struct.Struct("!BI")
"""Message kind, length of the body that follows."""

MAX_BODY = 16 * 1024 * 1024

# Between a batten process and its keeper.
HELLO = 1
"""Keeper to us: `CONFINEMENT`."""
ATTEND = b"\x02"
"""One byte to the keeper, together with the control socket of the next command."""

# On the control socket between a batten process and one command's shim.
REQUEST = 9
"""The command, as `pack_request` writes it, together with the ends of its pipes."""
ACCEPTED = 10
"""The shim has read the command and will start it. Before that nothing can have run."""
STARTED = 11
"""`PID`, together with a pseudo-terminal's master descriptor, if there is one."""
FAILED = 12
"""`FAILURE`: no process was started."""
EXITED = 13
"""`STATUS`: the command itself has exited; the status is that of waitpid."""
ENDED = 14
"""The whole tree has ended. Body: names of the killed processes, separated by NUL."""
END_TREE = 15
"""To the shim: `GRACE`, milliseconds between TERM and KILL."""
NUMBERED = 16
"""To the shim of a command with `FLAG_NUMBERED`: its pid outside the sandbox is known."""

HIDDEN, SEEN, SOCKETS = "hidden", "seen", "sockets"
"""Kinds of paths in the keeper's arguments; those before the first are writable."""

CONFINEMENT = struct.Struct("!BB")
"""Landlock's ABI (0 if missing), whether the seccomp filter is in force."""
PID = struct.Struct("!I")
FAILURE = struct.Struct("!IB")
STATUS = struct.Struct("!I")
GRACE = struct.Struct("!I")

STAGE_CWD, STAGE_TERMINAL, STAGE_EXEC = 1, 2, 3

FLAG_STDIN, FLAG_PTY, FLAG_NUMBERED = 1, 2, 4
_REQUEST = struct.Struct("!BHHII")


def message(kind: int, body: bytes = b"") -> bytes:
    return HEADER.pack(kind, len(body)) + body


def pack_request(
    flags: int, size: tuple[int, int], cwd: bytes, argv: list[bytes], env: list[bytes]
) -> bytes:
    """A command as one body. None of its strings can contain a NUL, so NUL separates them."""
    head = _REQUEST.pack(flags, size[0], size[1], len(argv), len(env))
    return head + b"\0".join([cwd, *argv, *env])


def unpack_request(
    body: bytes,
) -> tuple[int, tuple[int, int], bytes, list[bytes], dict[bytes, bytes]]:
    flags, columns, rows, argc, envc = _REQUEST.unpack_from(body)
    fields = body[_REQUEST.size :].split(b"\0")
    env = dict(pair.split(b"=", 1) for pair in fields[1 + argc : 1 + argc + envc])
    return flags, (columns, rows), fields[0], fields[1 : 1 + argc], env


class MessageBuffer:
    """Splits a byte stream into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def receive(self, chunk: bytes) -> None:
        self._bytes += chunk

    def next_message(self) -> tuple[int, bytes] | None:
        """The next whole message, or None until more bytes arrive."""
        if len(self._bytes) < HEADER.size:
            return None
        kind, length = HEADER.unpack_from(self._bytes)
        if length > MAX_BODY:
            raise ValueError(f"a message of {length} bytes; at most {MAX_BODY} are allowed")
        end = HEADER.size + length
        if len(self._bytes) < end:
            return None
        body = bytes(self._bytes[HEADER.size : end])
        del self._bytes[:end]
        return kind, body
