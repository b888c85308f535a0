"""Ids: both spellings of one number, in the order they were minted."""

import re
import time
import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract import ids

_PATTERN = r"[0-9A-HJKMNP-TV-Z]{26}"
_NEW = {
    "run": ids.new_run_id,
    "task": ids.new_task_id,
    "chat": ids.new_session_id,
    "art": ids.new_artifact_id,
    "appr": ids.new_request_id,
    "ckpt": ids.new_checkpoint_id,
}

uuids = st.uuids().map(str)


@pytest.mark.parametrize("prefix", _NEW)
def test_new_ids_have_the_prefix_and_pattern_of_the_protocol(prefix: str) -> None:
    minted = _NEW[prefix]()
    assert re.fullmatch(f"{prefix}_{_PATTERN}", minted)
    assert ids.is_ulid(minted)


@pytest.mark.parametrize("prefix", _NEW)
def test_the_uuid_spelling_is_a_version_7_uuid(prefix: str) -> None:
    spelled = uuid.UUID(ids.to_uuid(_NEW[prefix]()))
    assert (spelled.version, spelled.variant) == (7, uuid.RFC_4122)


@given(uuids)
def test_a_uuid_survives_being_spelled_as_a_ulid(text: str) -> None:
    assert ids.to_uuid(ids.from_uuid(text, "run")) == text


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1))
def test_both_spellings_sort_alike(one: int, other: int) -> None:
    first, second = (str(uuid.UUID(int=number)) for number in (one, other))
    assert (first < second) == (ids.from_uuid(first, "run") < ids.from_uuid(second, "run"))


def test_a_minted_id_survives_being_spelled_as_a_uuid() -> None:
    minted = ids.new_run_id()
    assert ids.from_uuid(ids.to_uuid(minted), "run") == minted


def test_ids_grow_also_within_a_millisecond() -> None:
    minter = ids.Minter()
    minted = [minter.mint() for _ in range(20_000)]
    # Far more than there are milliseconds in the time this takes.
    assert len({text[:10] for text in minted}) < len(minted)
    assert all(one < other for one, other in pairwise(minted))


def test_ids_grow_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    minter = ids.Minter()
    before = minter.mint()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000_000_000)
    after = minter.mint()
    assert before < after
    assert uuid.UUID(ids.to_uuid(f"run_{after}")).version == 7


def test_an_id_begins_with_its_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_788_249_600_123_456_789)
    number = uuid.UUID(ids.to_uuid("run_" + ids.Minter().mint())).int
    assert number >> 80 == 1_788_249_600_123


def test_two_minters_do_not_mint_the_same() -> None:
    one, other = ids.Minter(), ids.Minter()
    assert not {one.mint() for _ in range(1000)} & {other.mint() for _ in range(1000)}


def test_the_stream_of_a_session_has_the_number_of_the_session() -> None:
    session = ids.new_session_id()
    stream = ids.session_stream(session)
    assert stream.startswith("run_")
    assert ids.is_ulid(stream)
    assert ids.to_uuid(stream) == ids.to_uuid(session)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run_",
        "01M1DZPWFMEATTGW6000CX6DE0",
        "run_01M1DZPWFMEATTGW6000CX6DE",
        "run_01M1DZPWFMEATTGW6000CX6DE0 ",
        "run_01m1dzpwfmeattgw6000cx6de0",
        "run_01M1DZPWFMEATTGW6000CX6DEU",
        "run_81M1DZPWFMEATTGW6000CX6DE0",
        "call_toolu_01ABC",
    ],
)
def test_what_is_not_a_prefixed_ulid_is_not_spelled_as_a_uuid(text: str) -> None:
    assert not ids.is_ulid(text)
    with pytest.raises(ValueError, match="not a prefixed ULID"):
        ids.to_uuid(text)


@pytest.mark.parametrize(
    "text",
    ["", "0192", "g" * 32, "0x" + "1" * 30, "+" + "1" * 31, "1_" * 16, "1" * 33, " " + "1" * 31],
)
def test_what_is_not_a_uuid_is_not_spelled_as_a_ulid(text: str) -> None:
    with pytest.raises(ValueError, match="not a UUID"):
        ids.from_uuid(text, "run")
