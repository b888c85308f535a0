"""Bundles: a session leaves one store and enters another unchanged; anything else is refused."""

import gzip
import io
import os
import random
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.contract.errors import BadBundle, Conflict, StoreDamaged
from batten.contract.ids import session_stream
from batten.journal.bundles.checking import check
from batten.journal.bundles.manifest import Manifest
from batten.journal.bundles.transfer import Source, export_session, import_session, presence
from batten.journal.contract import Stored
from batten.journal.sqlite import SqliteJournal
from tests.journal.given import all_facts, text
from tests.journal.process import start
from tests.journal.sessions import ended_session

LIMIT = 1 << 30
Members = list[tuple[tarfile.TarInfo, bytes]]


def exported(home: Path, session_id: str) -> bytes:
    file = io.BytesIO()
    export_session(str(home), session_id, file, None)
    return file.getvalue()


def imported(home: Path, bundle: Path) -> None:
    checked = check(str(bundle), LIMIT, None)
    journal = SqliteJournal.open(home)
    try:
        source = Source(str(bundle), LIMIT, checked, None)
        import_session(journal, source, None)
    finally:
        journal.close()


@pytest.fixture
async def origin(tmp_path: Path) -> tuple[Path, str]:
    """A home with three sessions, and the name of the second."""
    home = tmp_path / "origin"
    journal = SqliteJournal.open(home)
    await ended_session(journal)
    session_id = await ended_session(journal, facts=600, body=b"b" * 40_000)
    await ended_session(journal)
    journal.close()
    return home, session_id


@pytest.fixture
def bundle(tmp_path: Path, origin: tuple[Path, str]) -> Path:
    path = tmp_path / "bundle"
    path.write_bytes(exported(*origin))
    return path


async def facts_of(home: Path, session_id: str) -> list[tuple[str, int, bytes]]:
    journal = SqliteJournal.open(home, read_only=True)
    try:
        assert await journal.verify() == []
        found: list[Stored] = await all_facts(journal)
        return [
            (one.run_id, one.sequence, one.body) for one in found if session_id.encode() in one.body
        ]
    finally:
        journal.close()


async def rows_of(home: Path, session_id: str) -> list[Any]:
    """All rows of a session, without those of leases."""
    journal = SqliteJournal.open(home, read_only=True)
    try:
        runs = await journal.runs(session_id=session_id)
        free = [
            msgspec.structs.replace(row, fence=0, lease_until="", lease_boot_ms=0) for row in runs
        ]
        rows: list[Any] = [await journal.session(session_id), free]
        for row in runs:
            rows += [await journal.ledger(row.run_id), await journal.artifacts(row.run_id)]
        return rows
    finally:
        journal.close()


async def test_a_session_enters_another_store_with_the_same_bytes_ids_and_rows(
    tmp_path: Path, origin: tuple[Path, str], bundle: Path
) -> None:
    home, session_id = origin
    there = tmp_path / "there"
    imported(there, bundle)
    assert await facts_of(there, session_id) == await facts_of(home, session_id) != []
    assert await rows_of(there, session_id) == await rows_of(home, session_id)
    journal = SqliteJournal.open(there)
    (artifact,) = await journal.artifacts((await journal.runs())[0].run_id)
    assert await journal.body(artifact.sha256) == b"b" * 40_000
    await ended_session(journal)
    assert await journal.verify() == []
    journal.close()
    assert exported(there, session_id) != b""


async def test_the_same_session_again_is_said_to_be_there(
    tmp_path: Path, origin: tuple[Path, str], bundle: Path
) -> None:
    home, session_id = origin
    manifest = check(str(bundle), LIMIT, None).manifest
    journal = SqliteJournal.open(home)
    assert presence(journal, manifest) == "same"
    stream = await journal.claim(session_stream(session_id), "w")  # type: ignore[arg-type]
    await journal.append(stream.run_id, [text("further")], fence=stream.fence)
    assert presence(journal, manifest) == "longer"
    await journal.release(stream)
    longer = tmp_path / "longer"
    longer.write_bytes(exported(home, session_id))
    await journal.delete_session(session_id)
    assert presence(journal, manifest) == "absent"
    journal.close()
    imported(home, bundle)
    journal = SqliteJournal.open(home)
    with pytest.raises(Conflict, match="is here already, but"):
        presence(journal, check(str(longer), LIMIT, None).manifest)
    assert await journal.verify() == []
    journal.close()


