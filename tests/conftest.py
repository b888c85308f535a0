"""What holds for every test: no example fails for being slow, and no signal is ignored."""

import signal

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
# Started by nohup we would hand on that a hang-up is ignored, to programs that then ignore it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
