"""The registries of a home, which several runtimes share."""

import fcntl
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from batten.contract.errors import StoreBusy, StoreReadOnly
from batten.control.coordination.registries import FILE, Registries
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import PolicyRegistry
from batten.coordination.rejection import Rejection


def register(registries: Registries, name: str) -> None:
    policy = PolicyDescriptor(policy_id=name)
    registries.change_policies(lambda now: now.register(policy))


def names(registries: Registries) -> list[str]:
    return [one.policy_id for one in registries.policies.of_mode()]


def test_runtimes_of_a_home_find_and_keep_what_each_of_them_registered(tmp_path: Path) -> None:
    here, there = (Registries(str(tmp_path / FILE)) for _ in range(2))
    register(here, "policy.here")
    register(there, "policy.there")
    assert names(here) == names(there) == ["policy.default", "policy.here", "policy.there"]
    with pytest.raises(Rejection, match="already registered"):
        register(there, "policy.here")
    here.change_policies(lambda now: now.unregister("policy.there"))
    [own] = there.modes.extension
    poll = replace(own, mode="ext.poll.v1")
    there.change_modes(lambda now: now.register(poll))
    assert here.modes.has("ext.poll.v1")
    assert names(there) == ["policy.default", "policy.here"]


async def test_watchers_hear_what_another_runtime_registered(tmp_path: Path) -> None:
    here, there = (Registries(str(tmp_path / FILE)) for _ in range(2))
    watching = here.changed.subscribe()
    register(there, "policy.there")
    here.refresh()
    values = watching.values()
    assert await anext(values) == "policies"
    await values.aclose()
    watching.close()


def test_modes_of_a_runtime_with_fixed_policies_leave_the_registered_ones(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    register(Registries(path), "policy.kept")
    fixed = Registries(path, PolicyRegistry(read_only=True))
    [own] = fixed.modes.extension
    poll = replace(own, mode="ext.poll.v1")
    fixed.change_modes(lambda now: now.register(poll))
    assert names(fixed) == ["policy.default"]
    assert names(Registries(path)) == ["policy.default", "policy.kept"]


def test_a_change_that_cannot_be_stored_is_refused_and_not_made(tmp_path: Path) -> None:
    registries = Registries(str(tmp_path / FILE))
    with open(tmp_path / f"{FILE}.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreBusy):
            register(registries, "policy.one")
    os.mkdir(tmp_path / f"{FILE}.{os.getpid()}")
    with pytest.raises(StoreReadOnly):
        register(registries, "policy.one")
    assert names(registries) == ["policy.default"]


def test_a_file_that_became_unreadable_changes_nothing(tmp_path: Path) -> None:
    registries = Registries(str(tmp_path / FILE))
    register(registries, "policy.one")
    (tmp_path / "other").write_bytes(b"{")
    os.replace(tmp_path / "other", tmp_path / FILE)
    assert names(registries) == ["policy.default", "policy.one"]
    register(registries, "policy.two")
    assert names(Registries(str(tmp_path / FILE))) == names(registries)