async def test_a_pruned_run_is_bundled_with_its_base(
    tmp_path: Path, origin: tuple[Path, str]
) -> None:
    home, session_id = origin
    journal = SqliteJournal.open(home)
    (run,) = await journal.runs(session_id=session_id)
    await journal.prune(run.run_id, before=300, reason="age")
    journal.close()
    path, there = tmp_path / "pruned", tmp_path / "there"
    path.write_bytes(exported(home, session_id))
    imported(there, path)
    assert await facts_of(there, session_id) == await facts_of(home, session_id)
    assert await rows_of(there, session_id) == await rows_of(home, session_id)


async def test_a_damaged_body_makes_no_bundle(origin: tuple[Path, str]) -> None:
    home, session_id = origin
    (path,) = [path for path in (home / "artifacts").rglob("*") if path.is_file()]
    path.write_bytes(b"c" * 40_000)
    with pytest.raises(StoreDamaged, match="is damaged"):
        exported(home, session_id)
    path.unlink()
    with pytest.raises(StoreDamaged, match="is missing"):
        exported(home, session_id)


async def test_ids_that_another_session_uses_are_refused_and_nothing_is_stored(
    tmp_path: Path, origin: tuple[Path, str], bundle: Path
) -> None:
    there = tmp_path / "there"
    imported(there, bundle)
    journal = SqliteJournal.open(there)
    before = await all_facts(journal)
    source = Source(str(bundle), LIMIT, check(str(bundle), LIMIT, None), None)
    with pytest.raises(Conflict, match="is in use here"):
        import_session(journal, source, None)
    assert await all_facts(journal) == before
    assert await journal.verify() == []
    journal.close()


async def test_an_import_that_is_killed_leaves_a_sound_store_without_the_session(
    tmp_path: Path, origin: tuple[Path, str], bundle: Path
) -> None:
    there = tmp_path / "there"
    journal = SqliteJournal.open(there)
    other = await ended_session(journal)
    journal.close()
    with start("import_bundle", there, bundle) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "_insert\n"
        os.kill(process.pid, signal.SIGKILL)
    journal = SqliteJournal.open(there)
    assert await journal.verify() == []
    assert [row.session_id for row in await journal.sessions()] == [other]
    assert presence(journal, check(str(bundle), LIMIT, None).manifest) == "absent"
    assert await journal.collect_bodies(grace_s=0) == 1
    journal.close()
    imported(there, bundle)
    assert len(await facts_of(there, origin[1])) > 600


def unpacked(bundle: Path) -> Members:
    with tarfile.open(bundle) as archive:
        found: Members = []
        for info in archive.getmembers():
            file = archive.extractfile(info)
            assert file is not None
            found.append((info, file.read()))
        return found


def packed(path: Path, members: Members, kind: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w:gz", format=kind) as archive:
        for info, data in members:
            info.size = len(data) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(data))
    return path


def rename(name: str) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        members[-1][0].name = name

    return change


def link(members: Members) -> None:
    info = members[-1][0]
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"


def hard_link(members: Members) -> None:
    info = members[-1][0]
    info.type, info.linkname = tarfile.LNKTYPE, "bundle.json"


def device(members: Members) -> None:
    members[-1][0].type = tarfile.CHRTYPE


def extra(members: Members) -> None:
    members.append((tarfile.TarInfo("more"), b"more"))


def twice(members: Members) -> None:
    members.append(members[-1])


def missing(members: Members) -> None:
    members.pop()


def other_body(members: Members) -> None:
    info, data = members[-1]
    members[-1] = (info, b"c" + data[1:])


def longer_body(members: Members) -> None:
    info, data = members[-1]
    members[-1] = (info, data + b"c")


def changed_fact(members: Members) -> None:
    info, data = members[1]
    members[1] = (info, data.replace(b"xxxx", b"yyyy", 1))


def missing_fact(members: Members) -> None:
    info, data = members[1]
    lines = data.splitlines(keepends=True)
    members[1] = (info, b"".join(lines[:-1]))


def swapped_facts(members: Members) -> None:
    info, data = members[1]
    lines = data.splitlines(keepends=True)
    lines[5], lines[6] = lines[6], lines[5]
    members[1] = (info, b"".join(lines))


def no_fact(members: Members) -> None:
    info, data = members[1]
    members[1] = (info, b'{"a": 1}\n' + data)


def cut_fact(members: Members) -> None:
    info, data = members[1]
    members[1] = (info, data[:-1])


def endless_fact(members: Members) -> None:
    info, data = members[1]
    members[1] = (info, b"x" * 3_000_000 + data)


def no_manifest(members: Members) -> None:
    members.pop(0)


