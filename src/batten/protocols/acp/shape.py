"""How this protocol spells its objects: camelCase names, and nothing where there is nothing."""

from msgspec import Struct


class Shape(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object on the wire. What it does not know, `_meta` too, it passes over."""
