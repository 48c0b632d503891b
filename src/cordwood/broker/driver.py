"""Drives a node on the event loop: time, flush rounds, work in threads, the metadata writer.

The driver is the node's `Effects`. Every event reaches the node through the driver or through a connection, one at a
time, in the loop's thread. An exception that comes out of the node is our own fault or a failed sync: the driver
reports it once, and the server stops the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cordwood.broker.machine import clocks
from cordwood.broker.machine.fair_workers import FairWorkers
from cordwood.broker.machine.loop_watch import NO_REQUEST, STALL_S, LoopWatch
from cordwood.broker.machine.threads import Workers
from cordwood.broker.network.connection import PendingReply
from cordwood.broker.network.connections import Quotas
from cordwood.broker.network.outbox import Outbox
from cordwood.broker.storage.flusher import RoundFlusher
from cordwood.model.errors import StorageFailure, SyncFailure
from cordwood.model.moment import Moment

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ImageDelta
    from cordwood.cluster.metadata_writer import MetadataWriter
    from cordwood.log.upkeep.flushing import FlushTicket

T = TypeVar("T")


class Stepping(Protocol):
    """Wide requests that are handled in steps."""

    stepped_for: object | None
    """The reply of the request whose step was the last."""


class DrivenLoop(Protocol):
    """The part of a node's loop that the driver needs."""

    now: Moment
    """The time of the node's current event."""

    @property
    def turns(self) -> Stepping: ...


class DrivenNode(Protocol):
    """The part of a node that the driver needs."""

    @property
    def loop(self) -> DrivenLoop: ...

    def tick(self, now: Moment) -> int | None: ...

    def take_flush_tickets(self) -> list[FlushTicket]: ...

    def flushed(self, tickets: list[FlushTicket], now: Moment) -> None: ...

    def apply(self, delta: ImageDelta, now: Moment) -> None: ...

    def survived(self, failure: StorageFailure, path: str | None = None) -> bool: ...


