"""The process of sinks beside a session that may live for long: it tells what happens meanwhile."""

import signal
import subprocess
import sys

from batten.contract.envelope import timestamp
from batten.wiring.opener import SessionOpener

_STOP_S = 0.6
"""How long it may take to give up its leases; it is then killed."""


class SinksBeside:
    """Tells the sinks of an opener's home until `end`, or until this process ends."""

    def __init__(self, opener: SessionOpener) -> None:
        self._opener = opener
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        base = self._opener.base
        if not base.save:
            return
        named = () if base.settings is None else ("--settings", base.settings)
        began = timestamp(self._opener.began_ns)
        command = ("sinks", "run", "--leave-with-stdin", "--since", began, *named)
        try:
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-m", "batten", *command),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(base.environ),
                cwd=base.cwd or None,
                # Not a session of its own: the scheduler shares cores between sessions evenly,
                # and would let an idle thread of one keep a core from another.
                process_group=0,
            )
        except OSError:  # no room for another process: the sinks are told at the end
            return

    def end(self) -> None:
        """Stop it, so that this process can tell the rest."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        process.stdin.close()
