"""Notices stalls of the event loop: how long the loop was held, and by which request.

Two measurements. A timer that comes late shows that something held the loop. The driver and the connections read the
clock before and after each event of the node, and name the request of a long event, in the log and as a metric. Load of
other processes or cores shows in the first measurement alone: the second gives the CPU time of the loop's thread beside
the time that passed.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("cordwood.broker")

INTERVAL_S: Final = 0.1
STALL_S: Final = 0.05
_SAID_EVERY_S: Final = 10.0

NO_REQUEST: Final = "none"
"""The API name of stalls by the broker's own work."""


class LoopWatch:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        monotonic_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop = loop
        self.monotonic_s = monotonic_s
        self.cpu_s = cpu_s
        """CPU time of the calling thread, which is the loop's."""
        self.stalls = 0
        self.stalled_s = 0.0
        self.longest_s = 0.0
        self.held_cpu_s: dict[str, float] = {}
        """CPU seconds, by API, of turns that took STALL_S or longer."""
        self._say_from_s = 0.0
        self._unsaid = 0
        self._arm()

    def held(self, api: str, who: str, took_s: float, cpu_s: float) -> None:
        """Counts and logs a turn that took STALL_S or longer."""
        self.held_cpu_s[api] = self.held_cpu_s.get(api, 0.0) + cpu_s
        now_s = self.monotonic_s()
        if now_s < self._say_from_s:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} such turns before it were not logged" if self._unsaid else ""
        logger.warning(
            "the event loop was held for %.0f ms (%.0f ms of CPU) by %s%s", took_s * 1000, cpu_s * 1000, who, more
        )
        self._say_from_s, self._unsaid = now_s + _SAID_EVERY_S, 0

    def _arm(self) -> None:
        self._due_s = time.monotonic() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._fired)

    def _fired(self) -> None:
        late_s = time.monotonic() - self._due_s
        if late_s >= STALL_S:
            self.stalls += 1
            self.stalled_s += late_s
            self.longest_s = max(self.longest_s, late_s)
        self._arm()

    def close(self) -> None:
        self._timer.cancel()
