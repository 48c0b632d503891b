"""Schedules the search for cyclic garbage: a collection stops every thread, also the event loop's.

A collection takes 0.1 to 0.2 us for each object. Requests leave few cycles behind, so collections are seldom; but a
collection of a million objects, as 10,000 new topics have, held the loop for 135 ms. So collections of young objects
are kept small, and all objects are collected while the loop has little to do.

The number of new objects never starts a collection of all: a client with wide requests would start one whenever it
likes, and hold the loop for 200 ms. In a process that is never quiet the collection waits for a moment that is less
busy, and comes after LONGEST_S in any case.

Objects that outlived such a collection, for example those of a thousand partitions, are looked at again only after
LONGEST_S: most collections pass new objects only, and take some milliseconds.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final

YOUNG: Final = 5_000
"""The number of new objects that starts a collection of young objects."""

YOUNG_LOOKS: Final = 8
"""The number of collections of young objects before one of their survivors: some 6 ms, 20 on a busy machine."""

NEVER: Final = 2**31 - 1
"""The number of collections of survivors that would start a collection of all objects by itself."""

WORTH_A_LOOK: Final = 10
"""The number of collections of survivors after which all objects are collected in a quiet moment."""

INTERVAL_S: Final = 1.0
QUIET: Final = 0.05
"""The loop counts as quiet if its thread works for less than this share of an interval. The share grows while a
collection is due: to all of an interval after LONGEST_S."""
LONGEST_S: Final = 3600.0
"""The interval of collections of all objects in a process that is never quiet, and of collections of old survivors in
every process."""


def _looks() -> int:
    return gc.get_count()[2]


def _collect(thorough: bool) -> None:
    if thorough:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


class QuietCollection:
    """Collects all objects in quiet moments. Belongs to one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        collect: Callable[[bool], object] = _collect,
        looks: Callable[[], int] = _looks,
        cpu_s: Callable[[], float] = time.thread_time,
        interval_s: float = INTERVAL_S,
        longest_s: float = LONGEST_S,
    ) -> None:
        """`collect` gets True if objects that outlived a collection count, too."""
        self._loop = loop
        self._collect = collect
        self._looks = looks
        self._cpu_s = cpu_s
        self._interval_s = interval_s
        self._longest_s = longest_s
        self._thorough_in_s = longest_s
        self._due_intervals = 0
        """The number of intervals for which a collection of all objects has waited for a quiet one."""
        self._arm()

    def _arm(self) -> None:
        self._began_cpu_s = self._cpu_s()
        self._timer = self._loop.call_later(self._interval_s, self._fired)

    def _fired(self) -> None:
        self._thorough_in_s -= self._interval_s
        if self._looks() >= WORTH_A_LOOK:
            busy = (self._cpu_s() - self._began_cpu_s) / self._interval_s
            if busy < QUIET + self._due_intervals * self._interval_s / self._longest_s:
                thorough = self._thorough_in_s <= 0
                self._collect(thorough)
                self._due_intervals = 0
                if thorough:
                    self._thorough_in_s = self._longest_s
            else:
                self._due_intervals += 1
        self._arm()

    def close(self) -> None:
        self._timer.cancel()


def collect_seldom(loop: asyncio.AbstractEventLoop) -> QuietCollection:
    """Starts the schedule in a process that has started. Present objects stay alive, and are never collected."""
    gc.freeze()
    gc.set_threshold(YOUNG, YOUNG_LOOKS, NEVER)
    gc.enable()
    return QuietCollection(loop)
