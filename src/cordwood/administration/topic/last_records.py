"""Finds the offset at which the last N records of each partition begin.

Offsets do not count records: transaction markers, aborted records and gaps left by compaction take offsets, too. So
each partition is read backwards, in growing windows, until it has shown N records.
"""

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from cordwood.administration.connection import Connection

_BATCH = 500
_POLL_S = 0.2
_GROWTH = 4


def last_records(
    connection: "Connection",
    consumer: "Consumer",
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    number: int,
) -> dict[int, int]:
    """The offset of each partition at which its last `number` records begin, as the consumer sees records; the start of
    a partition that has fewer. The consumer must report the ends of partitions, and has no assignment afterwards."""
    found = dict(ends)
    window = number
    unfinished = [index for index in starts if number and starts[index] < ends[index]]
    while unfinished:
        froms = {index: max(starts[index], ends[index] - window) for index in unfinished}
        seen = _read(connection, consumer, topic, froms, ends, number)
        for index in list(unfinished):
            if len(seen[index]) == number or froms[index] == starts[index]:
                found[index] = seen[index][0] if len(seen[index]) == number else starts[index]
                unfinished.remove(index)
        window *= _GROWTH
    return found


def _read(
    connection: "Connection",
    consumer: "Consumer",
    topic: str,
    froms: Mapping[int, int],
    ends: Mapping[int, int],
    number: int,
) -> dict[int, deque[int]]:
    """The offsets of the last records of each partition, at most `number`, between `froms` and `ends`."""
    from confluent_kafka import KafkaError, TopicPartition

    from cordwood.administration.topic.reading import damaged, reads_on

    seen: dict[int, deque[int]] = {index: deque(maxlen=number) for index in froms}
    consumer.assign([TopicPartition(topic, index, offset) for index, offset in froms.items()])
    unread = set(froms)
    heard_at = time.monotonic()
    while unread:
        messages = connection.call(lambda: consumer.consume(_BATCH, timeout=_POLL_S))
        if messages:
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > connection.timeout_s:
            raise connection.no_answer()
        for message in messages:
            index, offset, error = message.partition(), message.offset(), message.error()
            assert index is not None
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(index)
                elif error.code() in (KafkaError._BAD_MSG, KafkaError.INVALID_MSG):
                    raise damaged(connection, message)
                elif not reads_on(error):
                    raise connection.failure_of(error)
                continue
            assert offset is not None
            if offset < ends[index]:
                seen[index].append(offset)
            if offset + 1 >= ends[index]:
                unread.discard(index)
    consumer.unassign()
    return seen
