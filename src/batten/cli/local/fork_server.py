"""A process of the service that has loaded print mode and forks a child for each caller.

The child has the caller's arguments, environment, directory, limits and descriptors, and runs what
the caller would have run. It accepts only callers of the same user that nothing confines more than
itself. This process stays single-threaded and never runs an agent.
"""

import gc
import os
import select
import signal
import socket
import sys
import threading
from importlib import import_module
from typing import NoReturn

from batten.cli import run, written
from batten.cli.local import request
from batten.cli.stdin import read_for
from batten.control.pool import die_with_parent
from batten.control.supervisor import BEAT_S
from batten.serve.caller_check import peer_of, why_refused
from batten.serve.local_socket import LocalSocket, why_not_taken

MOST = 64
"""Children at once; further callers run in their own process."""
_BACKLOG = 64
_PATIENCE_S = 5.0
_LEAVE_S = 7.0
"""How long runs may go on after SIGTERM, before they are cancelled."""
_LOADED = (
    *("batten.cli.print_mode", "batten.cli.claude_mode", "batten.cli.options", "batten.cli.stdin"),
    *("batten.cli.names", "batten.serve.terminal.live", "batten.serve.alerts"),
    *("batten.wiring.parts", "batten.wiring.opening", "batten.journal.sqlite"),
    *("batten.models.anthropic", "batten.models.openai_chat", "batten.models.openai_responses"),
    *("batten.models.scripted", "batten.models.scenario", "batten.models.http"),
    *("batten.agent.rules.commands", "batten.agent.rules.paths", "batten.agent.rules.reader"),
    *("batten.tools.builtin", "batten.workspace.keeper", "batten.redact.seal", "argparse"),
)


def serve(home: str, parent_pipe: int | None) -> int:
    """Fork for each caller until SIGTERM, or until the parent's end of the pipe closes."""
    for name in _LOADED:
        import_module(name)
    _warm_up()
    gc.collect()
    gc.freeze()
    return ForkServer(home, parent_pipe).run()


def _warm_up() -> None:
    """Fill the caches that each child would fill again: patterns, decoders of flags."""
    from batten.cli.arguments import parse
    from batten.serve.words import redacting

    parse(["-p", "warm up"], {})
    redacting({"API_KEY": "not a real key"})("token=none in this text")


