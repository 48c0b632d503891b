"""Notices stalls of the event loop: their duration, and the request that held the loop.

The driver and the connections read the clock before and after each event of the node, and name the request of a long
event, in the log and as a metric. Tasks have a clock around each of their steps: plans of changes of the metadata run
in tasks, outside of the node. A late timer shows that something held the loop: a stall that took CPU time and that no
request explains is logged as such. Load of other processes or cores makes timers late, too, but takes no CPU time of
the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Final

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
        self._named_s = 0.0
        """Time of long turns since the timer was armed."""
        self.last_event_cpu_s = 0.0
        """The CPU time at which the last watched event or step began."""
        self._say_from_s = 0.0
        self._unsaid = 0
        self._task_factory = loop.get_task_factory()
        loop.set_task_factory(self._watched_task)
        self._arm()

    def held(self, api: str, who: str, took_s: float, cpu_s: float) -> None:
        """Counts and logs a turn that took STALL_S or longer."""
        self._named_s += took_s
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

    def watched(self, api: str, who: str, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """The same work, with each step named after a request."""
        return _WatchedSteps(self, api, who, work)

    def _watched_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Future[Any]:
        if not isinstance(work, _WatchedSteps):
            name = getattr(work, "__qualname__", type(work).__name__)
            work = _WatchedSteps(self, NO_REQUEST, f"its own task {name}", work)
        if self._task_factory is not None:
            return self._task_factory(loop, work, **options)
        return asyncio.Task(work, loop=loop, **options)

    @property
    def named_s(self) -> float:
        return self._named_s

    def _arm(self) -> None:
        self._due_s = time.monotonic() + INTERVAL_S
        self._armed_cpu_s = self.cpu_s()
        self._named_s = 0.0
        self._timer = self._loop.call_later(INTERVAL_S, self._fired)

    def _fired(self) -> None:
        late_s = time.monotonic() - self._due_s
        if late_s >= STALL_S:
            self.stalls += 1
            self.stalled_s += late_s
            self.longest_s = max(self.longest_s, late_s)
            # Only the time since the last watched event counts: earlier short turns of a busy loop are not part of the
            # stall.
            cpu_s = self.cpu_s() - max(self._armed_cpu_s, self.last_event_cpu_s)
            if not self._named_s and cpu_s >= STALL_S:
                self.held(NO_REQUEST, "work that nobody watches", late_s, cpu_s)
        self._arm()

    def close(self) -> None:
        self._timer.cancel()
        self._loop.set_task_factory(self._task_factory)


class _WatchedSteps(Coroutine[Any, Any, Any]):
    """A coroutine with a clock around each of its steps."""

    __slots__ = ("__name__", "__qualname__", "_api", "_watch", "_who", "_work")

    def __init__(self, watch: LoopWatch, api: str, who: str, work: Coroutine[Any, Any, Any]) -> None:
        self._watch = watch
        self._api = api
        self._who = who
        self._work = work
        # Attributes for the names that asyncio gives to a task.
        self.__name__ = getattr(work, "__name__", type(work).__name__)
        self.__qualname__ = getattr(work, "__qualname__", self.__name__)

    def send(self, value: Any) -> Any:
        return self._step(self._work.send, value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None) -> Any:
        if isinstance(kind, BaseException):
            return self._step(self._work.throw, kind)
        return self._step(self._work.throw, kind, value, traceback)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        watch = self._watch
        began_s, began_cpu_s, named_s = watch.monotonic_s(), watch.cpu_s(), watch.named_s
        watch.last_event_cpu_s = began_cpu_s
        try:
            return step(*arguments)
        finally:
            took_s = watch.monotonic_s() - began_s
            # An event of the node within the step has named its own request.
            if took_s >= STALL_S and watch.named_s == named_s:
                watch.held(self._api, self._who, took_s, watch.cpu_s() - began_cpu_s)
