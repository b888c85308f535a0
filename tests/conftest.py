"""What holds for every test: no example fails for being slow, and no signal is ignored."""

import signal

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
# Started by nohup, or behind a shell's back, we would hand on that these signals are ignored, to
# programs that then ignore them.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
