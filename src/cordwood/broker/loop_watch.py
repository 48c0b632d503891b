"""Notices when the event loop was kept from its work: a timer that comes late says for how long."""

import asyncio
import time
from typing import Final

INTERVAL_S: Final = 0.1
STALL_S: Final = 0.05


class LoopWatch:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.stalls = 0
        self.stalled_s = 0.0
        self.longest_s = 0.0
        self._arm()

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
