"""Deadlines of a node: a heap of callbacks. Cancelled ones are skipped, and cleared away when they are too many."""

import heapq
from collections.abc import Callable

FEWEST_TO_CLEAR = 1024
"""From so many on it is worth looking for those that were cancelled."""


class Timer:
    """One deadline. It can be cancelled, or called before its time."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[int], None]) -> None:
        self.callback: Callable[[int], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self, now_ms: int) -> None:
        """Calls back now, unless that has happened, and not again."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(now_ms)


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._clear_at = FEWEST_TO_CLEAR

    def __len__(self) -> int:
        """How many are kept, with those that are cancelled."""
        return len(self._heap)

    def at(self, deadline_ms: int, callback: Callable[[int], None]) -> Timer:
        """Calls back with the time, once, when the deadline has passed."""
        timer = Timer(callback)
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, timer))
        if len(self._heap) >= self._clear_at:
            self._clear_cancelled()
        return timer

    def _clear_cancelled(self) -> None:
        """A fetch may be willing to wait for days, and be answered at once, a thousand times a second."""
        # Twice as many may come before the next look.
        self._heap = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._clear_at = max(FEWEST_TO_CLEAR, 2 * len(self._heap))

    def run(self, now_ms: int) -> int | None:
        """Fires what is due, in order; returns the next deadline.

        What comes to be due meanwhile waits for the next time, so that nobody who is always due keeps others waiting.
        """
        due = []
        while (deadline_ms := self._next_ms()) is not None and deadline_ms <= now_ms:
            due.append(heapq.heappop(self._heap)[2])
        for timer in due:
            timer.fire(now_ms)
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

    def shift(self, by_ms: int) -> None:
        """The wall clock jumped: what was to wait a while still waits that while."""
        self._heap = [(deadline_ms + by_ms, sequence, timer) for deadline_ms, sequence, timer in self._heap]
        heapq.heapify(self._heap)
