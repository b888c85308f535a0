"""A program that has nothing to do with sinks, and uses as much of a core as they do.

The control of the measurement: what appends wait longer beside it is the machine's doing.
"""

import os
import sys
import time

_PERIOD_S = 0.05


def spin(share: float) -> None:
    """Use this share of a core until killed, in turns as the process of sinks takes them."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        began, until = time.perf_counter(), time.process_time() + share * _PERIOD_S
        while time.process_time() < until:
            os.sched_yield()
            _ = sum(range(5_000))
        time.sleep(max(0.0, _PERIOD_S - (time.perf_counter() - began)))


if __name__ == "__main__":
    spin(float(sys.argv[1]))
