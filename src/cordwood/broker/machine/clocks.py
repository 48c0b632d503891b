"""Reads the machine's clocks."""

import time

from cordwood.model.moment import Moment

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux counts the time that a machine sleeps on CLOCK_BOOTTIME alone; elsewhere CLOCK_MONOTONIC is the nearest."""


def boot_ms() -> int:
    return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000


def now() -> Moment:
    return Moment(boot_ms(), time.time_ns() // 1_000_000)
