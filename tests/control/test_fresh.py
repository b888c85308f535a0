"""A task that was just created is started without being read back; others may have been faster."""

from pathlib import Path

import pytest

from batten.contract.errors import Conflict, NotFound
from batten.control.tasks import Tasks
from tests.control.given import Place, said


@pytest.fixture
def elsewhere(place: Place) -> Tasks:
    """Another service of the same home."""
    return Tasks(place.journal, place.opener.home, place.base)


async def test_one_that_was_deleted_elsewhere_is_gone(place: Place, elsewhere: Tasks) -> None:
    session = await place.tasks.create(place.described(place.model([said("Done.")])))
    await elsewhere.delete(session.task_id)
    with pytest.raises(NotFound, match=session.task_id):
        await place.tasks.start(session.task_id, by="ann")


async def test_one_that_runs_already_is_not_started_again(place: Place, elsewhere: Tasks) -> None:
    session = await place.tasks.create(place.described(place.model([said("Done.")])))
    row = await elsewhere.start(session.task_id, by="ann")
    with pytest.raises(Conflict, match=row.run_id) as refused:
        await place.tasks.start(session.task_id, by="bob")
    assert refused.value.code == "run_active"


async def test_one_that_was_changed_elsewhere_is_read_again(place: Place, elsewhere: Tasks) -> None:
    task = place.described(place.model([said("Done.")]), budget_micros_usd=5)
    session = await place.tasks.create(task)
    first = await elsewhere.start(session.task_id, by="ann")
    await elsewhere.cancel(session.task_id, first.run_id, by="ann")
    second = await elsewhere.resume(session.task_id, first.run_id, by="ann", budget_micros_usd=9)
    await elsewhere.cancel(session.task_id, second.run_id, by="ann")
    third = await place.tasks.start(session.task_id, by="bob")
    assert third.prior_run_id is None
    found = await place.tasks.described(await place.tasks.find(session.task_id))
    assert found is not None
    assert found.budget_micros_usd == 9
    assert (await place.tasks.find(session.task_id)).last_run_id == third.run_id


async def test_its_model_follows_the_settings_of_the_moment(tmp_path: Path) -> None:
    place = Place(tmp_path, bare=False)
    config = tmp_path / ".config/batten/settings.toml"
    config.parent.mkdir(parents=True)
    for name in ("one", "other"):
        config.write_text(f'model = "{place.model([said("Done.")], name=name)}"\n')
        row = await place.started("")
        assert (row.provider, row.model) == ("scripted", str(tmp_path / f"{name}.json"))
    place.opener.close()
