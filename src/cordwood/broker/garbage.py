"""When this process looks for cyclic garbage: a look stops every thread, the event loop's with them.

A look takes 0.1 to 0.2 us for each object that it passes. Requests leave few cycles behind, so that looks are seldom;
but a look at a million objects, which 10,000 new topics are, held the loop for 135 ms. So the looks at young objects
are kept small, and a look at all objects is taken while the loop has little to do. Only a process that is never quiet
has one in between, after as many new objects as MOST_LOOKS stands for.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final

YOUNG: Final = 5_000
"""New objects before they are looked at."""

YOUNG_LOOKS: Final = 8
"""Looks at new objects before the survivors of all of them are looked at together: some 6 ms, 20 on a busy machine."""

WORTH_A_LOOK: Final = 10
MOST_LOOKS: Final = 50
"""Looks at survivors before all objects are looked at: in a quiet moment, and at the latest."""

INTERVAL_S: Final = 1.0
QUIET: Final = 0.05
"""The share of an interval that the loop's thread works while it counts as quiet."""


def _looks() -> int:
    return gc.get_count()[2]


class QuietCollection:
    """Looks at all objects in quiet moments. Belongs to one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        collect: Callable[[], object] = gc.collect,
        looks: Callable[[], int] = _looks,
        cpu_s: Callable[[], float] = time.thread_time,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._loop = loop
        self._collect = collect
        self._looks = looks
        self._cpu_s = cpu_s
        self._interval_s = interval_s
        self._arm()

    def _arm(self) -> None:
        self._began_cpu_s = self._cpu_s()
        self._timer = self._loop.call_later(self._interval_s, self._fired)

    def _fired(self) -> None:
        quiet = self._cpu_s() - self._began_cpu_s < QUIET * self._interval_s
        if quiet and self._looks() >= WORTH_A_LOOK:
            self._collect()
        self._arm()

    def close(self) -> None:
        self._timer.cancel()


def collect_seldom(loop: asyncio.AbstractEventLoop) -> QuietCollection:
    """For a process that has started. What is alive now stays alive, and is never looked at again."""
    gc.freeze()
    gc.set_threshold(YOUNG, YOUNG_LOOKS, MOST_LOOKS)
    gc.enable()
    return QuietCollection(loop)
