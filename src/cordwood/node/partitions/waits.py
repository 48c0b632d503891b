"""The acks and fetches that wait for one partition.

Five kinds of waiting exist, each woken by exactly one event: acks wait for this replica's disk, acks (and
coordinators) wait for the high watermark, deletions of records wait for the log starts of followers, fetches of clients
wait for records below the high watermark, and fetches of followers wait for the log's end. A follower whose clients
wait for the high watermark waits for that, too. `Acks` ends acks at their deadlines.
"""

from collections import deque
from collections.abc import Callable, Iterator

from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment

WOKEN_AT_ONCE = 50
"""Fetches of clients that look again in one turn when a partition moves: a look and an answer take some 25 us. More of
them take turns: twenty thousand fetches that wait for one partition made each Produce to it take 150 ms."""

Done = Callable[[ErrorCode], None]


class WaitingAck:
    """A callback for an offset, called once: at the offset, at the deadline, or when the partition goes away."""

    __slots__ = ("deadline_ms", "done", "needs_enough", "offset")

    def __init__(self, offset: int, deadline_ms: int, done: Done, *, needs_enough: bool = False) -> None:
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.done = done
        self.needs_enough = needs_enough
        """True if the wait ends when the in-sync set has too few members, or the leader may have been replaced."""


class Waits:
    __slots__ = ("_moved_again", "_take_turns", "_waking", "committed", "durable", "followers", "readers", "starts")

    def __init__(self, take_turns: Callable[[Iterator[None]], None]) -> None:
        """`take_turns` takes each step of some work in a separate turn."""
        self._take_turns = take_turns
        self._waking = False
        """True if readers are being woken in turns."""
        self._moved_again = False
        """True if the partition moved while readers were woken: all of them look once more."""
        self.durable: deque[WaitingAck] = deque()
        self.committed: deque[WaitingAck] = deque()
        self.starts: deque[WaitingAck] = deque()
        """Waits of DeleteRecords: the offset is the log start that every electable replica has to save."""
        self.readers: dict[object, Callable[[Moment], None]] = {}
        """What fetches of clients do when the high watermark moves."""
        self.followers: dict[object, Callable[[Moment], None]] = {}
        """What fetches of followers do when the log grows."""

    # Acks

    def when_durable(self, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls `done` once the record at `offset` is on this replica's disk."""
        self.durable.append(WaitingAck(offset, deadline_ms, done))

    def when_committed(self, offset: int, deadline_ms: int, done: Done, *, needs_enough: bool = False) -> None:
        """Calls `done` once every in-sync replica has the record at `offset`. `needs_enough`: the wait ends with
        NOT_ENOUGH_REPLICAS_AFTER_APPEND if the in-sync set gets too small."""
        self.committed.append(WaitingAck(offset, deadline_ms, done, needs_enough=needs_enough))

    def when_starts_reach(self, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls `done` once every replica that may be elected has saved a log start of at least `offset`."""
        self.starts.append(WaitingAck(offset, deadline_ms, done))

    def durable_up_to(self, end_offset: int) -> None:
        """Ends the waits below the log's new durable end."""
        waiting = self.durable
        while waiting and waiting[0].offset < end_offset:
            waiting.popleft().done(ErrorCode.NONE)

    def committed_up_to(self, high_watermark: int, now: Moment) -> None:
        """Ends the waits below the new high watermark, and wakes readers."""
        waiting = self.committed
        while waiting and waiting[0].offset < high_watermark:
            waiting.popleft().done(ErrorCode.NONE)
        if self.readers:
            self.wake_readers(now)

    def starts_saved(self, start: int) -> None:
        """Ends the waits for log starts up to this one."""
        _end(self.starts, lambda ack: ack.offset <= start, ErrorCode.NONE)

    def end_producers(self, error: ErrorCode) -> None:
        """Ends the waits of producers for all replicas; coordinators wait on."""
        _end(self.committed, lambda ack: ack.needs_enough, error)

    def expire(self, now: Moment) -> bool:
        """Answers acks past their deadline with REQUEST_TIMED_OUT. True if other acks still wait."""
        for waiting in (self.durable, self.committed, self.starts):
            _end(waiting, lambda ack: ack.deadline_ms <= now.boot_ms, ErrorCode.REQUEST_TIMED_OUT)
        return bool(self.durable or self.committed or self.starts)

    def take_acks(self) -> list[WaitingAck]:
        """Takes all waiting acks away, for a caller that ends them."""
        taken = [*self.durable, *self.committed, *self.starts]
        self.durable.clear()
        self.committed.clear()
        self.starts.clear()
        return taken

    # Fetches

    def wake_everybody(self, now: Moment) -> None:
        """Makes all waiting fetches look again: records were removed, or the leadership ended."""
        self.wake_readers(now)
        self.wake_followers(now)

    def wake_readers(self, now: Moment) -> None:
        """Makes waiting fetches of clients look again, many of them in turns."""
        if self._waking:
            self._moved_again = True
            return
        readers = list(self.readers.items())
        for _, look in readers[:WOKEN_AT_ONCE]:
            look(now)
        if len(readers) > WOKEN_AT_ONCE:
            self._waking = True
            self._take_turns(self._wake_in_steps(readers[WOKEN_AT_ONCE:], now))

    def _wake_in_steps(self, readers: list[tuple[object, Callable[[Moment], None]]], now: Moment) -> Iterator[None]:
        while readers:
            for number, (reader, look) in enumerate(readers, 1):
                # A reader that no longer waits has its answer, or its connection is closed.
                if reader in self.readers:
                    look(now)
                if not number % WOKEN_AT_ONCE:
                    yield
            yield
            readers = list(self.readers.items()) if self._moved_again else []
            self._moved_again = False
        self._waking = False

    def wake_followers(self, now: Moment) -> None:
        for look in list(self.followers.values()):
            look(now)


def _end(waiting: deque[WaitingAck], ends: Callable[[WaitingAck], bool], error: ErrorCode) -> None:
    """Takes the acks that end out of the queue, then answers them: an answer may begin another wait."""
    ended = [ack for ack in waiting if ends(ack)]
    if ended:
        kept = [ack for ack in waiting if not ends(ack)]
        waiting.clear()
        waiting.extend(kept)
    for ack in ended:
        ack.done(error)