class Driver:
    """The node's effects, made before the node. `drive` starts the node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        outbox: Outbox,
        file_workers: Workers,
        client_workers: FairWorkers,
        failed: Callable[[Exception], None],
        *,
        now: Callable[[], Moment] = clocks.now,
    ) -> None:
        self._loop = loop
        self._outbox = outbox
        self._file_workers = file_workers
        self._client_workers = client_workers
        self._failed = failed
        self.now = now
        self._node: DrivenNode | None = None
        self._flusher: RoundFlusher | None = None
        self._metadata_writer: MetadataWriter | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._awake = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline_ms = 0
        self._stopped = False
        self._round_over = asyncio.Event()
        self.loop_watch: LoopWatch | None = None
        self.quotas: Quotas | None = None

    def drive(self, node: DrivenNode, flusher: RoundFlusher, metadata_writer: MetadataWriter | None) -> None:
        self._node, self._flusher, self._metadata_writer = node, flusher, metadata_writer
        self.wake()

    # Effects

    def wake(self) -> None:
        if not self._awake and self._node is not None:
            self._awake = True
            self._loop.call_soon(self._turn)

    def metadata(self, call: Callable[[MetadataWriter], Awaitable[T]], done: Callable[[T | Exception], None]) -> None:
        async def ask() -> None:
            assert self._metadata_writer is not None
            try:
                result: T | Exception = await call(self._metadata_writer)
            except Exception as failure:
                result = failure
            self._into_node(lambda: done(result))

        task = self._loop.create_task(self._named(ask()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _named(self, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """Names the request whose step is under way, or which is being handled, to the loop's watch for this work."""
        watch, node = self.loop_watch, self._node
        reply = None if node is None else node.loop.turns.stepped_for
        if watch is None or not isinstance(reply, PendingReply):
            return work
        return watch.watched(reply.api_name, f"the plan for {reply}", work)

    def blocking(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self._file_workers.submit(work, self._back_in_node(done))

    def for_client(self, connection_id: int, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self._client_workers.submit(connection_id, work, self._back_in_node(done))

    def _back_in_node(self, done: Callable[[T | Exception], None]) -> Callable[[T | Exception], None]:
        def finished(result: T | Exception) -> None:
            self._into_node(lambda: done(result))

        return finished

    # Events

    def apply(self, delta: ImageDelta) -> None:
        """Brings a change of the cluster's metadata to the node."""
        if self._node is not None:
            node = self._node
            self._into_node(lambda: node.apply(delta, node.loop.now))

    def flushed(self, tickets: list[FlushTicket]) -> None:
        """Tells the node that a flush round is over. The next round begins before the answers are written."""
        node = self._node
        assert node is not None

        def acknowledge() -> None:
            node.flushed(tickets, node.loop.now)
            self._begin_flush()

        self._into_node(acknowledge)
        self._round_over.set()

    def sync_failed(self, ticket: FlushTicket, failure: StorageFailure) -> bool:
        """Tells the node that a log could not be synced. False if the broker cannot go on."""
        return self.survived(failure, ticket.data_directory)

    def survived(self, failure: Exception, path: str | None = None) -> bool:
        """True if the broker goes on after a failed sync, without a data directory that failed."""
        node, goes_on = self._node, False

        def tell() -> None:
            nonlocal goes_on
            assert node is not None
            assert isinstance(failure, StorageFailure)
            goes_on = node.survived(failure, path)

        if node is not None and (path is not None or isinstance(failure, SyncFailure)):
            self._into_node(tell)
        return goes_on and not self._stopped

    def run(self, event: Callable[[], None]) -> bool:
        """Runs an event of other code in this process on the node. False if the driver has stopped."""
        return self._into_node(event)

    def _turn(self) -> None:
        """Runs due deadlines, and begins a flush round if none is under way."""
        self._awake = False
        self._into_node(self._tick_and_flush)

    def _tick_and_flush(self) -> None:
        node = self._node
        assert node is not None
        now = node.loop.now
        deadline_ms = node.tick(now)
        self._begin_flush()
        if deadline_ms is not None and deadline_ms <= now.boot_ms:
            self.wake()
        elif deadline_ms is not None and (self._timer is None or deadline_ms < self._timer_deadline_ms):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_deadline_ms = deadline_ms
            self._timer = self._loop.call_later((deadline_ms - now.boot_ms) / 1000, self._timer_fired)

    def _begin_flush(self) -> None:
        assert self._node is not None
        assert self._flusher is not None
        if self._flusher.idle and (tickets := self._node.take_flush_tickets()):
            self._flusher.start(tickets)

    def _timer_fired(self) -> None:
        self._timer = None
        # One turn at a time: a second one would leave a third behind, and sockets would wait for all of them.
        self.wake()

    def _into_node(self, event: Callable[[], None]) -> bool:
        if self._stopped:
            return False
        watch, node = self.loop_watch, self._node
        began_s = began_cpu_s = 0.0
        if watch is not None:
            began_s, began_cpu_s = watch.monotonic_s(), watch.cpu_s()
            watch.last_event_cpu_s = began_cpu_s
        self._outbox.cork()
        try:
            if node is not None:
                loop = node.loop
                loop.now = self.now()
                loop.turns.stepped_for = None
            event()
        except Exception as failure:
            if not (isinstance(failure, SyncFailure) and node is not None and node.survived(failure)):
                self._stopped = True
                self._failed(failure)
        finally:
            self._outbox.uncork()
        took_s = 0.0 if watch is None else watch.monotonic_s() - began_s
        reply = None if node is None else node.loop.turns.stepped_for
        if self.quotas is not None and self.quotas.counts_time and isinstance(reply, PendingReply):
            reply.count_time(self.quotas, took_s)
        if watch is not None and took_s >= STALL_S:
            api, who = NO_REQUEST, "its own work"
            if isinstance(reply, PendingReply):
                api, who = reply.api_name, f"a step of {reply}"
            watch.held(api, who, took_s, watch.cpu_s() - began_cpu_s)
        return True

    # The end

    async def settle(self, timeout_s: float) -> None:
        """Waits for the node's changes of the metadata."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def flush_everything(self) -> None:
        """Syncs until no log is dirty: all acks that waited for the disk have been given."""
        while self._into_node(self._begin_flush):
            assert self._flusher is not None
            if self._flusher.idle:
                return
            self._round_over.clear()
            await self._round_over.wait()

    def stop(self) -> None:
        """Stops the driver: no event reaches the node from now on."""
        self._stopped = True
        self._round_over.set()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
