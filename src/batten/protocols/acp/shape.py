"""The spelling of objects in this protocol: camelCase names, absent fields omitted."""

from msgspec import Struct


class Shape(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object on the wire. It ignores unknown fields, `_meta` included."""
