"""`batten sandbox`: what confines commands here."""

import msgspec

from .invoking import Shell


def test_layer_and_what_it_leaves_open_are_shown(shell: Shell) -> None:
    where = str(shell.stage.workspace)
    said = shell("sandbox", where, "--sandbox", "none")
    assert said.code == 0
    assert said.out.decode().splitlines() == [
        f"commands in {where} run in the layer none",
        "  not covered: reading every file that you can read",
        "  not covered: writing outside the workspace",
        "  not covered: network",
    ]
    shown = msgspec.json.decode(shell("sandbox", where, "--sandbox", "none", "--json").out)
    assert shown == {"layer": "none", "uncovered": ["writing outside the workspace", "network"]}
