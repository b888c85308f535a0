"""Programs and requests of other users of this machine."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
import pytest

NOBODY = 65534
ORDINARY = 54321
"""The id of a user that owns nothing."""
PATIENCE_S = 1500
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

_ASK = """
import http.client, json, os, sys
user, host, port, method, path, headers, body = json.loads(sys.stdin.read())
if user is not None:
    "".encode("idna")  # loaded while its file can be read
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
connection = http.client.HTTPConnection(host, port, timeout=20)
connection.request(method, path, body=body, headers=headers)
answer = connection.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


class Told(msgspec.Struct, frozen=True, array_like=True):
    status: int
    body: str

    @property
    def message(self) -> str:
        return str(msgspec.json.decode(self.body)["error"]["message"])


def ask_as(
    user: int | None,
    port: int,
    path: str,
    *,
    host: str = "127.0.0.1",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: str | None = None,
) -> Told:
    """What a process of this user is answered; None for our own."""
    asked = [user, host, port, method, path, dict(headers or {}), body]
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        input=msgspec.json.encode(asked),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Told)


def python_path() -> str:
    """Where an interpreter outside of our environment finds Batten, its packages and the tests."""
    repository = Path(__file__).parents[1]
    packages = [one for one in sys.path if one.endswith("site-packages")]
    return ":".join([str(repository), str(repository / "src"), *packages])


def module_as(
    user: int | None, python: str, *words: str, environ: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a module of ours with an interpreter, as this user; None for our own."""
    return subprocess.run(
        [python, "-m", *words],
        env={
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONPATH": python_path(),
            **(environ or {}),
        },
        cwd="/",
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@cache
def readable_python() -> str | None:
    """An interpreter of our version that the ordinary user may execute, with our packages."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")):
        if python is None:
            continue
        with suppress(PermissionError):
            done = subprocess.run(
                [python, "-c", "import tests.strangers, batten, msgspec, apsw"],
                env={"PATH": "/usr/bin:/bin", "PYTHONPATH": python_path()},
                cwd="/",
                user=ORDINARY,
                group=ORDINARY,
                extra_groups=[],
                capture_output=True,
                timeout=60,
                check=False,
            )
            if done.returncode == 0:
                return python
    return None
