"""An event loop in which every callback is a step that the simulator picks.

The loop has just enough of asyncio for the driver and the metadata writer: callbacks in the order of scheduling, timers
by the virtual clock, tasks, futures and locks. It has no selector, sockets, threads or real time.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from simulation.world.clock import Clock

T = TypeVar("T")

Callback = Callable[..., object]


class TurnLoop:
    """The few methods of an AbstractEventLoop that are used; `for_asyncio` is this loop under that type."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[tuple[asyncio.Handle, Callback, tuple[Any, ...]]] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle, Callback, tuple[Any, ...]]] = []
        self._sequence = 0
        self._running = False
        self.tasks: list[asyncio.Task[Any]] = []

    @property
    def for_asyncio(self) -> asyncio.AbstractEventLoop:
        return cast("asyncio.AbstractEventLoop", self)

    # Calls of the simulator

    @property
    def has_ready(self) -> bool:
        """True if a callback could run now: a scheduled one, or a timer that is due."""
        self._take_due()
        return bool(self._ready)

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next timer, on the monotonic clock."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def step(self) -> None:
        """Runs the next callback."""
        self._take_due()
        handle, callback, arguments = self._ready.popleft()
        if handle.cancelled():
            return
        assert not self._running, "the loop is entered twice"
        self._running = True
        asyncio._set_running_loop(self.for_asyncio)
        try:
            callback(*arguments)
        finally:
            asyncio._set_running_loop(None)
            self._running = False

    def run_until_idle(self) -> None:
        while self.has_ready:
            self.step()

    def _take_due(self) -> None:
        while (deadline_ms := self.next_deadline_ms) is not None and deadline_ms <= self._clock.boot_ms:
            _, _, handle, callback, arguments = heapq.heappop(self._timers)
            self._ready.append((handle, callback, arguments))

    # Calls of asyncio

    def call_soon(self, callback: Callback, *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self.for_asyncio, context)
        self._ready.append((handle, callback, args))
        return handle

    def call_soon_threadsafe(
        self, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self._at(self._clock.boot_ms + round(delay * 1000), callback, args, context)

    def call_at(
        self, when: float, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self._at(round(when * 1000), callback, args, context)

    def _at(
        self, deadline_ms: int, callback: Callback, args: tuple[Any, ...], context: contextvars.Context | None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(deadline_ms / 1000, callback, args, self.for_asyncio, context)
        self._sequence += 1
        heapq.heappush(self._timers, (deadline_ms, self._sequence, handle, callback, args))
        return handle

    def time(self) -> float:
        return self._clock.monotonic_s()

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self.for_asyncio)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: contextvars.Context | None = None
    ) -> "asyncio.Task[T]":
        task = asyncio.Task(coro, loop=self.for_asyncio, name=None if name is None else str(name))
        self.tasks = [each for each in self.tasks if not each.done()]
        self.tasks.append(task)
        return task

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing: a cancelled timer is skipped when it comes up."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raises failures of tasks. Complaints about the unfinished tasks of a dead broker are ignored."""
        if isinstance(failure := context.get("exception"), Exception):
            raise failure

    def forget(self) -> None:
        """Drops all callbacks, timers and tasks: the process is gone."""
        self._ready.clear()
        self._timers.clear()
        for task in self.tasks:
            # Python would report a destroyed pending task; this task was killed on purpose.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done() and isinstance(coroutine := task.get_coro(), Coroutine):
                coroutine.close()
        self.tasks.clear()
        self._ready.clear()
