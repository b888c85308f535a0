"""Descriptions of fields, taken from the strings below them."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from batten.serve.http.field_notes import describe_fields, notes_of
from batten.serve.http.hecate.surface import hecate
from batten.serve.http.openapi import openapi


class Wheel(Struct):
    inches: int
    """Its size,
    across."""


class Base(Struct):
    made_at: str
    """When it was made."""


class Cart(Base, rename="camel"):
    """A cart."""

    wheels: list[Wheel] | None
    """All of them."""
    by_name: dict[str, Annotated[tuple[Wheel, ...], Meta(max_length=2)]]
    max_load: Annotated[int, Meta(description="In kilograms.")]
    """Not this."""
    plain: int = 0


def described(type_: Any) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([type_])
    describe_fields(components, [type_])
    return {
        f"{name}.{field}": shape.get("description")
        for name, component in components.items()
        for field, shape in component["properties"].items()
    }


def test_fields_are_described_by_the_strings_below_them_also_in_types_inside() -> None:
    assert described(list[Cart]) == {
        "Cart.made_at": "When it was made.",
        "Cart.wheels": "All of them.",
        "Cart.byName": None,
        "Cart.maxLoad": "In kilograms.",
        "Cart.plain": None,
        "Wheel.inches": "Its size, across.",
    }


def test_a_type_without_source_has_no_notes() -> None:
    assert notes_of(msgspec.defstruct("Made", [("a", int)])) == {}


def test_the_parameters_and_bodies_of_hecate_are_described() -> None:
    document = openapi([hecate(None)], "1")
    components = document["components"]["schemas"]
    prompt = components["CreateTask"]["properties"]["prompt"]
    assert prompt["description"].startswith("The instructions for the agent")
    listing = document["paths"]["/hecate/v1/tasks"]["get"]
    limits = [each for each in listing["parameters"] if each["name"] == "limit"]
    assert "at most 200" in limits[0]["description"]
