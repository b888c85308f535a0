"""The keeper's program: starts every command of one workspace, and lets none outlive its owner.

It forks one shim per command. A shim adopts the processes its command leaves behind, answers on
that command's control socket, and ends the whole tree when that socket closes or the keeper dies;
the keeper ends all shims when its own socket closes. So whichever single process is killed,
another one still holds the tree.

Runs with `-I -S` and few imports (`_socket` instead of `socket` alone saves 10 ms): a run's first
command waits for its start.
"""

import _socket as socket
import os
import select
import struct
import time

from batten.workspace import keeper_messages as wire
from batten.workspace import landlock, process_tree, seccomp
from batten.workspace.capabilities import close_to_tracers, leave_no_core, shed_capabilities

TYPE_CHECKING = False  # without `typing`, whose import takes longer than all others here
if TYPE_CHECKING:
    from collections.abc import Callable

LEFTOVER_GRACE_S = 0.3
"""How long leftover processes of an exited command may still write before they are ended."""
_NUMBERING_S = 1.0
"""How long a command that has ended waits to be looked up."""

_DEFAULT_SIGNALS = (1, 2, 3, 13, 15, 25)
"""HUP, INT, QUIT, PIPE, TERM, XFSZ: ignored by Python or by our parent."""
_DESCRIPTOR_SIZE = 4


def main(arguments: list[str]) -> None:
    """`arguments`: layer, `network` or `isolated`, `write` or `read`, limits, private directory,
    writable paths; for Landlock also hidden paths, what of them is seen, and sockets, each kind
    after its name.
    """
    layer, network, access, limits, private, *paths = arguments
    writable, hidden, seen, sockets = _kinds(paths)
    os.closerange(3, 4096)
    os.chdir("/")
    link = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    process_tree.check_visible()
    process_tree.adopt_orphans()
    close_to_tracers()
    leave_no_core()
    process_tree.go_first_without_memory()
    version, filtered = 0, False
    allowed = network == "network"
    # Held by this process and those that it forks, not by commands.
    mark = None
    if allowed and layer != "none":
        from batten.workspace.network_mark import hold_mark

        mark = hold_mark()
    if layer == "bwrap":
        filtered = seccomp.confine(network=allowed, internet=True, attributes=True)
        if allowed:
            landlock.scope_sockets()
    elif layer == "landlock":
        shed_capabilities()
        version = landlock.restrict_files(
            [private, *writable], network=allowed, hidden=hidden, seen=seen, sockets=sockets
        )
        unix = bool(sockets) or version >= landlock.REFUSES_SOCKETS
        filtered = seccomp.confine(network=allowed, modes=access == "write", unix=unix)
    if layer != "bwrap":
        # In bubblewrap this is the first process of the namespace: all others end with it.
        _guard_keeper(link, private)
    link.sendall(wire.message(wire.HELLO, wire.CONFINEMENT.pack(version, filtered)))
    os.dup2(null, 2)
    os.close(null)
    Keeper(link, out_of_reach=version > 0, limit=_limiter(limits, (writable or [private])[0])).run()
    if mark is not None:
        mark.close()
    _empty_directory(private)
    # Our owner waits for this end: without the interpreter's own, which takes 2 ms.
    os._exit(0)


def _kinds(paths: list[str]) -> list[list[str]]:
    """Writable, hidden and seen paths and sockets. Paths are absolute: none is taken for a name."""
    found: list[list[str]] = [[]]
    for path in paths:
        if path in (wire.HIDDEN, wire.SEEN, wire.SOCKETS):
            found.append([])
        else:
            found[-1].append(path)
    return [*found, [], [], []][:4]


def _limiter(encoded: str, workspace: str) -> "Callable[[], None] | None":
    """Sets the limits of a command; None if there are none."""
    if not encoded.strip("0:"):
        return None
    from batten.workspace.limits import find_limits, set_limits

    found = find_limits(encoded, workspace)
    return lambda: set_limits(found)


def _guard_keeper(link: socket.socket, private: str) -> None:
    """Fork the keeper, in which this returns. The parent waits for its end, however that comes,
    adopts what the keeper and its shims leave if they are killed together, and ends it.
    """
    events = process_tree.open_child_events()
    keeper = os.fork()
    if keeper == 0:
        process_tree.adopt_orphans()
        return
    status = 1
    try:
        link.close()
        while keeper not in process_tree.reap()[0]:
            # A command can stop the keeper with SIGSTOP, which also raises SIGCHLD here.
            process_tree.signal_tree(process_tree.SIGCONT, [(keeper, 0)])
            select.select([] if events is None else [events], [], [], None if events else 0.5)
            process_tree.drain(events)
        process_tree.kill_all(events)
        _empty_directory(private)
        status = 0
    finally:
        os._exit(status)


