"""Work handed to threads and back."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from cordwood.broker.machine.threads import Workers


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), 20))


def test_results_and_exceptions_come_back_in_the_loop() -> None:
    async def scenario() -> None:
        workers = Workers(asyncio.get_running_loop(), "test", 2)
        results: asyncio.Queue[tuple[Any, int]] = asyncio.Queue()
        failure = ValueError("no")

        def fail() -> int:
            raise failure

        workers.submit(threading.get_ident, lambda result: results.put_nowait((result, threading.get_ident())))
        elsewhere, here = await results.get()
        assert here == threading.get_ident() != elsewhere
        workers.submit(fail, lambda result: results.put_nowait((result, threading.get_ident())))
        assert await results.get() == (failure, here)
        assert workers.under_way == 0
        workers.close()

    on_a_loop(scenario)


def test_no_more_threads_are_started_than_there_is_work_for() -> None:
    async def scenario() -> None:
        workers = Workers(asyncio.get_running_loop(), "few", 8)
        done: asyncio.Queue[int | Exception] = asyncio.Queue()
        for _ in range(5):
            workers.submit(threading.get_ident, done.put_nowait)
            await done.get()
        assert len(workers._threads) == 1
        gate = threading.Event()
        for _ in range(20):
            workers.submit(lambda: gate.wait(60), done.put_nowait)
        assert workers.under_way == 20
        gate.set()
        for _ in range(20):
            await done.get()
        assert len(workers._threads) == 8
        workers.close()

    on_a_loop(scenario)


def test_closing_finishes_what_was_submitted() -> None:
    async def scenario() -> None:
        workers = Workers(asyncio.get_running_loop(), "close", 1)
        done: list[int | Exception] = []
        for number in range(10):
            workers.submit(lambda number=number: number, done.append)  # type: ignore[misc]
        workers.close()
        assert done == list(range(10))
        workers.close()

    on_a_loop(scenario)
