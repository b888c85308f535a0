"""The services of a home, as their owner's clients find them: a token, and where they listen.

Only the owner can read the home, so whoever has its token is its owner; and only a service of the
home can say there that it listens. The token is sent to no other address.
"""

import fcntl
import os
import secrets
import stat
import string
import struct
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from batten.contract.errors import CallerError

TOKEN_FILE = "token"
_LISTENING = "listening"
"""The directory with a file for each address, locked by the service that listens there."""
_LETTERS = string.ascii_lowercase + string.digits
_LONGEST = 4096
_ANYWHERE = {4: "0.0.0.0", 6: "::"}
_LOCK = struct.Struct("hhqqi4x")
"""What `fcntl` takes as a lock: its type, whence, start, length and holder."""


def default_home(environ: Mapping[str, str]) -> str:
    """The home of a program that was told of no other, as commands find theirs."""
    given = environ.get("BATTEN_HOME")
    if given:
        return os.path.abspath(given)
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state, "batten")


def home_token(home: str) -> str:
    """The token of the home; empty if no service has made one.

    Raises `CallerError` if others can read it, or could have written it.
    """
    path = os.path.join(home, TOKEN_FILE)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(path, "it is no file")
        if status.st_uid != os.geteuid():
            raise _unusable(path, f"it belongs to the user {status.st_uid}")
        if status.st_mode & 0o077:
            raise _unusable(path, f"others may use it (mode {status.st_mode & 0o777:o})")
        token = file.read(_LONGEST).decode("ascii", "replace").strip()
    if len(token) < 32 or not token.isprintable():
        raise _unusable(path, "it holds no token")
    return token


def make_home_token(home: str) -> str:
    """The token of the home, made if there is none. Raises `CallerError` if there can be none."""
    if token := home_token(home):
        return token
    # In the form of a key, which is redacted wherever it appears.
    key_id = "".join(secrets.choice(_LETTERS) for _ in range(12))
    token = f"btn_{key_id}_{secrets.token_urlsafe(32)}"
    path = os.path.join(home, TOKEN_FILE)
    draft = f"{path}.{secrets.token_hex(8)}"
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(f"{token}\n")
                file.flush()
                os.fsync(descriptor)
            # Unlike renaming, this leaves the token of another service that came first.
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.unlink(draft)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    return home_token(home)


def _unusable(path: str, why: str) -> CallerError:
    return CallerError(
        f"{path} cannot be used as the token of this home: {why}. Delete it; batten serve makes a"
        " new one",
        code="config",
    )


def token_for(server: str, home: str) -> str:
    """The token of the home if one of its services listens at this address now; else empty."""
    try:
        parts = urlsplit(server)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        address = ip_address(host)
    except ValueError:  # a name, which may lead to somebody else's address
        return ""
    if not address.is_loopback:
        return ""
    places = (str(address), _ANYWHERE[address.version])
    if any(_is_held(_place(home, one, port)) for one in places):
        return home_token(home)
    return ""


def with_address(server: str, home: str) -> str:
    """The URL with the address of a service of the home in place of `localhost`, which may lead to
    another program too: to 127.0.0.1, if one listens there now.
    """
    with suppress(ValueError):
        parts = urlsplit(server)
        if parts.scheme == "http" and parts.hostname == "localhost":
            port = parts.port or 80
            for host in ("127.0.0.1", "::1"):
                shown = f"[{host}]" if ":" in host else host
                if _is_held(_place(home, host, port)):
                    return parts._replace(netloc=f"{shown}:{port}").geturl()
    return server


@contextmanager
def listening_at(home: str, host: str, port: int) -> Generator[None]:
    """While this is open, clients of the home are told that its service listens there."""
    path = _place(home, host, port)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    _remove_stale(os.path.dirname(path))
    descriptor = _held(path)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)
        os.close(descriptor)


def _place(home: str, host: str, port: int) -> str:
    return os.path.join(home, _LISTENING, f"{host}_{port}")


def _held(path: str) -> int:
    """A descriptor that holds the lock of this file, which is there under its name."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BlockingIOError:  # one of several that listen with `SO_REUSEPORT` speaks for all
            return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_held(path: str) -> bool:
    """Whether a service holds the lock: it listens there, and no other program does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        asked = _LOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0)
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
        return bool(_LOCK.unpack(found)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _remove_stale(directory: str) -> None:
    """Remove what killed services left."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if not _is_held(entry.path):
                with suppress(OSError):
                    os.unlink(entry.path)
