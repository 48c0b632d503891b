"""The batches that a reader of committed records skips: the rule that every Kafka consumer follows."""

from collections import deque
from collections.abc import Iterable

from cordwood.records.batch import BatchHeader, Buffer
from cordwood.records.control import read_transaction_marker


class AbortedRecords:
    """Follows the batches of one answer, in order. An aborted transaction reaches from its first offset to its
    producer's next marker: the same producer may commit records behind the marker."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted`: producer id and first offset of each aborted transaction that reaches into these batches."""
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._under_way: set[int] = set()

    def skips(self, header: BatchHeader, batch: Buffer) -> bool:
        """True if the records of this batch were aborted. Has to be called for every batch, in order."""
        if not self._to_come and not self._under_way:
            return False
        while self._to_come and self._to_come[0][1] <= header.last_offset:
            self._under_way.add(self._to_come.popleft()[0])
        if not header.transactional:
            return False
        if header.control:
            marker = read_transaction_marker(batch)
            if marker is not None and not marker.committed:
                self._under_way.discard(header.producer_id)
            return False
        return header.producer_id in self._under_way
