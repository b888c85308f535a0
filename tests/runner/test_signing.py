"""The MAC of a manifest: only a runner with the key can have written it."""

import hmac
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.contract.errors import CallerError
from batten.runner.config import KEYS, MANIFEST_KEY, UNSIGNED, resolve
from batten.runner.restore import load
from tests.agent.stage import Stage
from tests.runner.remote import KEY, NotStarted
from tests.runner.test_http_restore import DONE, drained_once, start
from tests.runner.test_restore import foreign, written

from .given import Json, Playing, drain, identity, manifest_file
from .test_drain import ASKED

pytestmark = pytest.mark.attack

ENVIRON = {KEYS[0]: "the key of callers"}
OTHER = {KEYS[0]: "another key"}


def _signed(manifest: Json, key: str) -> Json:
    """As a control plane would sign it, which knows the documentation only."""
    fields = {name: value for name, value in manifest.items() if not name.startswith("manifest_")}
    message = msgspec.json.encode(fields, order="sorted")
    code = hmac.new(key.encode(), message, sha256).hexdigest()
    return {**fields, "manifest_hmac_sha256": code}


def _refused(workspace: Path, manifest: Json, environ: dict[str, str]) -> str:
    with pytest.raises(CallerError) as error:
        load(written(workspace, manifest), str(workspace), environ=environ)
    assert error.value.code == "invalid_snapshot_manifest"
    return str(error.value)


async def _drained(workspace: Path, environ: dict[str, str]) -> Json:
    return manifest_file(await drain(ASKED, identity(workspace), Playing(), environ=environ))


async def test_a_manifest_has_a_mac_by_the_key_and_is_otherwise_as_without_one(
    workspace: Path,
) -> None:
    plain = await _drained(workspace, {})
    (Path(plain["platform_evidence"]["manifest_path"])).unlink()
    ours = await _drained(workspace, ENVIRON)
    expected = _signed(plain, ENVIRON[KEYS[0]])["manifest_hmac_sha256"]
    assert ours["manifest_hmac_sha256"] == expected
    added = {"manifest_hmac_sha256", "manifest_sha256"}
    assert {name: value for name, value in ours.items() if name not in added} == {
        name: value for name, value in plain.items() if name != "manifest_sha256"
    }
    load(written(workspace, ours), str(workspace), environ=ENVIRON)
    load(written(workspace, ours), str(workspace))  # and where no key is set


async def test_only_an_unchanged_manifest_by_the_key_is_restored(workspace: Path) -> None:
    ours = await _drained(workspace, ENVIRON)
    backwards = {name: ours[name] for name in reversed(ours)}
    load(written(workspace, backwards), str(workspace), environ=ENVIRON)
    without = {name: ours[name] for name in ours if not name.startswith("manifest_")}
    assert f"{UNSIGNED}=1" in _refused(workspace, without, ENVIRON)
    changed = {**without, "maestro_session_id": "another"}
    forged = _signed(changed, "guessed")
    for manifest in (
        {**changed, "manifest_hmac_sha256": ours["manifest_hmac_sha256"]},
        forged,
        {**without, "manifest_hmac_sha256": "\N{SNOWMAN}"},
        {**without, "manifest_hmac_sha256": 7},
    ):
        for environ in (ENVIRON, {**ENVIRON, UNSIGNED: "1"}):
            assert MANIFEST_KEY in _refused(workspace, manifest, environ)
    assert "another key" in _refused(workspace, ours, OTHER)


async def test_a_manifest_signed_by_a_control_plane_is_restored(workspace: Path) -> None:
    manifest = _signed(foreign(), ENVIRON[KEYS[0]])
    restored = load(written(workspace, manifest), str(workspace), environ=ENVIRON)
    assert restored.session_id == "sess_old"


async def test_a_key_of_its_own_signs_where_callers_have_others(workspace: Path) -> None:
    own = {MANIFEST_KEY: "the key of manifests"}
    ours = await _drained(workspace, {**ENVIRON, **own})
    load(written(workspace, ours), str(workspace), environ={**OTHER, **own})
    _refused(workspace, ours, ENVIRON)
    both = {KEYS[0]: "new", KEYS[1]: "old"}
    old = await _drained(workspace, {KEYS[1]: "old"})
    load(written(workspace, old), str(workspace), environ=both)


async def test_a_manifest_without_a_mac_is_restored_where_it_is_wanted_or_no_key_is(
    workspace: Path,
) -> None:
    name = written(workspace, foreign())
    for environ in ({}, {**ENVIRON, UNSIGNED: "1"}, {**ENVIRON, "MAESTRO_WEB_REQUIRE_KEY": "0"}):
        assert load(name, str(workspace), environ=environ).session_id == "sess_old"


def test_no_session_is_told_a_key_of_manifests(workspace: Path) -> None:
    flags: dict[str, Any] = {"runner_session_id": "mrs_1", "workspace_root": str(workspace)}
    config = resolve(flags, {**ENVIRON, MANIFEST_KEY: "the key of manifests"})
    assert config.exported.keys().isdisjoint({*ENVIRON, MANIFEST_KEY})


def test_a_forged_manifest_starts_no_runner(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    drained = drained_once(stage, stage.scenario(DONE))
    place = Path(drained["manifest_path"])
    ours = msgspec.json.decode(place.read_bytes())
    assert ours == _signed(ours, KEY) | {"manifest_sha256": ours["manifest_sha256"]}
    whole = place.read_bytes()
    forged = {name: value for name, value in ours.items() if not name.startswith("manifest_")}
    forged["snapshot"]["state"]["last_status"] = "written by a command"
    place.write_bytes(msgspec.json.encode(forged))
    with pytest.raises(NotStarted) as refused:
        start(stage, "", "--restore-manifest", str(place))
    assert refused.value.code == 1
    assert "manifest_hmac_sha256" in refused.value.errors
    assert "Traceback" not in refused.value.errors
    place.write_bytes(whole)
    assert start(stage, "", "--restore-manifest", str(place)).end() == 0
