"""Starts a keeper in the strongest sandbox that works, and holds the socket to it."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress

from batten.contract.errors import CallerError, ProviderError
from batten.workspace import keeper_messages as wire
from batten.workspace import process_tree
from batten.workspace.control import PATIENCE_S, Control
from batten.workspace.environment import DEFAULT_PATH
from batten.workspace.private_directory import PrivateDirectory
from batten.workspace.programs import holds_system, is_below
from batten.workspace.protection import Boundary, Protection, prepare, protection
from batten.workspace.sandbox import (
    Layer,
    Policy,
    Sandbox,
    describe,
    find_bwrap,
    layers_to_try,
)

_DYING_S = 1.0
_REFUSES_TRUNCATION = 3
"""The version of Landlock that refuses to truncate a file."""
CLOSING_S = 0.5
"""How long a keeper may take to end everything, and again after SIGCONT."""
_IGNORED_BY_US = (1, 2, 3, 13, 15, 25)
_log = logging.getLogger("batten.sandbox")
_KEEPER_ONLY = ("keeper_process", "landlock", "limits", "seccomp")
"""Modules that the keeper loads and we do not."""
_unusable: dict[Layer, str] = {}
"""Layers that failed to start in this process, and why; they are not tried again."""


class KeeperChannel:
    """One running keeper. Closing the channel ends it with everything it started."""

    def __init__(
        self, sock: socket.socket, pid: int, private: PrivateDirectory, sandbox: Sandbox
    ) -> None:
        self._socket = sock
        self.pid = pid
        """The process we started: bubblewrap's, if that is the layer."""
        self._private = private
        self._waiting: Control | None = None
        self.sandbox = sandbox

    @property
    def private_directory(self) -> str:
        return self._private.path

    def is_lost(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def until_lost(self) -> None:
        """Wait briefly for the end of a dying keeper: bubblewrap outlives it by a moment."""
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()
        loop.add_reader(self._socket, closed.set)
        try:
            async with asyncio.timeout(_DYING_S):
                await closed.wait()
        except TimeoutError:
            return
        finally:
            loop.remove_reader(self._socket)

    def shim(self) -> Control:
        """A shim for one command: the spare one, if it is ready."""
        waiting, self._waiting = self._waiting, None
        return self._summon() if waiting is None or waiting.over else waiting

    def keep_one_waiting(self) -> None:
        """Fork a spare shim for the next command: the fork takes longer than the start of one."""
        is_open = self._socket.fileno() >= 0
        if is_open and (self._waiting is None or self._waiting.over):
            self._waiting = self._summon()

    def _summon(self) -> Control:
        """If the keeper is gone the shim never answers: its socket just closes."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, suppress(ConnectionError, BlockingIOError):
            socket.send_fds(self._socket, [wire.ATTEND], [theirs.fileno()])
        return Control(ours)

    async def close(self) -> None:
        if self._waiting is not None:
            self._waiting.close()
        self._socket.close()
        await _reap(self.pid)
        await self._private.remove()


def unusable_layers() -> dict[Layer, str]:
    """The layers that did not start in this process so far, and why."""
    return dict(_unusable)


async def open_link(root: str, policy: Policy, environ: Mapping[str, str]) -> KeeperChannel:
    """A keeper in the first layer that works. A layer set by name is used or refused."""
    path = environ.get("PATH", DEFAULT_PATH)
    if policy.read_only and policy.mode == "none":
        raise CallerError(
            "A workspace that commands may not change needs a sandbox, and --sandbox none turns it"
            " off",
            code="sandbox_unavailable",
        )
    writable = [] if policy.read_only else [root, *map(os.path.realpath, policy.writable)]
    bwrap = find_bwrap(path, writable or [root]) if policy.mode in ("auto", "bwrap") else None
    for layer in layers_to_try(policy.mode, bwrap):
        if layer in _unusable and policy.mode == "auto":
            continue
        try:
            within = _boundary(layer, root, writable, policy, environ)
            link = await _launch(layer, within, policy, bwrap)
        except ProviderError as error:
            _log.debug("layer=%s does not work: %s", layer, error)
            _unusable[layer] = error.message
        else:
            _log.debug("layer=%s started pid=%d root=%s", link.sandbox.layer, link.pid, root)
            return link
    reasons = "; ".join(f"{layer}: {reason}" for layer, reason in _unusable.items())
    advice = "" if policy.mode == "none" else "; --sandbox none runs commands without one"
    raise CallerError(
        f"No sandbox could be started ({reasons}){advice}", code="sandbox_unavailable"
    )


def _boundary(
    layer: Layer, root: str, writable: list[str], policy: Policy, environ: Mapping[str, str]
) -> Boundary:
    if policy.mode == "none":
        return Boundary(root, _package(), environ, writable, Protection())
    from batten.workspace.places import other_names

    hidden = dict.fromkeys(policy.hidden)
    for path in policy.hidden:
        hidden |= dict.fromkeys(other_names(os.path.realpath(path)))
    kept: list[str] = []
    if layer == "bwrap":
        from batten.workspace.run_later import found_in

        kept = found_in(writable, policy.editable)
    protected = protection(writable, tuple(hidden), tuple(kept))
    return Boundary(root, _package(), environ, writable, protected)


async def _launch(
    layer: Layer, boundary: Boundary, policy: Policy, bwrap: str | None
) -> KeeperChannel:
    writable, protected = boundary.writable, boundary.protection
    private = PrivateDirectory(boundary.environ.get("TMPDIR", ""))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    stderr, stderr_write = os.pipe()
    exposes = not prepare(protected) if layer == "bwrap" else protected.has_links
    exposes = exposes or (layer == "none" and bool(protected.exposed))
    pid = 0
    try:
        argv = _keeper_argv(layer, bwrap, private.path, boundary, policy)
        path = boundary.environ.get("PATH", DEFAULT_PATH)
        pid = _spawn_keeper(argv, path, theirs.fileno(), stderr_write)
        theirs.close()
        os.close(stderr_write)
        stderr_write = -1
        if layer == "bwrap":
            _cache_keeper_code()
        version, filtered = await _hello(ours, stderr)
        sandbox = describe(
            layer,
            policy,
            landlock_version=version,
            filtered=bool(filtered),
            exposes=exposes,
            holds_home=bool(protected.exposed),
            holds_batten=is_below(os.path.realpath(_package()), writable),
            holds_system=any(map(holds_system, writable)),
            read_only=tuple(_named(path, boundary.root) for path in protected.kept),
        )
        if policy.mode != "none" and sandbox.layer == "none":
            raise ProviderError("this kernel has no Landlock", code="sandbox_unavailable")
        is_whole = layer == "bwrap" or (version >= _REFUSES_TRUNCATION and filtered)
        if policy.read_only and not is_whole:
            raise ProviderError(
                "this kernel's Landlock cannot keep a workspace as it is",
                code="sandbox_unavailable",
            )
        link = KeeperChannel(ours, pid, private, sandbox)
        link.keep_one_waiting()
        return link
    except BaseException:
        ours.close()
        if pid:
            await _reap(pid)
        await private.remove()
        raise
    finally:
        theirs.close()
        os.close(stderr)
        if stderr_write >= 0:
            os.close(stderr_write)


def _named(path: str, root: str) -> str:
    """As it is shown: names need not be text."""
    shown = os.path.relpath(path, root) if is_below(path, [root]) else path
    return os.fsencode(shown).decode("utf-8", "replace")


def _cache_keeper_code() -> None:
    """Compile for the next start what only the keeper loads.

    Python caches what it compiles, but the keeper's folder is read-only inside bubblewrap: it
    would compile its own program at every start.
    """
    cached_here: str | None = __spec__.cached
    if sys.dont_write_bytecode or not cached_here:
        return
    folder, name_here = os.path.split(cached_here)
    if not os.access(folder, os.W_OK):
        return
    for name in _KEEPER_ONLY:
        source = os.path.join(os.path.dirname(__file__), f"{name}.py")
        cached = os.path.join(folder, name_here.replace("keeper_channel", name))
        if not os.path.exists(cached) or os.stat(cached).st_mtime < os.stat(source).st_mtime:
            from importlib.machinery import SourceFileLoader

            SourceFileLoader(name, source).get_code(name)


def _package() -> str:
    """The folder that Batten is imported from."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _keeper_argv(
    layer: Layer, bwrap: str | None, private: str, boundary: Boundary, policy: Policy
) -> list[str]:
    # As a module, not a file, so that Python caches its bytecode.
    program = (
        f"import sys; sys.path.append({boundary.package!r}); "
        "from batten.workspace.keeper_process import main; main(sys.argv[1:])"
    )
    network = "network" if policy.network else "isolated"
    # The interpreter itself, not an environment's link to it, which a command may have replaced.
    python = os.path.realpath(sys.executable)
    access = "read" if policy.read_only else "write"
    writable = [private, *boundary.writable]
    argv = [python, "-I", "-S", "-c", program, layer, network, access, policy.limits.encoded()]
    argv += writable
    if layer == "none":
        return argv
    if layer == "landlock":
        from batten.workspace.places import seen_in, visible_places

        hidden = boundary.protection.hidden
        seen = seen_in(list(hidden), visible_places(boundary, policy))
        for kind, paths in ((wire.HIDDEN, hidden), (wire.SEEN, seen)):
            argv += [kind, *paths]
        return [*argv, wire.SOCKETS, *map(os.path.realpath, policy.sockets)]
    if bwrap is None:
        raise ProviderError("bwrap is not on PATH", code="sandbox_unavailable")
    from batten.workspace.bubblewrap import bwrap_argv

    within = Boundary(
        boundary.root, boundary.package, boundary.environ, writable, boundary.protection
    )
    return [*bwrap_argv(bwrap, within, policy), *argv]


