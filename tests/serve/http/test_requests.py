"""Requests over real sockets: routing, validation, answers and errors."""

from typing import Any

import pytest

from tests.serve.http.wire import Toy

HALF = (
    "the body is not JSON: a string has half of a surrogate pair, such as \\ud83d without its"
    " other half; send both, or the character itself"
)


async def test_a_body_becomes_a_value_and_an_answer_json(server: Toy) -> None:
    answer = await server.ask("POST", "/toy/notes", {"text": "hello", "unknown": [1]})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {
        "data": {"id": "note_0", "text": "hello", "by": "operator"},
        "object": "note",
    }
    assert (await server.ask("GET", "/toy/notes/note_0")).json == answer.json


async def test_one_connection_carries_many_requests(server: Toy) -> None:
    connection = await server.connect()
    for _ in range(3):
        assert (await connection.ask("GET", "/toy/page")).status == 200
    assert (await connection.ask("GET", "/nowhere")).status == 404
    assert (await connection.ask("GET", "/toy/page")).status == 200
    connection.close()


async def test_names_in_a_path_are_decoded_and_a_written_slash_is_part_of_one(server: Toy) -> None:
    answer = await server.ask("GET", "/toy/boxes/a%2Fb/notes/%C3%A9%20x")
    assert answer.json["params"] == {"box": "a/b", "note_id": "é x"}


async def test_a_literal_segment_comes_before_a_name(server: Toy) -> None:
    assert (await server.ask("GET", "/toy/notes/latest")).json["params"] == {}
    # The tree is left at `latest` again: only the name has a DELETE below it.
    assert (await server.ask("GET", "/toy/boxes/x/notes/latest")).status == 200


@pytest.mark.parametrize(
    "path", ["/", "/toy", "/toy/", "/toy/notes/", "/toy//page", "/toy/page/", "/hecate/v1/x", "*"]
)
async def test_an_unknown_path_is_not_found(server: Toy, path: str) -> None:
    answer = await server.ask("GET", path)
    assert answer.status == 404
    assert answer.error["type"] == "not_found"


async def test_a_path_that_is_not_utf8_is_refused(server: Toy) -> None:
    answer = await server.ask("GET", "/toy/notes/%ff")
    assert (answer.status, answer.error["message"]) == (400, "the path is not UTF-8 text")


async def test_another_method_is_answered_with_those_that_are_possible(server: Toy) -> None:
    answer = await server.ask("PUT", "/toy/notes/x")
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, OPTIONS")
    assert answer.error["type"] == "method_not_allowed"


