"""Options of a session that a client may change, each with its values."""

from typing import Literal

from batten.protocols.acp.shape import Shape

Category = Literal["mode", "model", "thought_level"]


class Choice(Shape, frozen=True):
    value: str
    name: str
    description: str | None = None


class SelectOption(Shape, frozen=True, tag_field="type", tag="select"):
    """An option with one current value of several."""

    id: str
    name: str
    current_value: str
    options: list[Choice]
    description: str | None = None
    category: Category | None = None


class SetOptionParams(Shape, frozen=True):
    session_id: str
    config_id: str
    value: str | bool


class SetOptionResult(Shape, frozen=True):
    """All options, since one choice may change the others."""

    config_options: list[SelectOption]
