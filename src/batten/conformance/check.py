"""The type of a check, and the two errors that can end one."""

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from msgspec import Struct

from batten.conformance.script import Script
from batten.contract.errors import BattenError, PeerError

if TYPE_CHECKING:
    from batten.conformance.bench import Bench

Json = dict[str, Any]
Level = Literal["must", "should"]
Run = Callable[["Bench"], Awaitable[None]]


class Broken(PeerError):
    """The program under test broke the promise."""

    code = "broken"


class NotOffered(BattenError):
    """The program does not offer this feature, so there is nothing to check."""

    code = "not_offered"


class Check(Struct, frozen=True):
    """One promise of a protocol, and the conversation that tests it."""

    id: str
    section: str
    """The section of the protocol's document."""
    says: str
    """The promise, in one sentence."""
    run: Run
    level: Level = "must"
    script: Script = ()
    """The model's part; empty if the check needs no model."""
    environ: dict[str, str] = {}
    more: tuple[str, ...] = ()
    """Words added to the command."""


class Options(TypedDict, total=False):
    """The fields of a check that have a default."""

    level: Level
    script: Script
    environ: dict[str, str]
    more: tuple[str, ...]


def check(check_id: str, section: str, **options: Unpack[Options]) -> Callable[[Run], Check]:
    """Makes a check of a function; its docstring is the promise."""

    def decorate(run: Run) -> Check:
        return Check(check_id, section, " ".join((run.__doc__ or "").split()), run, **options)

    return decorate


def checks_in(*modules: ModuleType) -> tuple[Check, ...]:
    """The checks of these modules, in the order of their definitions."""
    found = (value for module in modules for value in vars(module).values())
    return tuple(value for value in found if isinstance(value, Check))


def expect(kept: bool, otherwise: str) -> None:
    """`Broken` unless `kept`."""
    if not kept:
        raise Broken(otherwise)


def equal(got: object, wanted: object, what: str) -> None:
    """`Broken` unless both are equal, in type as well: `True` is not `1`."""
    same = got == wanted and isinstance(got, bool) is isinstance(wanted, bool)
    expect(same, f"{what} is {got!r}, not {wanted!r}")


def part(message: Json, name: str) -> Json:
    """The object under this name, or an empty one."""
    found = message.get(name)
    return cast(Json, found) if isinstance(found, dict) else {}


def parts(message: Json, name: str) -> list[Json]:
    """The objects in the list under this name, if there is one."""
    found = message.get(name)
    return cast(list[Json], found) if isinstance(found, list) else []


def fields(message: Json, /, **kinds: type | tuple[type, ...]) -> None:
    """`Broken` unless each field is present and of its type."""
    named = message.get("type") or message.get("event") or "the object"
    for name, kind in kinds.items():
        expect(name in message, f"{named} has no {name}")
        value = message[name]
        allowed = kind if isinstance(kind, tuple) else (kind,)
        right = isinstance(value, allowed) and (not isinstance(value, bool) or bool in allowed)
        words = " or ".join(one.__name__ for one in allowed)
        expect(right, f"{named}.{name} is {value!r}, not of type {words}")
