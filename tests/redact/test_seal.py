"""Sealed bytes come back unchanged, or not at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.errors import Refused
from batten.redact.seal import SealKey

KEY = SealKey(bytes(range(32)))


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_what_was_sealed_comes_back(data: bytes, context: bytes) -> None:
    assert KEY.unseal(KEY.seal(data, context), context) == data


@given(st.binary(min_size=1, max_size=50), st.data())
def test_a_changed_byte_is_refused(secret: bytes, data: st.DataObject) -> None:
    sealed = bytearray(KEY.seal(secret, b"run"))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Refused) as refused:
        KEY.unseal(bytes(sealed), b"run")
    assert refused.value.code == "seal_unavailable"


@given(st.binary(max_size=40))
def test_bytes_from_anywhere_are_refused(sealed: bytes) -> None:
    with pytest.raises(Refused):
        KEY.unseal(sealed, b"")


def test_another_key_and_another_context_are_refused() -> None:
    sealed = KEY.seal(b"patch", b"run_1")
    for key, context in ((SealKey(bytes(32)), b"run_1"), (KEY, b"run_2")):
        with pytest.raises(Refused):
            key.unseal(sealed, context)


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    home = tmp_path / "state"
    sealed = SealKey.load(home).seal(b"x", b"")
    assert stat.S_IMODE((home / "seal.key").stat().st_mode) == 0o600
    assert SealKey.load(home).unseal(sealed, b"") == b"x"
    assert os.listdir(home) == ["seal.key"]


def test_many_processes_at_once_make_one_key(tmp_path: Path) -> None:
    script = (
        "import sys; from batten.redact.seal import SealKey; sys.stdin.read(1);"
        "sys.stdout.buffer.write(SealKey.load(sys.argv[1]).seal(b'mine', b''))"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(6)
    ]
    sealed = [child.communicate(b"g", timeout=60)[0] for child in children]
    key = SealKey.load(tmp_path)
    assert [key.unseal(one, b"") for one in sealed] == [b"mine"] * len(children)
    assert os.listdir(tmp_path) == ["seal.key"]


def test_a_cut_key_file_is_refused_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "seal.key").write_bytes(b"short")
    with pytest.raises(Refused):
        SealKey.load(tmp_path)
    assert (tmp_path / "seal.key").read_bytes() == b"short"


def test_a_home_that_cannot_hold_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused) as refused:
        SealKey.load(tmp_path / "file")
    assert refused.value.code == "seal_unavailable"