class ForkServer:
    """Accepts callers, and tells each the exit code of its child."""

    def __init__(self, home: str, parent_pipe: int | None) -> None:
        self._parent_pipe = parent_pipe
        self._socket = LocalSocket(os.path.join(home, request.SOCKET))
        self._listening: socket.socket | None = None
        self._complaint = ""
        self._children: dict[int, socket.socket] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._stopping = False
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service sends SIGTERM after it
        signal.signal(signal.SIGALRM, self._cancel_all)

    def _stop(self, *_: object) -> None:
        self._stopping = True
        signal.setitimer(signal.ITIMER_REAL, _LEAVE_S)

    def _cancel_all(self, *_: object) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)

    def run(self) -> int:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if self._parent_pipe is not None:
            poll.register(self._parent_pipe, select.POLLIN)
            die_with_parent()
        while self._children or not self._stopping:
            if self._parent_pipe is not None:
                _beat()
            if self._listening is None and not self._stopping:
                self._listen(poll)
            is_idle = self._parent_pipe is None and self._listening is not None
            for descriptor, _ in poll.poll(None if is_idle else 1000 * BEAT_S):
                if descriptor == self._wake_read:
                    _drain(self._wake_read)
                    self._reap()
                elif descriptor == self._parent_pipe:
                    os._exit(1)  # children die with us
                elif self._listening is not None:
                    self._accept(self._listening)
            if self._stopping and self._listening is not None:
                poll.unregister(self._listening)
                self._listening.close()
                self._listening = None
                self._socket.release()
        return 0

    def _listen(self, poll: "select.poll") -> None:
        """Take the socket, unless another service of this home has it."""
        try:
            bound = self._socket.take()
        except OSError as error:
            complaint = f"cannot serve on the socket {self._socket.path}: {why_not_taken(error)}"
            if complaint != self._complaint:
                sys.stderr.write(f"batten: {complaint}\n")
                self._complaint = complaint
            return
        if bound is not None:
            bound.setblocking(False)
            bound.listen(_BACKLOG)
            poll.register(bound, select.POLLIN)
            self._listening = bound

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        if len(self._children) >= MOST:
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            self._begin(connection)
        self._children[pid] = connection

    def _begin(self, connection: socket.socket) -> NoReturn:
        """In the child: leave everything of the server behind, and serve the caller."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            _end_with_parent()
            os.setsid()
            if self._listening is not None:
                self._listening.close()
            self._socket.leave()
            os.close(self._wake_read)
            os.close(self._wake_write)
            for other in self._children.values():
                other.close()
            code = _serve_caller(connection)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._children.pop(pid) as connection:
                code = os.waitstatus_to_exitcode(status)
                told = request.KILLED + bytes([-code]) if code < 0 else _exited(code)
                try:
                    connection.setblocking(False)
                    connection.send(told)
                except OSError:
                    continue  # the caller has left


def _serve_caller(connection: socket.socket) -> int:
    """Run print mode for a caller; the exit code of the child."""
    connection.settimeout(_PATIENCE_S)
    try:
        parts, descriptors = _received(connection)
        if parts[0] != request.identity() or why_refused(connection):
            connection.sendall(request.REFUSED)
            return 0
        adopt = _Adopted(parts, descriptors)
        connection.sendall(request.ACCEPTED)
        if connection.recv(1) != request.GO:
            return 0
    except (OSError, ValueError, IndexError):
        return 0
    connection.settimeout(None)
    adopt.apply()
    read_for(peer_of(connection)[0])

    def leave(code: int) -> None:
        code = written(code)
        try:
            connection.sendall(_exited(code))
        finally:
            os._exit(code)

    _pass_signals(connection)
    try:
        code = run(adopt.argv, leave=leave)
    except KeyboardInterrupt:  # before anything has started
        from batten.serve.output import warn

        warn("cancelled before anything was started")
        code = 124
    leave(code)
    return code


def _received(connection: socket.socket) -> tuple[list[bytes], list[int]]:
    """The parts of a request and its descriptors. Raises for anything else."""
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, request.DESCRIPTORS)
    if len(descriptors) != request.DESCRIPTORS:
        raise ValueError("a request without descriptors")
    size = int(data[: request.HEAD])
    if size > request.LARGEST:
        raise ValueError("a request that is too long")
    body = bytearray(data[request.HEAD :])
    while len(body) < size:
        piece = connection.recv(1 << 20)
        if not piece:
            raise ValueError("a request that breaks off")
        body += piece
    return bytes(body).split(b"\0"), descriptors


class _Adopted:
    """The caller's surroundings, read and then made our own."""

    def __init__(self, parts: list[bytes], descriptors: list[int]) -> None:
        _, mask, encodings, limits, count = parts[:5]
        words = 5 + int(count)
        self._mask = int(mask)
        self._encodings = encodings.decode().split(" ")
        numbers = [int(number) for number in limits.split()]
        self._limits = list(zip(numbers[::2], numbers[1::2], strict=True))
        self._program, *self.argv = [os.fsdecode(word) for word in parts[5:words]]
        self._environ = dict(pair.split(b"=", 1) for pair in parts[words:] if b"=" in pair)
        self._descriptors = descriptors
        self._limit()

    def _limit(self) -> None:
        """Before anything is accepted: a limit that we may not set is refused by `OSError`."""
        import resource

        for kind, wanted in enumerate(self._limits):
            if resource.getrlimit(kind) != wanted:
                resource.setrlimit(kind, wanted)

    def apply(self) -> None:
        for place, descriptor in enumerate(self._descriptors[:3]):
            os.dup2(descriptor, place)
        os.fchdir(self._descriptors[3])
        for descriptor in self._descriptors:
            os.close(descriptor)
        os.umask(self._mask)
        os.environb.clear()
        os.environb.update(self._environ)
        sys.argv = [self._program, *self.argv]
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  # for the life of the process
        out, err = self._encodings
        sys.stdout = open(1, "w", encoding=out, errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = (
            open(2, "w", encoding=err, errors="backslashreplace", closefd=False) if err else None  # noqa: SIM115
        )


def _pass_signals(connection: socket.socket) -> None:
    """Raise in this process the signals that the caller gets. A caller that is gone changes
    nothing: the run goes on.
    """

    def listen() -> None:
        while len(told := _two(connection)) == 2:
            if told[:1] == request.SIGNAL:
                os.kill(os.getpid(), told[1])

    # Only the main thread takes signals: the blocked mask is inherited by the new one.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    threading.Thread(target=listen, name="signals", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _two(connection: socket.socket) -> bytes:
    try:
        first = connection.recv(1)
        return first + connection.recv(1) if first else b""
    except OSError:
        return b""


def _exited(code: int) -> bytes:
    return request.EXITED + bytes([code & 0xFF])


def _drain(pipe: int) -> None:
    try:
        while os.read(pipe, 4096):
            continue
    except BlockingIOError:
        return


def _beat() -> None:
    """Tell the supervisor that this process does not hang."""
    try:
        os.write(1, b".")
    except OSError:  # it does not read: then it does not wait either
        return


def _end_with_parent() -> None:
    parent = os.getppid()
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def _ignore(number: int, frame: object) -> None:
    """The signal only wakes the loop up."""
