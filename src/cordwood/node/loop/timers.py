"""Deadlines of a node: a heap of callbacks. Cancelled timers are skipped, and cleared away when there are too many."""

import heapq
from collections.abc import Callable

from cordwood.model.moment import Moment

FEWEST_TO_CLEAR = 1024
"""With fewer timers a search for cancelled ones is not worth its time."""


class Timer:
    """One deadline, which can be cancelled or fired before its time."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[Moment], None]) -> None:
        self.callback: Callable[[Moment], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self, now: Moment) -> None:
        """Calls back now, unless the timer has fired or was cancelled. The timer fires only once."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(now)


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._clear_at = FEWEST_TO_CLEAR

    def __len__(self) -> int:
        """The number of timers in the heap, cancelled ones included."""
        return len(self._heap)

    def at(self, deadline_ms: int, callback: Callable[[Moment], None]) -> Timer:
        """Calls back with the time, once, when the deadline has passed."""
        timer = Timer(callback)
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, timer))
        if len(self._heap) >= self._clear_at:
            self._clear_cancelled()
        return timer

    def _clear_cancelled(self) -> None:
        """Removes cancelled timers: fetches that are answered before their deadline leave a thousand a second."""
        # The heap may double before the next clearing.
        self._heap = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._clear_at = max(FEWEST_TO_CLEAR, 2 * len(self._heap))

    def run(self, now: Moment) -> int | None:
        """Fires the timers that are due, in order; returns the next deadline.

        Timers that become due during the run wait for the next run: a timer that is always due must not keep others
        waiting.
        """
        due = []
        while (deadline_ms := self._next_ms()) is not None and deadline_ms <= now.boot_ms:
            due.append(heapq.heappop(self._heap)[2])
        for timer in due:
            timer.fire(now)
        return self._next_ms()

    def _next_ms(self) -> int | None:
        """The next deadline that is not cancelled."""
        heap = self._heap
        while heap:
            deadline_ms, _, timer = heap[0]
            if timer.callback is not None:
                return deadline_ms
            heapq.heappop(heap)
        return None
