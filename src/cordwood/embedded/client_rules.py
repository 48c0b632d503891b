"""Rules that all Kafka clients follow: the partition of a key, and the batches that readers of committed records skip.

Keys are hashed by murmur2 with the Java client's seed, which librdkafka (`murmur2_random`), kafka-python, aiokafka and
franz-go share.
"""

from collections import deque
from collections.abc import Iterable

from cordwood.records.batch import BatchHeader, Buffer
from cordwood.records.control import read_transaction_marker

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        word = (word ^ (word >> 24)) * _M & _MASK
        mixed = (mixed * _M & _MASK) ^ word
    if whole != length:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    mixed = (mixed ^ (mixed >> 13)) * _M & _MASK
    return mixed ^ (mixed >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a key, as the Java client chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


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
