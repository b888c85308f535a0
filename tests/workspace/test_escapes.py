"""No attempt gets out of a sandbox, but for what `docs/security.md` lists as left open."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from batten.workspace.sandbox import Mode
from tests.strangers import ORDINARY, module_as, readable_python
from tests.workspace.keepers import CONFINED

from .escapes.attempt import User
from .escapes.corpus import ATTEMPTS
from .escapes.world import SECRET

pytestmark = pytest.mark.attack

REPOSITORY = Path(__file__).parents[2]
DRIVER = "tests.workspace.escapes.driver"


@pytest.fixture
def directory() -> Generator[Path, None, None]:
    """Outside of pytest's own, which other users cannot enter, and of /tmp, which bubblewrap
    empties."""
    path = Path(tempfile.mkdtemp(prefix="batten-escapes-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def escapes(mode: Mode, user: User, directory: Path) -> dict[str, str]:
    """How each attempt got out, by its name; empty for one that did not."""
    python, user_id = sys.executable, None
    if os.geteuid() == 0 and user == "ordinary":
        if (found := readable_python()) is None:
            pytest.skip("no interpreter that another user may execute")
        python, user_id = found, ORDINARY
        os.chown(directory, ORDINARY, ORDINARY)
    elif os.geteuid() != 0 and user == "root":
        pytest.skip("we are not root")
    words = (DRIVER, mode, user, str(directory))
    done = module_as(user_id, python, *words, environ={"SOME_TOKEN": SECRET})
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["name"]: one["how"] for one in told}


USERS = pytest.mark.parametrize("user", ["root", "ordinary"])


@pytest.mark.soak
@USERS
@pytest.mark.parametrize("mode", CONFINED)
def test_only_what_is_listed_gets_out(mode: Mode, user: User, directory: Path) -> None:
    found = escapes(mode, user, directory)
    assert set(found) == {one.name for one in ATTEMPTS if user in one.users}
    left_open = {one.name for one in ATTEMPTS if mode in one.open_in and user in one.open_for}
    assert {name: how for name, how in found.items() if how and name not in left_open} == {}


@pytest.mark.soak
@USERS
def test_every_attempt_gets_out_where_there_is_no_sandbox(user: User, directory: Path) -> None:
    found = escapes("none", user, directory)
    assert set(found) == {one.name for one in ATTEMPTS if user in one.control and user in one.users}
    assert [name for name, how in found.items() if not how] == []


def test_what_is_left_open_is_listed() -> None:
    page = " ".join((REPOSITORY / "docs" / "security.md").read_text().split())
    page += " ".join((REPOSITORY / "docs" / "settings.md").read_text().split())
    names = [one.name for one in ATTEMPTS]
    assert len(names) == len(set(names)) > 150
    for attempt in ATTEMPTS:
        assert bool(attempt.gap) == bool(attempt.open_in), attempt.name
        assert attempt.gap in page, attempt.gap
