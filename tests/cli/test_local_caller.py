"""The thin client of a warm process, against a service that ends at the wrong moment."""

import os
import signal
import socket
import tempfile
import threading

import pytest

from batten.cli.local import caller, request


def test_service_that_ends_before_the_start_leaves_the_prompt_and_signals_to_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory() as home, socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.setenv("BATTEN_HOME", home)
        listening.bind(os.path.join(home, request.SOCKET))
        listening.listen()

        def accept_and_leave() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 20)
                connection.shutdown(socket.SHUT_RD)
                connection.sendall(request.ACCEPTED)

        service = threading.Thread(target=accept_and_leave)
        service.start()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert caller.call(["-p", "go"]) is None
        service.join(timeout=10)
    assert signal.pthread_sigmask(signal.SIG_SETMASK, before) == before
