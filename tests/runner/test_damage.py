"""A damaged manifest or session file is refused, or nothing that counts has changed."""

import asyncio
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from batten.contract.errors import BattenError
from batten.journal.sqlite import SqliteJournal
from batten.runner.manifest import digest, fields_of
from batten.runner.restore import Restored, load
from batten.runner.session_file import adopt
from tests.agent.stage import Stage, bash
from tests.conftest import Tell
from tests.maestro.schemas import Json
from tests.runner.remote import NotStarted
from tests.runner.test_http import connected
from tests.runner.test_http_restore import DONE, drained_once, start

Change = Callable[[bytes, random.Random], bytes]


class Left(NamedTuple):
    """What a drained runner left, in copies to be damaged."""

    workspace: Path
    manifest: Path
    session: Path
    home: Path

    def restore(self) -> tuple[Restored, list[bytes]]:
        """What a runner with an empty home would go on from."""
        shutil.rmtree(self.home, ignore_errors=True)
        restored = load(str(self.manifest), str(self.workspace))
        session_id = adopt(
            str(self.home), str(self.workspace), restored.kept, restored.drained_id, None
        )
        return restored, asyncio.run(_facts(self.home, session_id))


async def _facts(home: Path, session_id: str) -> list[bytes]:
    journal = SqliteJournal.open(str(home), read_only=True)
    try:
        return [
            one.body
            for run in await journal.runs(session_id=session_id)
            for one in await journal.read(run.run_id, limit=10_000)
        ]
    finally:
        journal.close()


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The workspaces of two drained runners."""
    one, other = (Stage(tmp_path_factory.mktemp(name)) for name in ("one", "other"))
    drained_once(one, one.scenario([bash("echo one | tee a.txt", "c1")], DONE))
    runner = start(other, other.scenario(DONE), "--maestro-session-id", "session_other")
    try:
        connected(runner)
    finally:
        assert runner.end() == 0  # which drains it
    return [one.workspace, other.workspace]


def _left(workspace: Path, directory: Path) -> Left:
    copied = directory / "workspace"
    shutil.copytree(workspace, copied)
    (manifest,) = (copied / ".maestro/runner-snapshots").iterdir()
    (session,) = (copied / ".maestro/agent/sessions").iterdir()
    return Left(copied, manifest, session, directory / "home")


@pytest.fixture
def left(drained: list[Path], tmp_path: Path) -> Left:
    return _left(drained[0], tmp_path)


def _edit(left: Left, **fields: object) -> None:
    """Change fields of the runtime in the manifest, or remove them, and its own digest."""
    manifest: Json = msgspec.json.decode(left.manifest.read_bytes())
    manifest.pop("manifest_sha256", None)
    manifest["runtime"] |= fields
    for name in [name for name, value in fields.items() if value is None]:
        del manifest["runtime"][name]
    left.manifest.write_bytes(msgspec.json.encode(manifest))


def _flip(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def _garble(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + chance.randbytes(chance.randrange(1, 64)) + data[place + 40 :]


def _truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _lose(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + data[place + chance.randrange(1, 200) :]


def _repeat(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[: place + chance.randrange(1, 200)] + data[place:]


def _zero(data: bytes, chance: random.Random) -> bytes:
    place, size = chance.randrange(len(data)), chance.randrange(1, 600)
    return (data[:place] + bytes(size) + data[place + size :])[: len(data)]


def _digit(data: bytes, chance: random.Random) -> bytes:
    """Another digit or letter, so that it stays JSON."""
    places = [place for place, one in enumerate(data) if chr(one).isalnum()]
    place = chance.choice(places)
    same = b"0123456789" if chr(data[place]).isdigit() else b"abcdefghijklmnopqrstuvwxyz"
    return data[:place] + bytes([chance.choice(same)]) + data[place + 1 :]


CHANGES: tuple[Change, ...] = (_flip, _garble, _truncate, _lose, _repeat, _zero, _digit)


def _damage(left: Left, place: Path, count: int, seed: int) -> Counter[str]:
    """Damage a file in so many ways; how many were refused, and how many changed nothing."""
    chance = random.Random(seed)
    whole = place.read_bytes()
    expected = left.restore()
    found: Counter[str] = Counter()
    for _ in range(count):
        change = chance.choice(CHANGES)
        data = change(whole, chance)
        if data == whole:
            continue
        place.write_bytes(data)
        try:
            restored = left.restore()
        except BattenError:
            found["refused"] += 1
        else:
            assert restored == expected, (change, seed)
            found["without effect"] += 1
    place.write_bytes(whole)
    assert left.restore() == expected
    return found


FILES = ("manifest", "session", "session without its hash")


def _damage_named(left: Left, name: str, count: int, seed: int) -> Counter[str]:
    if name == "session without its hash":
        _edit(left, session_file_sha256=None)
    return _damage(left, left.manifest if name == "manifest" else left.session, count, seed)


@pytest.mark.parametrize("name", FILES)
def test_damage_is_refused_or_without_effect(left: Left, name: str) -> None:
    assert _damage_named(left, name, 60, seed=1)["refused"] > 40


@pytest.mark.soak
@pytest.mark.parametrize("name", FILES)
def test_much_damage_is_refused_or_without_effect(left: Left, name: str, tell: Tell) -> None:
    seed = time.time_ns()
    found = _damage_named(left, name, 4000, seed)
    tell(seed=seed, **found)
    assert found["refused"] > 3000


def test_another_layout_of_a_manifest_is_the_same_manifest(left: Left) -> None:
    manifest: Json = msgspec.json.decode(left.manifest.read_bytes())
    arguments: Json = {"seconds": 1.0, "share": 0.1, "much": 1e300}
    tracked: Json = {"call_id": "c9", "tool": "t", "args": arguments}
    manifest["snapshot"]["state"]["tracked_tools"] = [tracked]
    manifest["manifest_sha256"] = digest(fields_of(msgspec.json.encode(manifest)))
    arguments["seconds"] = 1  # as some languages write it
    backwards = dict(reversed(manifest.items()))
    left.manifest.write_bytes(msgspec.json.format(msgspec.json.encode(backwards), indent=7))
    left.restore()
    arguments["share"] = 0.2
    left.manifest.write_bytes(msgspec.json.encode(manifest))
    with pytest.raises(BattenError, match="it was changed after the drain"):
        left.restore()


def _wrong_hash(left: Left, other: Left) -> None:
    _edit(left, session_file_sha256="0" * 64)


def _no_hash(left: Left, other: Left) -> None:
    """Nothing says that the file is another one's, but its name does."""
    _edit(left, session_file_sha256=None)
    os.replace(other.session, left.session)


