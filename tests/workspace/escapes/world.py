"""The world outside the sandbox: files, processes, servers and what processes share."""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

SECRET = "the-secret-of-our-environment"
_VICTIM = (
    "import ctypes, time; ctypes.CDLL(None).prctl(0x59616D61, -1); "
    "print('ready', flush=True); time.sleep(600)"
)
"""May be traced by anyone of its user, also where the machine forbids that by default."""
_X86 = os.uname().machine == "x86_64"
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.shmat.restype = ctypes.c_void_p
_LIBC.syscall.restype = ctypes.c_long
_CREATE = 0o1000 | 0o600
_SETTLING_S = 2.0


class World:
    """Made by the user who tries to get out, so that only the sandbox protects it."""

    def __init__(self, directory: Path, python: str) -> None:
        self.mark = f"batten-escape-{os.urandom(6).hex()}"
        self.workspace = directory / "workspace"
        self.outside = directory / "outside"
        self.state_folder = self.workspace / ".config" / "batten" / "state"
        self._closing = ExitStack()
        self._make_files()
        self._victim = self._start_victim(python)
        self._tcp = self._serving(socket.AF_INET, ("127.0.0.1", 0))
        self._udp = self._closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", 0))
        self._nameless = self._serving(socket.AF_UNIX, f"\0{self.mark}")
        self._named = self._serving(socket.AF_UNIX, str(self.outside / "socket"))
        os.mkfifo(self.outside / "pipe")
        self._pipe = os.open(self.outside / "pipe", os.O_RDWR | os.O_NONBLOCK)
        self._closing.callback(os.close, self._pipe)
        self._services = [self._nameless, self._named, self._tcp]
        self._service = "/nowhere"
        if os.access("/run/user", os.W_OK):
            self._service = f"/run/user/{self.mark}"
            self._services.append(self._serving(socket.AF_UNIX, self._service))
            self._closing.callback(os.unlink, self._service)
        self._share(python)
        self.environ = {
            "OUT": str(self.outside),
            "HOME": str(self.outside),
            "VICTIM": str(self._victim.pid),
            "US": str(os.getpid()),
            "MARK": self.mark,
            "TCP": str(self._tcp.getsockname()[1]),
            "UDP": str(self._udp.getsockname()[1]),
            "SERVICE": self._service,
            "SHM": str(self._shm),
            "QUEUE": str(self._queue),
            "TERMINAL": os.ttyname(self._terminal[1]),
            "NETWORK": os.readlink("/proc/self/ns/net"),
            "STATE": str(self.state_folder),
            "PY": python,
        }

    def _make_files(self) -> None:
        for folder in (self.state_folder, self.outside / "folder", self.outside / "empty"):
            folder.mkdir(parents=True)
        (self.workspace / "mine").write_text("mine\n")
        (self.state_folder / "key").write_text("k")
        for name in ("kept", ".bashrc", "folder/kept"):
            (self.outside / name).write_text("as it was\n")

    def _start_victim(self, python: str) -> "subprocess.Popen[bytes]":
        victim = self._closing.enter_context(
            subprocess.Popen(
                [python, "-c", _VICTIM, f"{self.mark}-victim"],
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        )
        self._closing.callback(victim.kill)
        assert victim.stdout is not None
        victim.stdout.readline()
        return victim

    def _serving(self, family: int, address: Any) -> socket.socket:
        server = self._closing.enter_context(socket.socket(family))
        server.bind(address)
        server.listen(8)
        server.setblocking(False)
        return server

    def _share(self, python: str) -> None:
        self._memory_file = Path("/dev/shm") / self.mark
        self._memory_file.write_text("as it was")
        self._closing.callback(self._memory_file.unlink)
        self._shm = _LIBC.shmget(0, 4096, _CREATE)
        self._closing.callback(_LIBC.shmctl, self._shm, 0, None)
        self._memory = _LIBC.shmat(self._shm, None, 0)
        self._closing.callback(_LIBC.shmdt, ctypes.c_void_p(self._memory))
        self._queue = _LIBC.msgget(0, _CREATE)
        self._closing.callback(_LIBC.msgctl, self._queue, 0, None)
        self._named_queue = _call(240 if _X86 else 180, self.mark.encode(), 0o102, 0o600, 0)
        self._closing.callback(os.close, self._named_queue)
        self._closing.callback(_call, 241 if _X86 else 181, self.mark.encode())
        self._terminal = os.openpty()
        os.set_blocking(self._terminal[0], False)
        for descriptor in self._terminal:
            self._closing.callback(os.close, descriptor)

    def state(self) -> dict[str, Any]:
        """Everything outside that an attempt may change."""
        return {
            "files": _tree(self.outside),
            "state": _tree(self.workspace / ".config"),
            "strange file": os.path.exists(f"/tmp/{self.mark}"),
            "left": self._left(),
            "victim": self._victim_state(),
            "heard": self._heard(),
            "shared file": self._memory_file.read_text(),
            "shared memory": ctypes.string_at(self._memory, 1),
            "queue": _LIBC.msgrcv(self._queue, ctypes.create_string_buffer(64), 8, 0, 0o4000),
            "terminal": self._typed(),
        }

    def _left(self) -> list[int]:
        """Processes that outlive their command."""
        deadline = time.monotonic() + _SETTLING_S
        while (left := self._found()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def _found(self) -> list[int]:
        """One that forks all the time is not seen at each look."""
        looks = (_with_variable(self.mark) for _ in range(5))
        return next(filter(None, looks), list[int]())

    def _victim_state(self) -> Any:
        pid = self._victim.pid
        if self._victim.poll() is not None:
            return "gone"
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (
            fields[0].replace("R", "S"),
            os.getpriority(os.PRIO_PROCESS, pid),
            os.sched_getaffinity(pid),
            os.sched_getscheduler(pid),
            resource.prlimit(pid, resource.RLIMIT_NOFILE),
            _call(252 if _X86 else 31, 1, pid),
            Path(f"/proc/{pid}/oom_score_adj").read_text(),
        )

    def _heard(self) -> list[str]:
        heard: list[str] = []
        for server in self._services:
            with suppress(BlockingIOError):
                server.accept()[0].close()
                heard.append(str(server.getsockname()))
        with suppress(BlockingIOError):
            os.read(self._pipe, 100)
            heard.append("pipe")
        with suppress(BlockingIOError):
            self._udp.recv(100, socket.MSG_DONTWAIT)
            heard.append("datagram")
        return heard

    def _typed(self) -> bytes:
        try:
            return os.read(self._terminal[0], 100)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        for pid in _with_variable(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        Path(f"/tmp/{self.mark}").unlink(missing_ok=True)
        self._closing.close()


def _call(number: int, *arguments: Any) -> int:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return int(_LIBC.syscall(ctypes.c_long(number), *words))


def _with_variable(mark: str) -> list[int]:
    """The processes of a command: they have the mark in their environment."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if b"MARK=" + mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
    return found


def _tree(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        told: list[Any] = [status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns]
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                told += [file.read(), os.listxattr(path), _flags(file.fileno())]
        found[str(path)] = told
    return found


def _flags(descriptor: int) -> int:
    try:
        return int(struct.unpack("=q", fcntl.ioctl(descriptor, 0x80086601, bytes(8)))[0])
    except OSError:
        return 0
