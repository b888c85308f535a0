"""Guesses of keys: so many of an address in a minute, on every path; the right key works."""

from pathlib import Path

import pytest

from batten.serve.http.errors import HttpError
from batten.serve.http.keys import KeyStore
from batten.serve.http.limits import MOST_WRONG_KEYS, WrongKeys
from tests.serve.http.wire import toy

pytestmark = pytest.mark.attack

ROUTES = [
    ("GET", "/toy/page"),
    ("HEAD", "/toy/page"),
    ("POST", "/toy/notes"),
    ("DELETE", "/toy/notes/x"),
]
HEADERS = ["Authorization", "X-Api-Key", "X-Hecate-Runtime-Token"]


async def test_wrong_keys_are_counted_on_every_path_and_the_right_one_is_not(
    tmp_path: Path,
) -> None:
    _, key = KeyStore(str(tmp_path)).create("ci", "admin")
    async with toy(tmp_path) as server:
        statuses: list[int] = []
        for number in range(MOST_WRONG_KEYS + 8):
            method, path = ROUTES[number % len(ROUTES)]
            name = HEADERS[number % len(HEADERS)]
            value = f"{'Bearer ' if name == 'Authorization' else ''}{key[:-1]}{number}"
            statuses.append((await server.ask(method, path, headers={name: value})).status)
        assert statuses == [401] * MOST_WRONG_KEYS + [429] * 8
        refused = await server.ask("GET", "/toy/page", headers={"X-Api-Key": "no"})
        assert int(refused.headers["retry-after"]) > 0
        right = {"X-Api-Key": key}
        assert (await server.ask("GET", "/toy/page", headers=right)).status == 200
        # Nothing was guessed by these.
        assert (await server.ask("GET", "/toy/page")).status == 401
        assert (await server.ask("GET", "/open", headers={"X-Api-Key": "no"})).status == 200


def test_each_address_has_its_own_tries_and_a_network_of_ipv6_has_them_together() -> None:
    wrong = WrongKeys()
    for number in range(MOST_WRONG_KEYS):
        wrong.count("192.0.2.1")
        wrong.count(f"2001:db8:0:1::{number:x}")
    for address in ("192.0.2.1", "::ffff:192.0.2.1", "2001:db8:0:1:ffff::9", "2001:db8:0:1::1%2"):
        with pytest.raises(HttpError) as refused:
            wrong.count(address)
        assert refused.value.code == "rate_limit_exceeded"
    for address in ("192.0.2.2", "2001:db8:0:2::1", "::ffff:192.0.2.3", ""):
        wrong.count(address)