async def test_options_tells_methods_and_nothing_about_other_origins(server: Toy) -> None:
    answer = await server.ask("OPTIONS", "/toy/notes/x")
    assert (answer.status, answer.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS")
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_options_may_ask_for_the_server_as_a_whole(server: Toy) -> None:
    assert (await server.ask("OPTIONS", "*")).status == 204
    assert (await server.ask("GET", "*")).status == 404


async def test_head_is_get_without_the_body(server: Toy) -> None:
    connection = await server.connect()
    length = (await connection.ask("HEAD", "/toy/page")).headers["content-length"]
    answer = await connection.ask("GET", "/toy/page")
    assert (answer.status, length) == (200, answer.headers["content-length"])
    connection.close()


async def test_no_content_has_no_body(server: Toy) -> None:
    answer = await server.ask("DELETE", "/toy/notes/x")
    assert (answer.status, answer.body) == (204, b"")
    assert "content-type" not in answer.headers


async def test_a_query_becomes_a_value(server: Toy) -> None:
    answer = await server.ask("GET", "/toy/page?limit=7&after=-1&tag=a+b&tag=%C3%A9&unknown=1&x")
    assert answer.json["query"] == {"limit": 7, "after": -1, "tag": ["a b", "é"]}
    for nothing in ("", "?", "?limit=&after=&tag="):
        assert (await server.ask("GET", f"/toy/page{nothing}")).json["query"] == {
            "limit": 50,
            "after": None,
            "tag": [],
        }


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("limit=abc", "limit", "the parameter `limit` must be an integer, such as 10"),
        ("limit=1e2", "limit", "the parameter `limit` must be an integer, such as 10"),
        ("limit=%E0%A5%A7", "limit", "the parameter `limit` must be an integer, such as 10"),
        ("limit=0", "limit", "`limit` in the query: expected an integer >= 1"),
        ("limit=501", "limit", "`limit` in the query: expected an integer <= 500"),
        ("after=x", "after", "the parameter `after` must be an integer, such as 10"),
        ("limit=1&limit=2", "limit", "the parameter `limit` is given twice; give it once"),
        ("tag=%ff", None, "the query is not UTF-8 text; encode other bytes as %XX of UTF-8"),
        ("&".join(["a=1"] * 101), None, "the query has more than 100 parameters"),
    ],
)
async def test_a_wrong_query_names_the_field_and_what_would_be_right(
    server: Toy, query: str, field: str | None, message: str
) -> None:
    answer = await server.ask("GET", f"/toy/page?{query}")
    assert answer.status == 400
    error = answer.error
    request_id = error.pop("request_id")
    expected: dict[str, Any] = {"type": "invalid_request", "message": message}
    assert error == (expected if field is None else {**expected, "field": field})
    assert request_id == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (b"", None, "the body is empty; send a JSON object"),
        (b"{", None, "the body is not JSON: Input data was truncated"),
        (b'{"text":"\\ud83d', None, "the body is not JSON: Input data was truncated"),
        (b'{"text":"a\\ud83d"}', None, HALF),
        (b'{"text":"\\udc00a"}', None, HALF),
        (b"[]", None, "the body: expected an object, got an array"),
        (b"{}", "text", "`text` is missing in the body"),
        (b'{"text":1}', "text", "`text` in the body: expected a string, got an integer"),
        (b'{"text":""}', "text", "`text` in the body: expected a string of length >= 1"),
        (
            b'{"text":"a","colour":"green"}',
            "colour",
            "`colour` in the body: expected one of blue, red, got 'green'",
        ),
        (
            b'{"text":"a","size":1.5}',
            "size",
            "`size` in the body: expected an integer, got a number",
        ),
    ],
)
async def test_a_wrong_body_names_the_field_and_what_would_be_right(
    server: Toy, body: bytes, field: str | None, message: str
) -> None:
    answer = await server.ask("POST", "/toy/notes", body)
    assert answer.status == 400
    assert (answer.error["type"], answer.error["message"]) == ("invalid_request", message)
    assert answer.error.get("field") == field


@pytest.mark.parametrize(
    "body",
    [b"\xff", b'{"text":"\xff"}', b'{"text":"\\ud800"}', b"[" * 100_000, b'{"a":' * 100_000, b"\0"],
    ids=["byte", "in a text", "half a pair", "deep", "deep objects", "nul"],
)
async def test_garbage_is_refused_and_crashes_nothing(server: Toy, body: bytes) -> None:
    answer = await server.ask("POST", "/toy/any", body)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert (await server.ask("GET", "/toy/page")).status == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"text": "a", "colour": None, "size": None}, None),
        ({"text": None}, "`text` in the body: expected a string, got null"),
        (
            {"colour": None, "size": "x", "text": "a"},
            "`size` in the body: expected an integer, got a string",
        ),
        ({"colour": None}, "`text` is missing in the body"),
    ],
)
async def test_a_member_that_is_null_counts_as_left_out(
    server: Toy, body: dict[str, Any], said: str | None
) -> None:
    answer = await server.ask("POST", "/toy/notes", body)
    assert answer.status == (400 if said else 200)
    if said:
        assert answer.error["message"] == said


@pytest.mark.parametrize(("size", "status"), [("2.0", 200), ("2e1", 200), ("2.5", 400)])
async def test_a_whole_number_may_have_a_fraction_of_zero(
    server: Toy, size: str, status: int
) -> None:
    body = b'{"text":"a","size":%b,"colour":null}' % size.encode()
    assert (await server.ask("POST", "/toy/notes", body)).status == status