class Keeper:
    """Forks shims on request until its socket closes, then ends everything."""

    def __init__(
        self, link: socket.socket, *, out_of_reach: bool, limit: "Callable[[], None] | None"
    ) -> None:
        self._link = link
        self._limit = limit
        self._out_of_reach = out_of_reach
        """Whether to keep commands from signalling this process and each other."""
        self._events = process_tree.open_child_events()
        self._shims: set[int] = set()
        # Shims hold the reading end: it reports end of file when this process dies.
        self._alive, self._life = os.pipe()

    def run(self) -> None:
        watched = [self._link.fileno()] + ([] if self._events is None else [self._events])
        while True:
            readable, _, _ = select.select(watched, [], [], None if self._events else 0.5)
            if self._events in readable or self._events is None:
                process_tree.drain(self._events)
                self._reap()
            if self._link.fileno() in readable and not self._serve():
                break
        process_tree.kill_all(self._events)

    def _serve(self) -> bool:
        try:
            data, descriptors = _receive_with_descriptors(self._link, 1)
        except ConnectionError:
            return False
        if not data:
            return False
        try:
            pid = os.fork()
        except OSError:
            # Process limit reached: this command is not accepted, the others continue.
            _close(descriptors)
            return True
        if pid == 0:
            status = 1
            try:
                self._become_shim(descriptors)
                status = 0
            finally:
                os._exit(status)
        self._shims.add(pid)
        _close(descriptors)
        return True

    def _become_shim(self, descriptors: list[int]) -> None:
        self._link.close()
        os.close(self._life)
        process_tree.adopt_orphans()
        if self._out_of_reach:
            landlock.scope_signals()
        control = socket.socket(fileno=descriptors[0])
        if self._limit is not None:
            self._limit()
        Shim(control, self._events, self._alive).run()

    def _reap(self) -> None:
        """Clean up after a killed shim: its command's processes were reparented to the keeper."""
        ended, _ = process_tree.reap()
        lost = any(status != 0 for pid, status in ended.items() if pid in self._shims)
        self._shims -= ended.keys()
        if lost:
            ended = process_tree.kill_all(self._events, spare=self._shims)
            self._shims -= ended.keys()
        # A command can stop its shim with SIGSTOP, which also raises SIGCHLD here.
        process_tree.signal_tree(process_tree.SIGCONT, [(pid, 0) for pid in self._shims])


