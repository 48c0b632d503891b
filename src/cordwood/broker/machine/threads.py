"""Threads that do blocking work for the loop: the loop hands work over and gets the result back in the loop.

Persistent threads on a SimpleQueue: handing over and back costs 15 to 30 us (benchmarks/fsync_strategies.py), and no
thread is started before the first piece of work. One wake-up of the loop delivers all finished results.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Work = Callable[[], Any]
Done = Callable[[Any], None]


class Workers:
    """Up to `count` threads that do one kind of work, first come, first served."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, count: int) -> None:
        assert count > 0
        self._loop = loop
        self._name = name
        self._count = count
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
        self._finished: deque[tuple[Done, Any]] = deque()
        self._under_way = 0
        self._closed = False

    @property
    def under_way(self) -> int:
        """The number of pieces of work that are queued or being done."""
        return self._under_way

    def submit(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Does the work in a thread; `done` gets its result, or the exception it raised, in the loop."""
        assert not self._closed, f"the {self._name} threads are closed"
        self._under_way += 1
        if self._under_way > len(self._threads) < self._count:
            thread = threading.Thread(target=self._run, name=f"cordwood-{self._name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put((work, done))

    def _run(self) -> None:
        get, finished, loop = self._queue.get, self._finished, self._loop
        while (item := get()) is not None:
            work, done = item
            try:
                result: Any = work()
            except Exception as failure:
                result = failure
            finished.append((done, result))
            # Objects of this piece of work must not stay alive while the thread waits for the next piece.
            del work, done, result, item
            try:
                loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                return

    def _deliver(self) -> None:
        finished = self._finished
        while finished:
            done, result = finished.popleft()
            self._under_way -= 1
            done(result)

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends the threads after the submitted work, and delivers its results here. Leaves threads that take longer."""
        if self._closed:
            return
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._deliver()
