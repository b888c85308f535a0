"""One attempt, and what is known of it."""

from typing import Literal

from msgspec import Struct

User = Literal["root", "ordinary"]
BOTH: tuple[User, ...] = ("root", "ordinary")


class Attempt(Struct, frozen=True, kw_only=True):
    """A command that would get out. It has done so if the world outside is not as it was, or if it
    prints `ESCAPED` or the secret of our environment.
    """

    name: str
    script: str
    """Python, after `PRELUDE`; with `shell`, a command line. Its environment is `World.environ`."""
    shell: bool = False
    gap: str = ""
    """The words of `docs/security.md` for what stays open."""
    open_in: tuple[str, ...] = ()
    """The layers in which it stays open."""
    open_for: tuple[User, ...] = BOTH
    users: tuple[User, ...] = BOTH
    """Who tries it: if it succeeded for root, it would harm the whole machine."""
    control: tuple[User, ...] = BOTH
    """Who gets out with it where there is no sandbox. Nobody: it cannot be tried there."""


PRELUDE = """
import ctypes, fcntl, mmap, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
OUT, KEPT = os.environ["OUT"], os.environ["OUT"] + "/kept"
VICTIM, US = int(os.environ["VICTIM"]), int(os.environ["US"])
X86 = os.uname().machine == "x86_64"
def call(number, *arguments):
    return libc.syscall(ctypes.c_long(number), *[
        ctypes.c_long(one) if isinstance(one, int) else one for one in arguments])
def escaped(did):
    if did:
        print("ESCAPED")
"""
"""Before every script in Python."""


def shell(
    name: str, line: str, gap: str = "", *open_in: str, control: tuple[User, ...] = BOTH
) -> Attempt:
    return Attempt(name=name, script=line, shell=True, gap=gap, open_in=open_in, control=control)