async def test_nulls_in_free_data_stay(server: Toy) -> None:
    assert (await server.ask("POST", "/toy/any", {"a": None})).json["body"] == {"a": None}


async def test_an_optional_body_may_be_empty(server: Toy) -> None:
    assert (await server.ask("POST", "/toy/close")).json["body"] == {"reason": ""}
    assert (await server.ask("POST", "/toy/close", {"reason": "r"})).json["body"] == {"reason": "r"}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("application/merge-patch+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ],
)
async def test_a_body_says_that_it_is_json_or_nothing(server: Toy, kind: str, status: int) -> None:
    body = {"text": "a"}
    assert (await server.ask("POST", "/toy/notes", body, {"Content-Type": kind})).status == status


@pytest.mark.parametrize(
    ("coding", "status"), [("identity", 200), ("gzip", 415), ("gzip, br", 415)]
)
async def test_a_compressed_body_is_refused_and_not_taken_for_another(
    server: Toy, coding: str, status: int
) -> None:
    for method, path, body in (("POST", "/toy/notes", {"text": "a"}), ("PUT", "/toy/raw", b"abc")):
        answer = await server.ask(method, path, body, {"Content-Encoding": coding})
        assert answer.status == status, answer.body
        if status == 415:
            assert answer.headers["accept-encoding"] == "identity"
            assert "Content-Encoding" in answer.error["message"]


async def test_each_surface_has_its_own_shape_of_errors(server: Toy) -> None:
    assert (await server.ask("GET", "/other/fail/conflict")).json == {
        "statusCode": 409,
        "code": "CONFLICT",
        "message": "the box is open",
    }
    assert (await server.ask("GET", "/other/nowhere")).json["code"] == "NOT_FOUND"
    assert (await server.ask("GET", "/toy/nowhere")).error["type"] == "not_found"


async def test_an_error_has_its_status_and_what_to_do(server: Toy) -> None:
    answer = await server.ask("GET", "/toy/fail/full", headers={"X-Request-Id": "r-1"})
    assert answer.status == 503
    assert answer.error == {
        "type": "store_full",
        "message": "the disk of the store is full; the server's log has the reason under this"
        " request id",
        "request_id": "r-1",
        "user_message": "The server's disk is full.",
        "operator_action": "Free space on the disk of BATTEN_HOME: batten prune --older-than 30d",
    }
    assert (await server.ask("GET", "/toy/fail/conflict")).status == 409


async def test_fields_of_an_error_never_replace_its_own_names(server: Toy) -> None:
    answer = await server.ask("GET", "/toy/fail/own")
    assert answer.status == 429
    assert (answer.error["type"], answer.error["most"]) == ("quota_exceeded", 3)


async def test_a_bug_is_told_without_its_text_and_logged_with_it(
    server: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await server.ask("GET", "/toy/fail/bug", headers={"X-Request-Id": "r-2"})
    assert (answer.status, answer.error["type"]) == (500, "internal_error")
    assert b"secret" not in answer.body
    assert "a secret of the code" in caplog.text


@pytest.mark.parametrize("given", ["", "a" * 129, "two words", "é", "a\tb"])
async def test_a_strange_request_id_is_replaced(server: Toy, given: str) -> None:
    answer = await server.ask("GET", "/toy/page", headers={"X-Request-Id": given})
    assert answer.headers["x-request-id"].startswith("req_")


async def test_a_request_id_is_echoed_and_every_answer_has_one(server: Toy) -> None:
    given = {"X-Request-Id": "trace-1.a:b"}
    for path in ("/toy/page", "/nowhere", "/toy/fail/bug"):
        assert (await server.ask("GET", path, headers=given)).headers[
            "x-request-id"
        ] == "trace-1.a:b"
    ids = {(await server.ask("GET", "/toy/page")).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3


async def test_a_handler_that_takes_too_long_is_ended(server: Toy) -> None:
    answer = await server.ask("GET", "/toy/wait")
    assert (answer.status, answer.error["type"]) == (503, "request_timeout")
    assert answer.headers["retry-after"] == "1"