class Shim:
    """Waits for one command, starts it, and stays until its whole tree has ended."""

    def __init__(self, control: socket.socket, events: int | None, alive: int) -> None:
        self._control = control
        self._pipes: list[int] = []
        self._events = events
        self._alive = alive
        self._buffer = wire.MessageBuffer()
        self._main = 0
        self._deadline: float | None = None
        """When the tree gets killed."""
        self._killed: list[bytes] = []
        self._mute = False
        """Set when the keeper died: the shim sends no more, and the owner sees the socket close."""

    def run(self) -> None:
        body = self._read_request()
        if body is None:
            return
        self._say(wire.ACCEPTED, b"")
        if self._deadline is not None:
            # The owner has already closed the socket.
            return
        flags, size, cwd, argv, env = wire.unpack_request(body)
        if self._start(flags, size, cwd, argv, env):
            if flags & wire.FLAG_NUMBERED:
                # A process that is not reaped keeps its pid, and can be found by it.
                select.select([self._control.fileno(), self._alive], [], [], _NUMBERING_S)
            self._attend()

    def _read_request(self) -> bytes | None:
        while (found := self._buffer.next_message()) is None:
            chunk, descriptors = _receive_with_descriptors(self._control, 65536)
            if not chunk:
                return None
            self._pipes += descriptors
            self._buffer.receive(chunk)
        return found[1]

    def _start(
        self,
        flags: int,
        size: tuple[int, int],
        cwd: bytes,
        argv: list[bytes],
        env: dict[bytes, bytes],
    ) -> bool:
        stage = wire.STAGE_CWD
        terminal: tuple[int, int] | None = None
        try:
            os.chdir(cwd)
            stage = wire.STAGE_TERMINAL
            if flags & wire.FLAG_PTY:
                terminal = _open_terminal(size)
                actions = _terminal_actions(terminal[1])
            else:
                actions = _pipe_actions(self._pipes, stdin=bool(flags & wire.FLAG_STDIN))
            stage = wire.STAGE_EXEC
            self._main = _spawn(argv, env, actions)
        except OSError as error:
            self._say(wire.FAILED, wire.FAILURE.pack(error.errno or 0, stage))
            return False
        self._tell_started(None if terminal is None else terminal[0])
        _close([*self._pipes, *(terminal or ())])
        return True

    def _tell_started(self, master: int | None) -> None:
        started = wire.message(wire.STARTED, wire.PID.pack(self._main))
        beside: list[tuple[int, int, bytes]] = []
        if master is not None:
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", master))]
        try:
            self._control.sendmsg([started], beside)
        except OSError:
            self._deadline = 0.0

    def _attend(self) -> None:
        """Serve until the last process of the tree has ended."""
        while True:
            ended, children_left = process_tree.reap()
            if self._main in ended:
                self._say(wire.EXITED, wire.STATUS.pack(ended[self._main]))
                self._main = 0
                if children_left and self._deadline is None:
                    self._deadline = time.monotonic() + LEFTOVER_GRACE_S
            if not children_left:
                break
            patience = None if self._deadline is None else self._deadline - time.monotonic()
            if patience is not None and patience <= 0:
                self._kill()
                break
            self._wait(patience)
        self._say(wire.ENDED, b"\0".join(self._killed))

    def _wait(self, patience: float | None) -> None:
        watched = [self._control.fileno(), self._alive]
        if self._events is not None:
            watched.append(self._events)
        elif patience is None or patience > 0.02:
            patience = 0.02
        readable, _, _ = select.select(watched, [], [], patience)
        if self._events in readable:
            process_tree.drain(self._events)
        if self._alive in readable:
            self._mute = True
            self._deadline = 0.0
        if self._control.fileno() in readable:
            self._obey()

    def _obey(self) -> None:
        try:
            chunk = self._control.recv(4096)
        except ConnectionError:
            chunk = b""
        if not chunk:
            self._deadline = 0.0
            return
        self._buffer.receive(chunk)
        while (found := self._buffer.next_message()) is not None:
            if found[0] != wire.END_TREE:
                continue
            grace_s = wire.GRACE.unpack(found[1])[0] / 1000
            if grace_s > 0:
                tree = self._tree()
                self._remember(tree)
                process_tree.signal_each(process_tree.SIGTERM, tree)
                # A stopped process would not handle TERM.
                process_tree.signal_tree(process_tree.SIGCONT, tree)
            deadline = time.monotonic() + grace_s
            self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)

    def _kill(self) -> None:
        self._remember(self._tree())
        known = (self._main,) if self._main else ()
        statuses = process_tree.kill_all(self._events, known=known)
        if self._main in statuses:
            self._say(wire.EXITED, wire.STATUS.pack(statuses[self._main]))
            self._main = 0

    def _tree(self) -> list[tuple[int, int]]:
        try:
            return process_tree.descendants()
        except OSError:
            # /proc cannot be read now: the command and its group are known all the same.
            return [(self._main, self._main)] if self._main else []

    def _remember(self, tree: list[tuple[int, int]]) -> None:
        if not self._killed:
            names = (process_tree.name_of(pid) for pid, _ in tree if pid != self._main)
            self._killed = [name for name in names if name]

    def _say(self, kind: int, body: bytes) -> None:
        if self._mute:
            return
        try:
            self._control.sendall(wire.message(kind, body))
        except OSError:
            # The owner is gone; end the tree.
            self._deadline = 0.0


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _receive_with_descriptors(link: socket.socket, size: int) -> tuple[bytes, list[int]]:
    data, beside, _, _ = link.recvmsg(size, socket.CMSG_SPACE(4 * _DESCRIPTOR_SIZE))
    descriptors: list[int] = []
    for level, kind, body in beside:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.extend(struct.unpack(f"={len(body) // _DESCRIPTOR_SIZE}i", body))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return data, descriptors


_Actions = list[tuple[int, int, int] | tuple[int, int, str, int, int]]


def _pipe_actions(pipes: list[int], *, stdin: bool) -> _Actions:
    """`pipes`: stdout, stderr, and stdin if the command has one."""
    actions: _Actions = [
        (os.POSIX_SPAWN_DUP2, pipes[0], 1),
        (os.POSIX_SPAWN_DUP2, pipes[1], 2),
    ]
    if stdin:
        return [*actions, (os.POSIX_SPAWN_DUP2, pipes[2], 0)]
    return [*actions, (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]


def _open_terminal(size: tuple[int, int]) -> tuple[int, int]:
    """Both sides of a new terminal, opened inside the sandbox so that it has a name there."""
    import fcntl
    import termios

    master, slave = os.openpty()
    columns, rows = size
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("@HHHH", rows, columns, 0, 0))
    return master, slave


def _terminal_actions(slave: int) -> _Actions:
    """Opened by name as leader of a new session, it becomes the controlling terminal."""
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 0, 1),
        (os.POSIX_SPAWN_DUP2, 0, 2),
    ]


def _spawn(argv: list[bytes], env: dict[bytes, bytes], actions: _Actions) -> int:
    """Start the first program of that name on the command's own PATH."""
    failure: OSError = FileNotFoundError(2, "not found")
    for path in _candidates(argv[0], env):
        try:
            return os.posix_spawn(
                path,
                argv,
                env,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            failure = error
    raise failure


def _candidates(name: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    if b"/" in name:
        return [name]
    return [os.path.join(folder, name) for folder in env.get(b"PATH", b"").split(b":") if folder]


def _empty_directory(path: str) -> None:
    """Delete the contents of the commands' private directory. Does not follow links."""
    for parent, directories, files in os.walk(path, topdown=False):
        for name in [*files, *directories]:
            below = os.path.join(parent, name)
            try:
                if name in directories and not os.path.islink(below):
                    os.rmdir(below)
                else:
                    os.unlink(below)
            except OSError:
                # Skip it; the directory is private either way.
                continue
