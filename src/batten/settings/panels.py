"""Parses the panels of a settings file: agents that answer approvals under a policy."""

import os
import re
from typing import Any

from batten.settings.contract import PanelConfig, PanelMember
from batten.settings.table import Table

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_CHAIR = "batten"
_LONGEST_S = 86_400
_MOST_AGENTS = 50
_MOST_ROUNDS = 100


def read_panels(table: Table, key: str, base: str) -> tuple[PanelConfig, ...]:
    """The panels of a file. The path of a policy starts at `base`."""
    section = table.table(key)
    if section is None:
        return ()
    return tuple(_panel(section, name, entry, base) for name, entry in section.content.items())


def _panel(section: Table, name: str, entry: Any, base: str) -> PanelConfig:
    if _NAME.fullmatch(name) is None:
        raise section.wrong(name, "must be a name of up to 64 letters, digits, _, . and -")
    panel = section.within(name, entry)
    policy, agents = panel.text("policy"), panel.table("agents")
    connected = _connected(panel)
    members = connected
    if agents is not None:
        members = tuple(_member(agents, one, said) for one, said in agents.content.items())
    if policy is None or not members or (connected and agents is not None):
        raise section.wrong(
            name,
            "must have a policy (a file), and either agents (by name) or connected (the names of"
            " programs that connect to the runtime)",
        )
    if len(members) > _MOST_AGENTS:
        raise panel.wrong("connected" if connected else "agents", f"are {_MOST_AGENTS} at most")
    read = PanelConfig(
        name=name,
        policy=policy if policy.startswith("~/") else os.path.normpath(os.path.join(base, policy)),
        agents=members,
        connected=bool(connected),
        timeout_s=float(_number(panel, "timeout_s", 1, _LONGEST_S, 120)),
        rounds=int(_number(panel, "rounds", 1, _MOST_ROUNDS, 4)),
    )
    panel.note_unknown()
    return read


def _connected(panel: Table) -> tuple[PanelMember, ...]:
    """Members that are other programs: each by the sender that its credential names."""
    names = tuple(name.strip() for name in panel.texts("connected"))
    if len(set(names)) != len(names) or any(name in ("", _CHAIR) for name in names):
        raise panel.wrong("connected", f"must be different names, not empty and not {_CHAIR}")
    return tuple(PanelMember(name=name) for name in names)


def _member(agents: Table, name: str, said: Any) -> PanelMember:
    """Instructions, or a table with a model too."""
    if _NAME.fullmatch(name) is None or name == _CHAIR:
        raise agents.wrong(name, "must be the name of an agent: letters, digits, _, . and -")
    if isinstance(said, str):
        return PanelMember(name=name, instructions=said)
    one = agents.within(name, said)
    member = PanelMember(
        name=name, model=one.text("model") or "", instructions=one.text("instructions") or ""
    )
    one.note_unknown()
    return member


def _number(table: Table, key: str, least: float, most: float, usual: float) -> float:
    value = table.get(key)
    if value is None:
        return usual
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        raise table.wrong(key, f"must be a number from {least} to {most}, not {value!r}")
    return float(value)
