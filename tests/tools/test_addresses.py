"""Which addresses count as public."""

from ipaddress import ip_address

import pytest

from batten.contract.errors import CallerError
from batten.tools.addresses import Allowed, is_public


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("0.0.0.0", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1"),
        *("ff02::1", "fec0::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::"),
        *(
            "192.0.0.8",
            "192.0.0.170",
            "192.88.99.1",
            "198.51.100.1",
            "203.0.113.1",
            "168.63.129.16",
        ),
        *("2001:2::1", "2001:10::1", "3fff::1", "5f00::1", "100::1", "::ffff:0:127.0.0.1"),
        *("192.31.196.1", "192.52.193.1", "192.175.48.1", "2620:4f:8000::1", "4000::1"),
        *("2002:c0a8:101::1", "::127.0.0.1", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
    ],
)
def test_addresses_that_are_not_of_the_public_internet(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "2001:4860:4860::8888",
        "172.32.0.1",
        "100.128.0.1",
        "198.20.0.1",
        "1.1.1.1",
        "93.184.216.34",
        "2606:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
    ],
)
def test_addresses_that_are(address: str) -> None:
    assert is_public(ip_address(address))


def test_a_range_allows_its_addresses_however_they_are_wrapped() -> None:
    allowed = Allowed(["10.0.0.0/8", " 127.0.0.1 "])
    assert allowed.permits("db", ip_address("10.9.9.9"))
    assert allowed.permits("db", ip_address("::ffff:10.9.9.9"))
    assert allowed.permits("x", ip_address("127.0.0.1"))
    assert not allowed.permits("x", ip_address("127.0.0.2"))
    assert not allowed.permits("x", ip_address("::1"))


def test_a_name_allows_whatever_it_resolves_to_and_no_other_name() -> None:
    allowed = Allowed(["Internal.Example"])
    assert allowed.permits("internal.example.", ip_address("10.0.0.1"))
    assert not allowed.permits("other.example", ip_address("10.0.0.1"))


def test_this_machine_is_allowed_where_it_is_named_and_not_where_a_name_leads_to_it() -> None:
    allowed = Allowed(["loopback"])
    assert allowed.permits("127.0.0.1", ip_address("127.0.0.1"))
    assert allowed.permits("LOCALHOST.", ip_address("::1"))
    assert allowed.permits("::1", ip_address("::1"))
    assert not allowed.permits("rebound.example", ip_address("127.0.0.1"))
    assert not allowed.permits("localhost", ip_address("10.0.0.1"))
    assert not allowed.permits("127.0.0.1.example", ip_address("127.0.0.1"))


def test_an_entry_that_is_neither_is_refused_by_name() -> None:
    with pytest.raises(CallerError, match=r"10\.0\.0\.0/99"):
        Allowed(["10.0.0.0/99"])