def _swapped_sessions(left: Left, other: Left) -> None:
    os.replace(other.session, left.session)


def _swapped_manifests(left: Left, other: Left) -> None:
    os.replace(other.manifest, left.manifest)
    left.session.unlink()


def _no_session(left: Left, other: Left) -> None:
    left.session.unlink()


def _no_manifest(left: Left, other: Left) -> None:
    left.manifest.unlink()


def _another_file(left: Left, other: Left) -> None:
    _edit(left, session_file=str(left.workspace / "a.txt"))


def _directory(left: Left, other: Left) -> None:
    left.session.unlink()
    left.session.mkdir()


@pytest.mark.parametrize(
    "change",
    [
        *(_wrong_hash, _no_hash, _swapped_sessions, _swapped_manifests),
        *(_no_session, _no_manifest, _another_file, _directory),
    ],
)
def test_what_does_not_belong_together_is_refused(
    drained: list[Path], left: Left, tmp_path: Path, change: Callable[[Left, Left], None]
) -> None:
    other = _left(drained[1], tmp_path / "other")
    change(left, other)
    with pytest.raises(BattenError):
        left.restore()
    stage = Stage(tmp_path)
    with pytest.raises(NotStarted) as raised:
        start(stage, "", "--restore-manifest", str(left.manifest))
    assert raised.value.code == 1
    assert "Traceback" not in raised.value.errors
    assert len(raised.value.errors.splitlines()) == 1
