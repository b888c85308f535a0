"""What may be asked of a drain."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.errors import CallerError
from batten.runner.request import LARGEST, DrainRequest, parse, received


@pytest.mark.parametrize("body", [b"", b"  \n", b"null", b"{}", b'{"export_paths":[]}', b'{"x":1}'])
def test_nothing_in_particular_asks_for_the_whole_workspace(body: bytes) -> None:
    assert parse(body) == DrainRequest(reason=None, requested_by=None, export_paths=(".",))


@pytest.mark.parametrize(
    "body",
    [
        {"reason": " ttl ", "requested_by": "platform", "export_paths": ["a", " b "]},
        {"stop_reason": "ttl", "requestedBy": "platform ", "exportPaths": ["a", "b"]},
        {
            "reason": "ttl",
            "stop_reason": "x",
            "requested_by": "platform",
            "exportPaths": ["a", "b"],
        },
        {
            "reason": None,
            "stop_reason": "ttl",
            "requestedBy": "platform",
            "export_paths": ["a", "b"],
        },
    ],
)
def test_each_field_has_two_names_and_is_trimmed(body: dict[str, Any]) -> None:
    wanted = DrainRequest(reason="ttl", requested_by="platform", export_paths=("a", "b"))
    assert parse(msgspec.json.encode(body)) == wanted


def test_blank_texts_are_none() -> None:
    assert parse(b'{"reason":" ","requestedBy":""}') == DrainRequest()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "must be an object"),
        (b'"drain"', "must be an object"),
        (b'{"reason":1}', "reason must be a string"),
        (b'{"stop_reason":["x"]}', "reason must be a string"),
        (b'{"requestedBy":{}}', "requested_by must be a string"),
        (b'{"export_paths":"."}', "must be an array"),
        (b'{"export_paths":{"0":"."}}', "must be an array"),
        (b'{"export_paths":[1]}', "non-empty strings"),
        (b'{"export_paths":["."," "]}', "non-empty strings"),
        (b'{"exportPaths":["a\\u0000b"]}', "must not contain NUL"),
        (b'{"reason":', "not valid JSON"),
        (b'{"reason":"\xff"}', "not valid JSON"),
        (b"[" * 30_000, "not valid JSON"),
        (b" " * (LARGEST + 1), f"{LARGEST} are the most"),
    ],
)
def test_anything_else_is_refused_with_what_would_be_right(body: bytes, said: str) -> None:
    with pytest.raises(CallerError, match=said):
        parse(body)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    with suppress(CallerError):
        assert isinstance(parse(body), DrainRequest)


@pytest.mark.parametrize(
    "given",
    [
        DrainRequest(reason=" ttl ", requested_by=" ", export_paths=("a", " b ")),
        {"stop_reason": "ttl", "exportPaths": ["a", "b"]},
    ],
)
def test_what_is_handed_over_is_read_as_if_it_had_been_sent(given: Any) -> None:
    assert received(given) == DrainRequest(reason="ttl", export_paths=("a", "b"))
    assert received(DrainRequest(export_paths=())) == received(None) == DrainRequest()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (DrainRequest(export_paths=("a\0b",)), "must not contain NUL"),
        (DrainRequest(reason="\ud800"), "cannot be written as JSON"),
        ({"reason": object()}, "cannot be written as JSON"),
        ({"reason": "x" * LARGEST}, f"{LARGEST} are the most"),
        ([], "must be an object"),
    ],
)
def test_what_could_not_have_been_sent_is_refused(given: Any, said: str) -> None:
    with pytest.raises(CallerError, match=said):
        received(given)
