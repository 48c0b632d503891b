"""Group commit: makes dirty logs durable, round by round.

Logs that become dirty during a round wait for the next round: the slower the disk, the larger the groups. A few dirty
logs are synced one by one (fdatasync); many by one syncfs, four times as fast for a hundred files. syncfs also writes
the dirty data of other programs on the filesystem, so it is hedged: if it takes longer than syncing one by one would
have, the syncs of single logs are started too, and the first to finish ends the round. A round therefore never takes
more than about twice the time of the faster way. docs/decisions/group-commit.md has the numbers.

A failed sync is reported once and ends the flusher: nothing is acknowledged after it. With several data directories the
logs in the others go on.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from cordwood.broker.machine.threads import Workers
from cordwood.metrics.histogram import Histogram
from cordwood.model.errors import StorageFailure

if TYPE_CHECKING:
    from cordwood.log.upkeep.flushing import FlushTicket

FEW: Final = 4
"""Up to this many logs are synced one by one, which is as fast as syncfs and disturbs no other program."""

LEAST_HEDGE_MS: Final = 5.0
WORTH_A_THREAD_MS: Final = 0.25
"""Each thread gets a part of a round that takes about this long: waking a thread costs a tenth of the time."""

_WEIGHT: Final = 0.2
_FORGIVENESS: Final = 0.97
"""Each round without syncfs lowers its measured time by this factor, so that a slow syncfs is tried again."""

Flushed: TypeAlias = Callable[[list["FlushTicket"]], None]
Failed = Callable[[Exception], None]


class RoundFlusher(Protocol):
    """Takes one round of tickets at a time; calls `flushed` or `failed` in the loop when the round is over."""

    @property
    def idle(self) -> bool: ...

    def start(self, tickets: list["FlushTicket"]) -> None: ...

    def close(self) -> None: ...


class CountingFlusher(RoundFlusher, Protocol):
    """A flusher that counts rounds and logs for metrics."""

    round_times: Histogram
    logs_synced: int


class ImmediateFlusher:
    """The flusher of the filesystem in memory, whose sync costs nothing."""

    idle = True

    def __init__(self, flushed: Flushed, failed: Failed) -> None:
        self._flushed = flushed
        self._failed = failed
        self.round_times = Histogram()
        self.logs_synced = 0

    def start(self, tickets: list["FlushTicket"]) -> None:
        try:
            for ticket in tickets:
                ticket.sync()
        except Exception as failure:
            self._failed(failure)
        else:
            self._flushed(tickets)

    def close(self) -> None:
        """Does nothing: no round is ever under way."""


Synced: TypeAlias = tuple[float, list[tuple["FlushTicket", StorageFailure]]]
"""Milliseconds for each log of a part of a round, 0 if the round ended earlier, and the logs that failed."""


class _Round:
    __slots__ = ("failed", "parts_left", "started_s", "tickets")

    def __init__(self, tickets: list["FlushTicket"], started_s: float) -> None:
        self.tickets = tickets
        self.started_s = started_s
        self.parts_left = 0
        self.failed: list[FlushTicket] = []
        """Tickets of data directories that are lost."""


class Flusher:
    """Syncs dirty logs in separate threads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        flushed: Flushed,
        failed: Failed,
        *,
        sync_everything: Callable[[], None] | None,
        threads: int = 8,
        survived: Callable[["FlushTicket", StorageFailure], bool] = lambda ticket, failure: False,
    ) -> None:
        """`sync_everything` syncs the whole filesystem; None where syncfs cannot be trusted. `survived` is called in
        the loop for a log that cannot be synced: True if the others go on."""
        self._survived = survived
        self._loop = loop
        self._flushed = flushed
        self._failed = failed
        self._sync_everything = sync_everything
        self._thread_count = threads
        self._one_by_one = Workers(loop, "sync", threads)
        self._everything = Workers(loop, "syncfs", 1)
        self._round: _Round | None = None
        self.idle = True
        """True if a round may begin."""
        self._hedge: asyncio.TimerHandle | None = None
        self._broken = False
        self.round_times = Histogram()
        self.logs_synced = 0
        self.one_sync_ms = 0.1
        """The average time to sync one log."""
        self.everything_ms = 0.0
        """The average time to sync the filesystem; falls while syncfs is not tried."""

    def start(self, tickets: list["FlushTicket"]) -> None:
        assert self.idle
        assert tickets
        self.idle = False
        self._round = current = _Round(tickets, time.perf_counter())
        if self._should_sync_everything(len(tickets)):
            assert self._sync_everything is not None
            self._everything.submit(self._sync_everything, lambda result: self._everything_synced(current, result))
            after_ms = max(LEAST_HEDGE_MS, len(tickets) * self.one_sync_ms)
            self._hedge = self._loop.call_later(after_ms / 1000, self._sync_one_by_one, current)
        else:
            self._sync_one_by_one(current)

    def close(self) -> None:
        """Waits for the round under way, and calls `flushed` if the round succeeds."""
        self._everything.close()
        self._one_by_one.close()
        if self._hedge is not None:
            self._hedge.cancel()

    def _should_sync_everything(self, count: int) -> bool:
        if self._sync_everything is None or count <= FEW or self._everything.under_way:
            return False
        if self.everything_ms <= count * self.one_sync_ms:
            return True
        self.everything_ms *= _FORGIVENESS
        return False

    def _sync_one_by_one(self, current: _Round) -> None:
        tickets = current.tickets
        self._hedge = None
        shares = min(len(tickets), self._thread_count, 1 + int(len(tickets) * self.one_sync_ms / WORTH_A_THREAD_MS))
        current.parts_left = shares
        for share in range(shares):
            part = tickets[share::shares]
            self._one_by_one.submit(
                lambda part=part: self._sync_part(current, part),  # type: ignore[misc]
                lambda result: self._part_synced(current, result),
            )

    def _sync_part(self, current: _Round, part: list["FlushTicket"]) -> Synced:
        """Syncs a part of a round, in a thread."""
        started = time.perf_counter()
        failed: list[tuple[FlushTicket, StorageFailure]] = []
        for ticket in part:
            if self._round is not current:
                return 0.0, failed
            try:
                ticket.sync()
            except StorageFailure as failure:
                failed.append((ticket, failure))
        return (time.perf_counter() - started) * 1000 / len(part), failed

    def _part_synced(self, current: _Round, result: Synced | Exception) -> None:
        if isinstance(result, Exception):
            self._break(result)
            return
        took_ms, failed = result
        for ticket, failure in failed:
            if self._broken or not self._survived(ticket, failure):
                self._break(failure)
                return
            current.failed.append(ticket)
        current.parts_left -= 1
        if took_ms:
            self.one_sync_ms += _WEIGHT * (took_ms - self.one_sync_ms)
        if current.parts_left == 0:
            self._over(current)

    def _everything_synced(self, current: _Round, result: Exception | None) -> None:
        if isinstance(result, Exception):
            self._break(result)
            return
        took_ms = (time.perf_counter() - current.started_s) * 1000
        self.everything_ms += _WEIGHT * (took_ms - self.everything_ms) if self.everything_ms else took_ms
        self._over(current)

    def _over(self, current: _Round) -> None:
        if self._round is not current or self._broken:
            return
        self._round = None
        self.idle = True
        self.round_times.observe(time.perf_counter() - current.started_s)
        self.logs_synced += len(current.tickets)
        if self._hedge is not None:
            self._hedge.cancel()
            self._hedge = None
        tickets = current.tickets
        if current.failed:
            tickets = [ticket for ticket in tickets if ticket not in current.failed]
        self._flushed(tickets)

    def _break(self, failure: Exception) -> None:
        if not self._broken:
            self._broken = True
            self.idle = False
            self._failed(failure)
