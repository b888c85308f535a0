"""Ranges and versions of bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.serve.http.ranges import Extent, asked_range, is_known

TAG = '"sha256:ab"'


@pytest.mark.parametrize(
    ("header", "extent"),
    [
        ("bytes=0-3", Extent(0, 4)),
        ("bytes=4-", Extent(4, 6)),
        ("bytes=8-100", Extent(8, 2)),
        ("bytes=-3", Extent(7, 3)),
        ("bytes=-100", Extent(0, 10)),
        (" Bytes = 9-9 ", Extent(9, 1)),
        (None, None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=5-2", None),
        ("bytes=0-1,3-4", None),
        ("lines=0-1", None),
        ("bytes=0x1-2", None),
        ("bytes=²-", None),
    ],
)
def test_one_range_is_served_and_what_is_no_range_is_ignored(
    header: str | None, extent: Extent | None
) -> None:
    assert asked_range(10, TAG, header) == extent


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-11", "bytes=-0"])
def test_a_range_outside_the_body_cannot_be_served(header: str) -> None:
    with pytest.raises(ValueError, match="bytes"):
        asked_range(10, TAG, header)


def test_a_range_of_another_version_is_not_served() -> None:
    assert asked_range(10, TAG, "bytes=0-3", TAG) == Extent(0, 4)
    assert asked_range(10, TAG, "bytes=0-3", '"sha256:cd"') is None


@given(st.integers(0, 50), st.text(max_size=20))
def test_a_served_range_lies_in_the_body(size: int, header: str) -> None:
    try:
        found = asked_range(size, TAG, f"bytes={header}")
    except ValueError:
        return
    if found is not None:
        assert found.size > 0
        assert found.first >= 0
        assert found.first + found.size <= size


def test_a_known_version_is_recognized() -> None:
    assert is_known(TAG, f'"x", W/{TAG}')
    assert is_known(TAG, "*")
    assert not is_known(TAG, '"sha256:a"')
    assert not is_known(TAG, None)
