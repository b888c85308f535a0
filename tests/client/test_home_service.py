"""The token of a home, and the addresses to which our own clients send it."""

import os
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from batten.client.home_service import (
    default_home,
    home_token,
    listening_at,
    make_home_token,
    token_for,
    with_address,
)
from batten.contract.errors import CallerError
from batten.wiring.home import batten_home
from tests.strangers import AS_ROOT, NOBODY


def test_a_home_has_one_token_that_only_its_owner_can_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert home_token(str(home)) == ""
    before = os.umask(0)
    try:
        with ThreadPoolExecutor(8) as pool:
            (token,) = set(pool.map(make_home_token, [str(home)] * 32))
    finally:
        os.umask(before)
    assert home_token(str(home)) == token
    assert [path.name for path in home.iterdir()] == ["token"]
    assert stat.S_IMODE((home / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert len(token) > 50


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_token_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    make_home_token(str(tmp_path))
    (tmp_path / "token").chmod(mode)
    with pytest.raises(CallerError, match="others may use it") as raised:
        make_home_token(str(tmp_path))
    assert "Delete it" in str(raised.value)


@AS_ROOT
def test_a_token_of_another_user_is_refused(tmp_path: Path) -> None:
    make_home_token(str(tmp_path))
    os.chown(tmp_path / "token", NOBODY, NOBODY)
    with pytest.raises(CallerError, match=f"belongs to the user {NOBODY}"):
        home_token(str(tmp_path))


def test_what_is_no_file_with_a_token_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "token"
    os.mkfifo(path, 0o600)
    with pytest.raises(CallerError, match="it is no file"):
        home_token(str(tmp_path))
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(CallerError):
        home_token(str(tmp_path))
    path.unlink()
    path.write_text("short\n")
    path.chmod(0o600)
    with pytest.raises(CallerError, match="holds no token"):
        home_token(str(tmp_path))


def test_the_token_goes_only_to_where_a_service_of_the_home_listens(tmp_path: Path) -> None:
    home = str(tmp_path)
    token = make_home_token(home)
    with listening_at(home, "127.0.0.1", 8765):
        assert token_for("http://127.0.0.1:8765", home) == token
        assert token_for("https://127.0.0.1:8765/", home) == token
        for other in (
            *("http://127.0.0.1:8766", "http://127.0.0.2:8765", "http://[::1]:8765"),
            *("http://localhost:8765", "http://example.com:8765", "http://10.0.0.1:8765"),
            *("unix:/x/serve.sock", "http://127.0.0.1:8765@example.com", "http://127.0.0.1:x"),
        ):
            assert token_for(other, home) == "", other
        assert token_for("http://127.0.0.1:8765", str(tmp_path / "another")) == ""
        # `localhost` may lead to ::1, where another program may listen.
        assert with_address("http://localhost:8765/x", home) == "http://127.0.0.1:8765/x"
    assert token_for("http://127.0.0.1:8765", home) == ""
    assert with_address("http://localhost:8765", home) == "http://localhost:8765"
    with listening_at(home, "::1", 80), listening_at(home, "0.0.0.0", 81):
        assert with_address("http://localhost", home) == "http://[::1]:80"
        assert token_for("http://[::1]:80", home) == token
        assert token_for("http://127.0.0.1:81", home) == token
        assert token_for("http://10.0.0.1:81", home) == ""


def test_what_a_killed_service_left_does_not_count(tmp_path: Path) -> None:
    home = str(tmp_path)
    make_home_token(home)
    program = (
        "import sys; from batten.client.home_service import listening_at\n"
        "with listening_at(sys.argv[1], '127.0.0.1', 8765): print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as service:
        assert service.stdout is not None
        service.stdout.readline()
        assert token_for("http://127.0.0.1:8765", home)
        service.kill()
    assert os.listdir(tmp_path / "listening") == ["127.0.0.1_8765"]
    assert token_for("http://127.0.0.1:8765", home) == ""
    with listening_at(home, "127.0.0.1", 9000):
        assert os.listdir(tmp_path / "listening") == ["127.0.0.1_9000"]
    assert os.listdir(tmp_path / "listening") == []


@pytest.mark.parametrize(
    "environ",
    [{}, {"BATTEN_HOME": "/a/b"}, {"XDG_STATE_HOME": "/x"}, {"XDG_STATE_HOME": "relative"}],
)
def test_clients_find_the_home_that_commands_use(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/somebody")
    environ = {"HOME": "/somebody", **environ}
    assert default_home(environ) == batten_home(environ, "/cwd")


def test_a_port_can_be_found_again_after_its_lock_was_replaced(tmp_path: Path) -> None:
    home = str(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(3):
        with listening_at(home, "127.0.0.1", port), listening_at(home, "127.0.0.1", port):
            make_home_token(home)
            assert token_for(f"http://127.0.0.1:{port}", home)
