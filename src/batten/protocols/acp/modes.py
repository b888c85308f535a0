"""Our permission modes as the client's session modes."""

from batten.protocols.acp.methods import Mode, ModeState

_MODES = (
    Mode(id="default", name="Ask", description="Asks before it changes or runs anything."),
    Mode(id="acceptEdits", name="Accept edits", description="Edits files; asks for the rest."),
    Mode(id="plan", name="Plan", description="Reads and plans; changes nothing."),
    Mode(id="auto", name="Auto", description="Edits and reads; asks for what else changes things."),
    Mode(id="dontAsk", name="Don't ask", description="Does all that no rule denies."),
)
_BYPASS = Mode(
    id="bypassPermissions", name="Bypass", description="Does everything, also what is denied."
)


def mode_state(current: str) -> ModeState:
    """The modes on offer. The current mode is listed even if it cannot be chosen."""
    offered = [*_MODES]
    if not is_offered(current):
        offered.append(_BYPASS if current == _BYPASS.id else Mode(id=current, name=current))
    return ModeState(current_mode_id=current, available_modes=offered)


def is_offered(mode: str) -> bool:
    return mode in {known.id for known in _MODES}
