"""Appends of transactional batches: the coordinator vouches for the first batch in each partition.

Later batches of a producer wait while the coordinator is asked about earlier ones, so that sequences stay in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.node.coordinators.coordinator_log import Writer
from cordwood.node.coordinators.verification import Verification, Verified

ADDS_FROM_VERSION = 12
"""From this version of Produce on, writing to a partition adds it to the transaction (KIP-890)."""

_ABORTABLE_FROM_VERSION = 11
_NOT_NOW = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class TransactionalAppends:
    """Requests of one transactional id have their turns one after the other, in the order of arrival.

    A request whose turn has come waits in `_ready` for its start. Starts never nest: a request that is through at once
    puts the next of its id at the end of `_ready`, and the start that came first goes on with it.
    """

    def __init__(self, verification: Verification) -> None:
        self._verification = verification
        self._queues: dict[str, deque[Callable[[], None]]] = {}
        """Requests by transactional id, the one that has its turn first; ids without requests have no queue."""
        self._ready: deque[Callable[[], None]] = deque()
        """Requests that have their turn and are not started yet, behind the one that is being started."""

    def busy(self, transactional_id: str) -> bool:
        return transactional_id in self._queues

    def in_turn(self, transactional_id: str, start: Callable[[], None]) -> None:
        """Calls `start` when earlier requests of the same id are through. `start` must lead to a call of `through`."""
        queue = self._queues.setdefault(transactional_id, deque())
        queue.append(start)
        if len(queue) == 1:
            self._start(start)

    def through(self, transactional_id: str) -> None:
        queue = self._queues[transactional_id]
        queue.popleft()
        if queue:
            self._start(queue[0])
        else:
            del self._queues[transactional_id]

    def _start(self, start: Callable[[], None]) -> None:
        ready = self._ready
        ready.append(start)
        if len(ready) > 1:
            return
        try:
            while ready:
                ready[0]()
                ready.popleft()
        finally:
            ready.clear()

    def verify(
        self,
        transactional_id: str,
        writers: dict[TopicPartition, Writer],
        version: int,
        done: Verified,
    ) -> None:
        """Calls back with each partition's error code for this version of Produce. The codes hold within the event."""
        by_writer: dict[Writer, list[TopicPartition]] = {}
        for partition, writer in writers.items():
            by_writer.setdefault(writer, []).append(partition)
        if len(by_writer) != 1:
            # One transactional id has one producer.
            done(dict.fromkeys(writers, ErrorCode.INVALID_PRODUCER_ID_MAPPING if by_writer else ErrorCode.NONE))
            return
        ((writer, partitions),) = by_writer.items()

        def answered(errors: dict[TopicPartition, ErrorCode]) -> None:
            done({partition: _told(error, version) for partition, error in errors.items()})

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
