"""Appends of transactional batches: the coordinator vouches for the first batch in each partition.

Each request asks as soon as it comes, and requests of one transactional id are appended in the order of arrival, so
that sequences stay in order. The requests of a client that sends one for each partition are all in one flush round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.node.coordinators.coordinator_log import Writer
from cordwood.node.coordinators.verification import Verdict, Verification

ADDS_FROM_VERSION = 12
"""From this version of Produce on, writing to a partition adds it to the transaction (KIP-890)."""

_ABORTABLE_FROM_VERSION = 11
_NOT_NOW = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class _Waiting:
    """A request between its question and its turn."""

    __slots__ = ("start", "verdict")

    def __init__(self, start: Callable[[Verdict], None]) -> None:
        self.start = start
        self.verdict: Verdict | None = None


class TransactionalAppends:
    """Requests of one transactional id have their turns one after the other, in the order of arrival.

    A request has its turn when it has its verdict and all earlier ones are through. Then it waits in `_ready` for its
    start. Starts never nest: a request that is through at once puts the next request of its id at the end of `_ready`,
    and the first start goes on with that one.
    """

    def __init__(self, verification: Verification) -> None:
        self._verification = verification
        self._queues: dict[str, deque[_Waiting]] = {}
        """Requests by transactional id, in the order of arrival; ids without requests have no queue."""
        self._ready: deque[_Waiting] = deque()
        """Requests that have their turn and are not started yet, behind the one that is being started."""

    def busy(self, transactional_id: str) -> bool:
        return transactional_id in self._queues

    def in_turn(
        self,
        transactional_id: str,
        ask: Callable[[Callable[[Verdict], None]], None],
        start: Callable[[Verdict], None],
    ) -> None:
        """Asks at once. Calls `start` with the verdict when earlier requests of the same id are through; `start` must
        lead to a call of `through`."""
        waiting = _Waiting(start)
        queue = self._queues.setdefault(transactional_id, deque())
        queue.append(waiting)

        def answered(verdict: Verdict) -> None:
            waiting.verdict = verdict
            if queue[0] is waiting:
                self._start(waiting)

        ask(answered)

    def through(self, transactional_id: str) -> None:
        queue = self._queues[transactional_id]
        queue.popleft()
        if not queue:
            del self._queues[transactional_id]
        elif queue[0].verdict is not None:
            self._start(queue[0])

    def _start(self, waiting: _Waiting) -> None:
        ready = self._ready
        ready.append(waiting)
        if len(ready) > 1:
            return
        try:
            while ready:
                verdict = ready[0].verdict
                assert verdict is not None
                ready[0].start(verdict)
                ready.popleft()
        finally:
            ready.clear()

    def verify(
        self,
        transactional_id: str,
        writers: dict[TopicPartition, Writer],
        version: int,
        done: Callable[[Verdict], None],
    ) -> None:
        """Calls back with the verdict about each partition, in error codes of this version of Produce."""
        by_writer: dict[Writer, list[TopicPartition]] = {}
        for partition, writer in writers.items():
            by_writer.setdefault(writer, []).append(partition)
        if len(by_writer) != 1:
            # One transactional id has one producer.
            done(lambda: dict.fromkeys(writers, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
            return
        ((writer, partitions),) = by_writer.items()

        def answered(verdict: Verdict) -> None:
            done(lambda: {partition: _told(error, version) for partition, error in verdict().items()})

        self._verification.ask(transactional_id, writer, partitions, answered, add=version >= ADDS_FROM_VERSION)


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """The error code for the producer: old clients know few of the coordinator's errors, and retry
    NOT_ENOUGH_REPLICAS."""
    if error in _NOT_NOW:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM_VERSION:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return error
