"""Group commit: which way a round takes, that it ends once, and that a failure ends everything."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from cordwood.broker.storage.flusher import FEW, Flusher, ImmediateFlusher
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.errors import StorageFailure, SyncFailure


class Ticket:
    """Counts its syncs; waits for `gate` if it has one."""

    def __init__(self, gate: threading.Event | None = None, failure: Exception | None = None) -> None:
        self.gate = gate
        self.failure = failure
        self.syncs = 0

    def sync(self) -> None:
        if self.gate is not None:
            self.gate.wait(60)
        if self.failure is not None:
            raise self.failure
        self.syncs += 1


class Rounds:
    """A flusher, and what it reported."""

    def __init__(
        self,
        sync_everything: Callable[[], None] | None = None,
        threads: int = 2,
        survived: Callable[[FlushTicket, StorageFailure], bool] = lambda ticket, failure: False,
    ) -> None:
        self.over: asyncio.Queue[list[Ticket]] = asyncio.Queue()
        self.failures: asyncio.Queue[Exception] = asyncio.Queue()
        self.everything_syncs = 0

        def count_everything() -> None:
            self.everything_syncs += 1
            if sync_everything is not None:
                sync_everything()

        self.flusher = Flusher(
            asyncio.get_running_loop(),
            lambda tickets: self.over.put_nowait(cast("list[Ticket]", tickets)),
            self.failures.put_nowait,
            sync_everything=None if sync_everything is None else count_everything,
            threads=threads,
            survived=survived,
        )

    def start(self, tickets: list[Ticket]) -> None:
        self.flusher.start(cast("list[FlushTicket]", tickets))

    async def run(self, tickets: list[Ticket]) -> None:
        self.start(tickets)
        assert await asyncio.wait_for(self.over.get(), 60) is tickets
        assert self.flusher.idle


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), 100))


def test_few_logs_are_synced_each_by_itself() -> None:
    async def scenario() -> None:
        rounds = Rounds(lambda: None)
        tickets = [Ticket() for _ in range(FEW)]
        await rounds.run(tickets)
        assert [ticket.syncs for ticket in tickets] == [1] * FEW
        assert rounds.everything_syncs == 0
        rounds.flusher.close()

    on_a_loop(scenario)


def test_many_logs_are_synced_at_once() -> None:
    async def scenario() -> None:
        rounds = Rounds(lambda: None)
        rounds.flusher.one_sync_ms = 1000.0
        tickets = [Ticket() for _ in range(100)]
        await rounds.run(tickets)
        assert rounds.everything_syncs == 1
        assert not any(ticket.syncs for ticket in tickets)
        rounds.flusher.close()

    on_a_loop(scenario)


def test_many_logs_are_synced_each_by_itself_where_a_common_sync_cannot_be_trusted() -> None:
    async def scenario() -> None:
        rounds = Rounds(None)
        tickets = [Ticket() for _ in range(100)]
        await rounds.run(tickets)
        assert [ticket.syncs for ticket in tickets] == [1] * 100
        rounds.flusher.close()

    on_a_loop(scenario)


def test_a_common_sync_that_hangs_is_overtaken_and_not_asked_again_until_it_is_back() -> None:
    async def scenario() -> None:
        neighbour_is_written = threading.Event()
        rounds = Rounds(lambda: cast("None", neighbour_is_written.wait(60)))
        for _ in range(3):
            tickets = [Ticket() for _ in range(20)]
            await rounds.run(tickets)
            assert [ticket.syncs for ticket in tickets] == [1] * 20
        assert rounds.everything_syncs == 1
        neighbour_is_written.set()
        rounds.flusher.close()
        assert rounds.over.empty(), "the late end of the first round ends nothing a second time"

    on_a_loop(scenario)


def test_a_slow_common_sync_is_avoided_and_tried_again_later() -> None:
    async def scenario() -> None:
        rounds = Rounds(lambda: None)
        rounds.flusher.everything_ms = 100 * rounds.flusher.one_sync_ms
        ways = []
        for _ in range(200):
            rounds.flusher.one_sync_ms = 0.1
            before = rounds.everything_syncs
            await rounds.run([Ticket() for _ in range(20)])
            ways.append(rounds.everything_syncs - before)
        assert ways[0] == 0
        assert any(ways)
        rounds.flusher.close()

    on_a_loop(scenario)


def test_while_a_round_is_under_way_the_flusher_is_not_idle() -> None:
    async def scenario() -> None:
        rounds = Rounds()
        gate = threading.Event()
        tickets = [Ticket(gate)]
        rounds.start(tickets)
        await asyncio.sleep(0.01)
        assert not rounds.flusher.idle
        assert rounds.over.empty()
        gate.set()
        assert await rounds.over.get() is tickets
        assert rounds.flusher.idle
        rounds.flusher.close()

    on_a_loop(scenario)


@pytest.mark.parametrize("count", [1, 50])
def test_a_failed_sync_acknowledges_nothing_and_ends_the_flusher(count: int) -> None:
    async def scenario() -> None:
        failure = SyncFailure("fdatasync of a.log failed: Input/output error")
        rounds = Rounds(None)
        rounds.start([*[Ticket() for _ in range(count - 1)], Ticket(failure=failure)])
        assert await rounds.failures.get() is failure
        rounds.flusher.close()
        assert rounds.over.empty()
        assert rounds.failures.empty()
        assert not rounds.flusher.idle

    on_a_loop(scenario)


def test_logs_of_other_directories_are_acknowledged_when_one_directory_is_lost() -> None:
    async def scenario() -> None:
        lost: list[Any] = []

        def survived(ticket: FlushTicket, failure: StorageFailure) -> bool:
            lost.append(ticket)
            return True

        rounds = Rounds(None, survived=survived)
        tickets = [Ticket(failure=SyncFailure("failed") if number % 3 == 0 else None) for number in range(20)]
        rounds.start(tickets)
        synced = await asyncio.wait_for(rounds.over.get(), 60)
        assert synced == [ticket for ticket in tickets if ticket.failure is None]
        assert set(lost) == {ticket for ticket in tickets if ticket.failure is not None}
        await rounds.run([Ticket()])
        assert rounds.failures.empty()
        rounds.flusher.close()

    on_a_loop(scenario)


def test_a_failed_common_sync_acknowledges_nothing_even_if_each_log_could_be_synced() -> None:
    async def scenario() -> None:
        gate = threading.Event()
        failure = SyncFailure("syncfs failed")

        def fail() -> None:
            raise failure

        rounds = Rounds(fail)
        rounds.start([Ticket(gate) for _ in range(20)])
        assert await rounds.failures.get() is failure
        gate.set()
        rounds.flusher.close()
        assert rounds.over.empty()

    on_a_loop(scenario)


def test_closing_waits_for_the_round_that_is_under_way() -> None:
    async def scenario() -> None:
        gate = threading.Event()
        rounds = Rounds()
        tickets = [Ticket(gate)]
        rounds.start(tickets)
        threading.Timer(0.05, gate.set).start()
        rounds.flusher.close()
        assert rounds.over.get_nowait() is tickets

    on_a_loop(scenario)


def test_in_memory_a_round_is_over_at_once() -> None:
    over: list[Any] = []
    failures: list[Exception] = []
    flusher = ImmediateFlusher(over.append, failures.append)
    tickets = [Ticket(), Ticket()]
    flusher.start(cast("list[FlushTicket]", tickets))
    assert over == [tickets]
    assert [ticket.syncs for ticket in tickets] == [1, 1]
    failure = SyncFailure("no")
    flusher.start(cast("list[FlushTicket]", [Ticket(failure=failure)]))
    assert failures == [failure]
    assert len(over) == 1