def _spawn_keeper(argv: list[str], path: str, link: int, stderr_write: int) -> int:
    """In its own session, detached from the terminal, with only `PATH` in its environment."""
    return os.posix_spawn(
        argv[0],
        argv,
        {"PATH": path},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, link, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, stderr_write, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_IGNORED_BY_US,
    )


async def _hello(link: socket.socket, stderr: int) -> tuple[int, int]:
    """The restrictions the keeper reports; if it exits instead, raises with its stderr."""
    loop = asyncio.get_running_loop()
    buffer = wire.MessageBuffer()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (found := buffer.next_message()) is None:
                chunk = await loop.sock_recv(link, 4096)
                if not chunk:
                    break
                buffer.receive(chunk)
    except (TimeoutError, OSError):
        found = None
    if found is None:
        os.set_blocking(stderr, False)
        try:
            reason = os.read(stderr, 4096).decode(errors="replace").strip()
        except BlockingIOError:
            reason = ""
        reason = reason or "the keeper exited without an error message"
        raise ProviderError(reason, code="sandbox_unavailable")
    version, filtered = wire.CONFINEMENT.unpack(found[1])
    return version, filtered


async def _reap(pid: int) -> None:
    """Wait for a keeper whose socket is closed; if it does not exit, continue it, then kill it."""
    for _ in range(2):
        try:
            async with asyncio.timeout(CLOSING_S):
                await _until_ended(pid)
                return
        except (ChildProcessError, ProcessLookupError):
            return  # with SIGCHLD ignored the kernel reaps children itself
        except TimeoutError:
            process_tree.signal_tree(process_tree.SIGCONT, [(pid, 0)])
    process_tree.kill_below(pid)
    await _until_ended(pid)


async def _until_ended(pid: int) -> None:
    if not hasattr(os, "pidfd_open"):
        await asyncio.to_thread(os.waitpid, pid, 0)
        return
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(pid)
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
        os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it has ended: this does not wait
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
