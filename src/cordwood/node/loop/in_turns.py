"""The node's own long work, one piece in each turn of the loop: requests are served in between.

`turns` has the work for a connection's request, which ends when the connection closes.
"""

from collections import deque
from collections.abc import Callable, Iterator

from cordwood.model.moment import Moment
from cordwood.node.loop.timers import Timers

Work = Callable[[Moment], None]
"""One piece of work, called with the current time."""


class InTurns:
    """A queue of pieces of work, done in the order of arrival."""

    def __init__(self, timers: Timers, wake: Callable[[], None], now: Callable[[], Moment]) -> None:
        self._timers = timers
        self._wake = wake
        self._now = now
        self._waiting: deque[Work] = deque()

    def add(self, work: Work) -> None:
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._call_at(self._now().boot_ms)

    def add_steps(self, steps: Iterator[None]) -> None:
        """Takes one step in each turn until none is left. Work that was added meanwhile comes before the next step."""

        def step(now: Moment) -> None:
            for _ in steps:
                self.add(step)
                return

        self.add(step)

    def begin_steps(self, steps: Iterator[None]) -> None:
        """Takes the first step now, the others in later turns: little work is done at once."""
        for _ in steps:
            self.add_steps(steps)
            return

    def _call_at(self, boot_ms: int) -> None:
        self._timers.at(boot_ms, self._do_next)
        self._wake()

    def _do_next(self, now: Moment) -> None:
        self._waiting[0](now)
        self._waiting.popleft()
        if self._waiting:
            # One deadline at a time: several deadlines that came due during a long piece would run in one turn.
            self._call_at(now.boot_ms + 1)
