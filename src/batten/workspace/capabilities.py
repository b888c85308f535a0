"""What the processes of a sandbox may do beyond the files they reach.

Root keeps the capabilities to own and install files, not those to mount or trace. A run reads the
table only, and does not wait for `ctypes`.
"""

import struct

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
_RLIMIT_CORE = 4


def close_to_tracers() -> None:
    """Keep other processes of the same user from tracing this one or taking its descriptors.

    Forked processes stay protected; a program executed from here is not.
    """
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def leave_no_core() -> None:
    """Keep this process and what it starts from leaving their memory behind when they crash.

    A limit of 1 byte: with 0, the kernel still feeds a program that `core_pattern` names.
    """
    import ctypes

    setrlimit = getattr(ctypes.CDLL(None), "setrlimit", None)
    if setrlimit is not None:
        setrlimit(_RLIMIT_CORE, struct.pack("=QQ", 1, 1))


def shed_capabilities() -> None:
    """Drop all capabilities not in `KEPT` from the bounding set. Without root it has no effect.

    The bounding set is enough: every command is a new program, and a program run by root gets no
    more than the set allows.
    """
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        for number in range(_HIGHEST + 1):
            if number not in KEPT.values():
                prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
