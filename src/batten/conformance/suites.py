"""The suites by protocol; each is loaded when first used."""

from fnmatch import fnmatchcase
from importlib import import_module

from batten.conformance.check import Check
from batten.contract.errors import CallerError

PROTOCOLS = ("heddle", "maestro", "acp")


def checks(protocol: str, only: str = "*") -> tuple[Check, ...]:
    """The checks of a protocol whose ids match. Raises `CallerError` if there are none."""
    found: tuple[Check, ...] = import_module(f"batten.conformance.{protocol}").checks()
    chosen = tuple(check for check in found if fnmatchcase(check.id, only))
    if not chosen:
        raise CallerError(f"no check of {protocol} has an id like {only!r}; see --list")
    return chosen


def gate(protocol: str) -> str:
    """The check without which no other of the protocol can pass."""
    name: str = import_module(f"batten.conformance.{protocol}").GATE
    return name
