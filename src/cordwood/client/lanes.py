"""A lane: the batches of one partition on their way to the log, in order, whatever fails in between.

A lane has batches that wait, batches that are on their way, and batches that have to be sent again. Several batches of
an idempotent producer may be on their way: the broker takes batches only in the order of their sequence numbers, and
knows duplicates. Both hold only once the broker has stored a batch: Kafka lets an unknown producer begin with any
sequence number, and would take a second batch in place of a refused first. So the first batch is sent alone. Batches
without a producer are sent one at a time: only waiting keeps their order.
"""

from collections import deque
from typing import Final, NamedTuple

from cordwood.client.answers import Produced
from cordwood.client.retries import PASSING
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.records.batch import HEADER_SIZE, MAGIC, Buffer, read_header

MAX_BATCHES_ON_THEIR_WAY: Final = 5
"""The most unanswered batches of an idempotent producer in one partition: a broker remembers this many to find
duplicates."""


class OutgoingBatch(NamedTuple):
    data: Buffer
    offsets: int
    """The number of offsets that the batch takes."""
    producer_id: int
    producer_epoch: int

    @classmethod
    def of(cls, data: Buffer, partition: TopicPartition) -> "OutgoingBatch":
        """Reads the header. Raises ValueError if the bytes are not exactly one batch."""
        if len(data) < HEADER_SIZE:
            raise ValueError(f"{len(data)} bytes for {partition} are not a batch")
        header = read_header(data)
        if header.magic != MAGIC or header.size != len(data):
            raise ValueError(f"{len(data)} bytes for {partition} are not one batch of format {MAGIC}")
        return cls(data, header.last_offset_delta + 1, header.producer_id, header.producer_epoch)


class Lane:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[OutgoingBatch] = deque()
        self._on_their_way = 0
        self._known = False
        """True once the broker has stored a batch of this lane."""
        self._again: list[OutgoingBatch] = []
        self._base_offset: int | None = None
        self._next_offset = -1

    @property
    def may_send(self) -> bool:
        if not self.waiting or self._again:
            return False
        together = self._known and self.waiting[0].producer_id >= 0
        return self._on_their_way < (MAX_BATCHES_ON_THEIR_WAY if together else 1)

    @property
    def is_done(self) -> bool:
        return not (self.waiting or self._on_their_way or self._again)

    def sent(self) -> OutgoingBatch:
        """Takes the next batch, which counts as on its way from now on."""
        self._on_their_way += 1
        return self.waiting.popleft()

    def answered(self, batch: OutgoingBatch, code: ErrorCode, base_offset: int) -> bool:
        """Takes the broker's answer to a batch, in the order of sending. False: the batch failed for good."""
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._on_their_way -= 1
            self._known = True
            self._stored(base_offset, batch.offsets)
        elif code in PASSING or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._again):
            # The batch is out of order only because an earlier batch has to be sent again.
            self.lost(batch)
        else:
            return False
        self._send_again_if_alone()
        return True

    def lost(self, batch: OutgoingBatch) -> None:
        """Marks a batch with an unknown outcome, which has to be sent again."""
        self._on_their_way -= 1
        self._again.append(batch)

    def _stored(self, base_offset: int, offsets: int) -> None:
        if self._base_offset is None:
            self._base_offset = base_offset
        self._next_offset = base_offset + offsets if base_offset >= 0 else -1

    def _send_again_if_alone(self) -> None:
        # Batches are sent again only after the last answer: a new leader would get them in a different order.
        if self._again and not self._on_their_way:
            self.waiting.extendleft(reversed(self._again))
            self._again.clear()

    def settle(self) -> None:
        """Ends a series of `lost`: all batches of the broken connection have been reported."""
        self._send_again_if_alone()

    @property
    def produced(self) -> Produced:
        return Produced(-1 if self._base_offset is None else self._base_offset, self._next_offset)