def manifest_changed(**changes: Any) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        info, data = members[0]
        members[0] = (info, msgspec.json.encode({**msgspec.json.decode(data), **changes}))

    return change


def foreign_session(members: Members) -> None:
    info, data = members[0]
    manifest = msgspec.json.decode(data)
    manifest["session"]["session_id"] = "chat_../../etc"
    members[0] = (info, msgspec.json.encode(manifest))


def forged_session(members: Members) -> None:
    info, data = members[0]
    manifest = msgspec.json.decode(data)
    manifest["session"]["workspace_path"] = "/"
    members[0] = (info, msgspec.json.encode(manifest))


HOSTILE = [
    rename("../../../etc/passwd"),
    rename("/etc/passwd"),
    rename("bodies/" + "0" * 64),
    link,
    hard_link,
    device,
    extra,
    twice,
    missing,
    other_body,
    longer_body,
    changed_fact,
    missing_fact,
    swapped_facts,
    no_fact,
    cut_fact,
    endless_fact,
    no_manifest,
    foreign_session,
    forged_session,
    manifest_changed(runs=[]),
    manifest_changed(bodies=[]),
    manifest_changed(format="one"),
    manifest_changed(sealed=["0" * 64]),
    manifest_changed(left_out=["0" * 64]),
]


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_a_bundle_that_is_not_what_was_exported_is_refused(
    tmp_path: Path, bundle: Path, change: Callable[[Members], None]
) -> None:
    members = unpacked(bundle)
    packed(bundle, members)
    check(str(bundle), LIMIT, None)  # packed again it is still one
    change(members)
    with pytest.raises(BadBundle):
        check(str(packed(tmp_path / "hostile", members)), LIMIT, None)


def test_long_names_of_other_formats_are_refused(tmp_path: Path, bundle: Path) -> None:
    """Extended headers hold any number of bytes; the reader takes none."""
    members = unpacked(bundle)
    members[-1][0].name = "bodies/" + "0" * 300
    for number in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with pytest.raises(BadBundle):
            check(str(packed(tmp_path / "long", members, number)), LIMIT, None)


def test_a_newer_format_of_bundles_is_refused_with_a_sentence(tmp_path: Path, bundle: Path) -> None:
    members = unpacked(bundle)
    manifest_changed(format=2, runs="in another way")(members)
    with pytest.raises(BadBundle, match="written by a newer Batten"):
        check(str(packed(tmp_path / "newer", members)), LIMIT, None)


def test_a_bundle_that_unpacks_to_more_than_allowed_is_refused(
    tmp_path: Path, bundle: Path
) -> None:
    size = sum(len(data) for _, data in unpacked(bundle))
    check(str(bundle), size, None)
    with pytest.raises(BadBundle, match="--max-size") as refused:
        check(str(bundle), size - 1, None)
    assert refused.value.code == "bundle_too_large"
    bomb = tmp_path / "bomb"
    info = tarfile.TarInfo("bundle.json")
    info.size = 8 << 30
    with gzip.open(bomb, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            file.write(bytes(1 << 20))
    with pytest.raises(BadBundle):
        check(str(bomb), LIMIT, None)


@pytest.mark.parametrize(
    "data",
    [b"", b"not a bundle", gzip.compress(b""), gzip.compress(bytes(512))],
    ids=["empty", "text", "nothing packed", "zeros packed"],
)
def test_other_files_are_not_bundles(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(data)
    with pytest.raises(BadBundle):
        check(str(path), LIMIT, None)


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_changed_byte_is_a_bad_bundle_or_the_same_content(
    tmp_path: Path, bundle: Path, is_packed: bool
) -> None:
    """Flips bytes of the file, and of the archive within it."""
    chance = random.Random(11)
    whole = bundle.read_bytes() if is_packed else gzip.decompress(bundle.read_bytes())
    manifest = check(str(bundle), LIMIT, None).manifest
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path = tmp_path / "changed"
        path.write_bytes(data if is_packed else gzip.compress(data, 1))
        try:
            found: Manifest = check(str(path), LIMIT, None).manifest
        except BadBundle:
            refused += 1
        else:
            # What the manifest says of itself is not part of the session.
            same = {"program": "", "exported_at": ""}
            assert msgspec.structs.replace(found, **same) == msgspec.structs.replace(
                manifest, **same
            )
    assert refused > 40


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_cut_bundle_is_refused(tmp_path: Path, bundle: Path, share: float) -> None:
    data = bundle.read_bytes()
    path = tmp_path / "cut"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(BadBundle):
        check(str(path), LIMIT, None)
