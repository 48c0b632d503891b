"""Time, flush rounds and the outside world reach the node one at a time; failures reach whoever stops the broker."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop
from tests.deadline import TEST_WITHIN_S, eventually_here
from tests.moments import at

from cordwood.broker.driver import Driver
from cordwood.broker.machine.fair_workers import FairWorkers
from cordwood.broker.machine.threads import Workers
from cordwood.broker.network.outbox import Outbox
from cordwood.broker.storage.flusher import ImmediateFlusher
from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.model.moment import Moment


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), TEST_WITHIN_S))


class Ticket:
    def sync(self) -> None:
        pass


class Stepping:
    stepped_for: object | None = None


class Loop:
    def __init__(self) -> None:
        self.now = at(0)
        self.turns = Stepping()


class Node:
    def __init__(self) -> None:
        self.loop = Loop()
        self.ticks: list[Moment] = []
        self.dirty: list[Ticket] = []
        self.rounds: list[list[Ticket]] = []
        self.deltas: list[Any] = []
        self.deadline_ms: int | None = None
        self.on_tick: Callable[[], None] = lambda: None

    def tick(self, now: Moment) -> int | None:
        self.ticks.append(now)
        self.on_tick()
        return self.deadline_ms

    def take_flush_tickets(self) -> list[Any]:
        dirty, self.dirty = self.dirty, []
        return dirty

    def flushed(self, tickets: list[Any], now: Moment) -> None:
        self.rounds.append(tickets)

    def apply(self, delta: Any, now: Moment) -> None:
        self.deltas.append((delta, now))

    def survived(self, failure: StorageFailure, path: str | None = None) -> bool:
        return isinstance(failure, SyncFailure) and failure.root == "/second"


class Driven:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = Moment(boot_ms=50_000, wall_ms=1_000_000)
        self.failures: list[Exception] = []
        self.node = Node()
        self.workers = Workers(loop, "files", 1)
        self.driver = Driver(
            loop,
            Outbox(loop),
            self.workers,
            FairWorkers(self.workers, 1, 1),
            self.failures.append,
            now=lambda: self.now,
        )
        self.driver.drive(
            self.node, ImmediateFlusher(self.driver.flushed, self.failures.append), cast("Any", "the metadata writer")
        )

    def close(self) -> None:
        self.driver.stop()
        self.workers.close()


def test_waking_often_ticks_once() -> None:
    async def scenario() -> None:
        driven = Driven()
        for _ in range(10):
            driven.driver.wake()
        await eventually_here(lambda: driven.node.ticks)
        await asyncio.sleep(0.01)
        assert driven.node.ticks == [driven.now]
        driven.close()

    on_a_loop(scenario)


def test_dirty_logs_are_flushed_and_the_next_round_begins_by_itself() -> None:
    async def scenario() -> None:
        driven = Driven()
        first, second = Ticket(), Ticket()
        driven.node.dirty = [first]
        flushed = driven.node.flushed

        def more_gets_dirty(tickets: list[Any], now: Moment) -> None:
            flushed(tickets, now)
            if tickets == [first]:
                driven.node.dirty = [second]

        driven.node.flushed = more_gets_dirty  # type: ignore[method-assign]
        await eventually_here(lambda: len(driven.node.rounds), to_be=2)
        assert driven.node.rounds == [[first], [second]]
        driven.close()

    on_a_loop(scenario)


def test_the_node_is_ticked_at_its_deadline_and_an_earlier_one_counts() -> None:
    async def scenario() -> None:
        driven = Driven()
        driven.node.deadline_ms = 50_000 + 60_000
        await asyncio.sleep(0.005)
        driven.node.deadline_ms = 50_000 + 10
        driven.driver.wake()
        await asyncio.sleep(0.005)
        ticks = len(driven.node.ticks)
        driven.node.deadline_ms = None
        while len(driven.node.ticks) == ticks:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        driven.close()

    on_a_loop(scenario)


@pytest.mark.parametrize("way", ["tick", "flushed", "apply", "blocking", "metadata", "run"])
def test_whatever_reaches_the_node_finds_the_time_on_both_clocks(way: str) -> None:
    async def scenario() -> None:
        driven = Driven()
        driver, node = driven.driver, driven.node
        await asyncio.sleep(0.005)
        seen: asyncio.Queue[Moment] = asyncio.Queue()

        def look(*_: object) -> None:
            seen.put_nowait(node.loop.now)

        async def ask(writer: Any) -> None:
            pass

        driven.now = Moment(boot_ms=50_001, wall_ms=-2_600_000)
        node.on_tick = look
        node.flushed = node.apply = look  # type: ignore[method-assign,assignment]
        match way:
            case "tick":
                driver.wake()
            case "flushed":
                driver.flushed([])
            case "apply":
                driver.apply(cast("Any", "delta"))
            case "blocking":
                driver.blocking(threading.get_ident, look)
            case "metadata":
                driver.metadata(ask, look)
            case "run":
                assert driver.run(look)
        assert await seen.get() == Moment(50_001, -2_600_000)
        driven.close()

    on_a_loop(scenario)


def test_blocking_work_is_done_elsewhere_and_comes_back() -> None:
    async def scenario() -> None:
        driven = Driven()
        results: asyncio.Queue[int | Exception] = asyncio.Queue()
        driven.driver.blocking(threading.get_ident, results.put_nowait)
        assert await results.get() != threading.get_ident()
        driven.close()

    on_a_loop(scenario)


def test_the_metadata_writer_is_asked_and_its_refusals_come_back() -> None:
    async def scenario() -> None:
        driven = Driven()
        results: asyncio.Queue[Any] = asyncio.Queue()
        refusal = ValueError("no")

        async def ask(writer: Any) -> Any:
            await asyncio.sleep(0)
            return writer

        async def refuse(writer: Any) -> Any:
            raise refusal

        driven.driver.metadata(ask, results.put_nowait)
        driven.driver.metadata(refuse, results.put_nowait)
        assert {await results.get(), await results.get()} == {"the metadata writer", refusal}
        driven.close()

    on_a_loop(scenario)


def test_an_exception_of_the_node_stops_it_and_is_reported_once() -> None:
    async def scenario() -> None:
        driven = Driven()
        bug = AssertionError("an invariant is broken")

        def fail() -> None:
            raise bug

        driven.node.on_tick = fail
        await eventually_here(lambda: driven.failures)
        assert driven.failures == [bug]
        driven.driver.wake()
        driven.driver.apply(cast("Any", "delta"))
        await asyncio.sleep(0.01)
        assert driven.failures == [bug]
        assert len(driven.node.ticks) == 1
        assert driven.node.deltas == []
        driven.close()

    on_a_loop(scenario)


def test_a_failed_sync_that_the_node_survives_does_not_stop_it() -> None:
    async def scenario() -> None:
        driven = Driven()

        def fail(root: str) -> None:
            raise SyncFailure("fdatasync failed", root)

        assert driven.driver.run(lambda: fail("/second"))
        assert driven.driver.run(lambda: None), "the node goes on"
        assert driven.failures == []
        assert driven.driver.run(lambda: fail("/first"))
        assert not driven.driver.run(lambda: None)
        assert len(driven.failures) == 1
        driven.close()

    on_a_loop(scenario)


def test_a_node_that_is_always_due_has_one_turn_in_each_turn_of_the_loop() -> None:
    """Each turn that a timer brought once left a turn behind that was never to end: sockets waited for all of them."""

    async def scenario() -> None:
        driven = Driven()

        def always_due() -> None:
            driven.node.deadline_ms = driven.now.boot_ms
            driven.driver.wake()

        driven.node.on_tick = always_due
        driven.driver.wake()
        most = 0
        for _ in range(50):
            before = len(driven.node.ticks)
            await asyncio.sleep(0)
            most = max(most, len(driven.node.ticks) - before)
        driven.close()
        assert most == 1

    on_a_loop(scenario)
