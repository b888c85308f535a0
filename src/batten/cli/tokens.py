"""`batten token`: prints the token of the home, and when a service wants it."""

import os
from argparse import Namespace
from typing import TYPE_CHECKING

from batten.cli import current_directory
from batten.client.home_service import make_home_token
from batten.serve.output import put
from batten.wiring.home import batten_home, make_home

if TYPE_CHECKING:
    from batten.wiring.spec import SessionSpec


def print_token(options: Namespace) -> int:
    home = batten_home(os.environ, current_directory())
    make_home(home)
    put(make_home_token(home))
    return 0


def why_token_is_wanted(base: "SessionSpec") -> str:
    """Why not even the owner is served without the token: a command could connect as the owner.
    Empty if no command can, and without a sandbox too: a command that may do all that the owner
    may can read the token as well. Commands of others are told by the mark of their network.
    """
    is_reached = base.network and base.sandbox != "none"
    return "its commands may use the network" if is_reached else ""
