"""Requests by another user of this machine, and by one that nothing may tell from us."""

import os
import subprocess
import sys
from collections.abc import Mapping

import msgspec
import pytest

NOBODY = 65534
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
