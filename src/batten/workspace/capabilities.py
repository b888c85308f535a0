"""What root keeps in a sandbox: owning and installing files, not mounting, tracing or loading."""

import ctypes

KEPT = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "NET_BIND_SERVICE": 10,
}

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_HIGHEST = 63


def close_to_tracers() -> None:
    """Let nobody of our own user look into this process or take its descriptors.

    Forked processes stay closed; a program started from here is open again.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def shed_capabilities() -> None:
    """Drop the others from what any program started from here can have. Needs root; else nothing.

    The bounding set alone is enough: a command is always a new program, and root's programs get
    no more than it allows.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        for number in range(_HIGHEST + 1):
            if number not in KEPT.values():
                prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
