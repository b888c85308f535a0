"""Heddle's approval modes: the permissions of each category of tools, as our modes and rules."""

from typing import Literal, get_args

from msgspec import Struct

ApprovalMode = Literal["suggest", "auto-edit", "full-auto", "plan", "yolo"]
Category = Literal["read", "network", "write", "execute"]

MODES: tuple[ApprovalMode, ...] = get_args(ApprovalMode)

_CATEGORIES: dict[str, Category] = {
    "read_file": "read",
    "glob": "read",
    "grep": "read",
    "ask_user": "read",
    "web_fetch": "network",
    "write_file": "write",
    "edit_file": "write",
    "save_memory": "write",
}
TOOLS = (
    *("read_file", "write_file", "edit_file", "glob", "grep", "bash", "web_fetch"),
    *("save_memory", "ask_user"),
)
"""The tools that a client can enable."""
_PROTECTED = (
    "write_file(.env)",
    "write_file(.env.*)",
    "write_file(*/.env)",
    "write_file(*/.env.*)",
    "edit_file(.env)",
    "edit_file(.env.*)",
    "edit_file(*/.env)",
    "edit_file(*/.env.*)",
    "bash(rm *)",
    "bash(*[!a-zA-Z0-9_.-]rm *)",
)
"""Denied in every mode."""


class Approval(Struct, frozen=True, kw_only=True):
    """One of Heddle's modes as ours: the mode, and patterns of rules."""

    mode: Literal["dontAsk", "plan", "default"]
    denied: tuple[str, ...] = ()
    """These win over every other rule."""
    allowed: tuple[str, ...] = ()


_ALLOWED: dict[ApprovalMode, tuple[Category, ...]] = {
    "plan": ("read", "network"),
    "suggest": ("read", "network"),
    "auto-edit": ("read", "network", "write"),
    "full-auto": ("read", "network", "write", "execute"),
    "yolo": ("read", "network", "write", "execute"),
}


def category_of(tool: str) -> Category:
    """The category of a tool; an unknown tool counts as `execute`."""
    return _CATEGORIES.get(tool, "execute")


def read_mode(text: str) -> ApprovalMode | None:
    """The mode of this name; an unknown name counts as none."""
    return next((mode for mode in MODES if mode == text.strip()), None)


def approval(mode: ApprovalMode | None) -> Approval:
    """Without a mode no tool needs approval, and only settings deny."""
    if mode is None:
        return Approval(mode="dontAsk")
    if mode in ("full-auto", "yolo"):
        return Approval(mode="dontAsk", denied=_PROTECTED)
    allowed = tuple(tool for tool, category in _CATEGORIES.items() if category in _ALLOWED[mode])
    ours: Literal["plan", "default"] = "plan" if mode == "plan" else "default"
    return Approval(mode=ours, denied=_PROTECTED, allowed=allowed)


def allows(mode: ApprovalMode | None, tool: str) -> bool:
    return mode is None or category_of(tool) in _ALLOWED[mode]


def expanded(pattern: str) -> list[str]:
    """One pattern for each tool of a rule: a category's name stands for its tools."""
    name, bracket, rest = pattern.strip().partition("(")
    tools = [tool for tool in TOOLS if category_of(tool) == name]
    return [f"{tool}{bracket}{rest}" for tool in tools] or [pattern]


def reason_of(tool: str, reason: str, mode: ApprovalMode | None) -> str:
    """Why a tool needs approval or is denied, in Heddle's words if its mode is the reason."""
    if mode is None or allows(mode, tool):
        return reason
    return f"{tool} ({category_of(tool)}) requires approval in {mode} mode"


def offered(requested: list[str], mode: ApprovalMode | None) -> tuple[str, ...]:
    """The tools to offer: the known ones of those requested; in plan mode only those that read."""
    names = [tool for tool in TOOLS if tool in requested]
    return tuple(tool for tool in names if mode != "plan" or allows(mode, tool))
