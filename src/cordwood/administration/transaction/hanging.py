"""Transactions that hang: they are open in a partition, and no coordinator will end them.

Readers of committed records wait for the end of the first open transaction of a partition. Its coordinator aborts it at
its timeout. A transaction hangs if the coordinator does not, or has forgotten it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cordwood.administration.asking import ask
from cordwood.administration.brokers import brokers_that_take_part
from cordwood.administration.connection import Connection
from cordwood.administration.topic.by_state import all_partitions
from cordwood.administration.transaction.view import ENDING, listed_of_all
from cordwood.client.settings import Address
from cordwood.model.failure import Failure
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.describe_producers import DescribeProducers

PARTITIONS_AT_ONCE = 1_000
GRACE_MS = 60_000
"""The time after its timeout in which a transaction does not hang yet: a coordinator looks for timeouts now and then,
and markers take their time."""


class OpenInPartition(NamedTuple):
    """A transaction that is open in a partition, as the partition's leader knows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    coordinator_epoch: int = -1
    """The epoch of the coordinator that sent the producer's last marker to the partition; -1: there was none."""


class Hanging(NamedTuple):
    topic: str
    partition: int
    producer_id: int
    start_offset: int
    idle_ms: int | None
    """The time since the producer last wrote into the partition."""
    transactional_id: str | None
    """None: no coordinator knows the producer."""
    why: str


def hanging(connection: Connection) -> list[Hanging]:
    """The transactions that hang, by partition.

    Partitions are asked first, then coordinators, then partitions again: a transaction that ended in between is seen by
    its end, and a later one of the same producer by its other start.
    """
    suspects = {}
    opened = _open_in_partitions(connection)
    if not opened:
        return []
    transactions, silent = listed_of_all(connection)
    known = {each["producer_id"]: each for each in transactions}
    now_ms = int(time.time() * 1000)
    for each in opened:
        why = why_hanging(each, known.get(each.producer_id), now_ms, silent)
        if why:
            suspects[each] = why
    still = {each[:5] for each in _open_in_partitions(connection)} if suspects else set()
    return [
        Hanging(
            each.topic,
            each.partition,
            each.producer_id,
            each.start_offset,
            None if each.last_timestamp_ms < 0 else max(0, now_ms - each.last_timestamp_ms),
            known.get(each.producer_id, {}).get("transactional_id"),
            why,
        )
        for each, why in sorted(suspects.items())
        if each[:5] in still
    ]


def why_hanging(opened: OpenInPartition, known: dict[str, Any] | None, now_ms: int, silent: Sequence[int] = ()) -> str:
    """The reason why no coordinator will end a transaction; empty: one will. `known`: the answer of its coordinator;
    `silent`: the partitions of __transaction_state whose coordinators do not answer."""
    idle_ms = now_ms - opened.last_timestamp_ms if opened.last_timestamp_ms >= 0 else GRACE_MS
    if known is None and idle_ms < GRACE_MS:
        return ""
    if known is None:
        but = f", but {TRANSACTION_STATE_TOPIC} {', '.join(map(str, silent))} has no coordinator" if silent else ""
        return f"no coordinator knows its producer{but}"
    if known["state"] not in ENDING:
        return f"its coordinator ended it ({known['state']}), and no marker came" if idle_ms >= GRACE_MS else ""
    open_for_ms = known["open_for_ms"]
    if open_for_ms is not None and open_for_ms > known["timeout_ms"] + GRACE_MS:
        return f"its coordinator has not ended it ({known['state']}), though its timeout is over"
    return ""


def _open_in_partitions(connection: Connection) -> list[OpenInPartition]:
    """The open transactions of all partitions. A broker that does not answer is left out."""
    led: dict[int, list[tuple[str, int]]] = {}
    for each in all_partitions(connection):
        led.setdefault(each.leader, []).append((each.topic, each.partition))
    found: list[OpenInPartition] = []
    for node, address in brokers_that_take_part(connection).items():
        mine = led.get(node, [])
        for first in range(0, len(mine), PARTITIONS_AT_ONCE):
            try:
                places = mine[first : first + PARTITIONS_AT_ONCE]
                found += open_in(producers_of(address, places, connection.timeout_s))
            except Failure:
                break
    return found


def producers_of(address: Address, places: list[tuple[str, int]], timeout_s: float) -> DescribeProducers.Response:
    """A broker's answer about the producers that wrote to these partitions."""
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    values = {"topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]}
    return ask(address, ApiKey.DESCRIBE_PRODUCERS, 0, values, timeout_s)


def open_in(answer: DescribeProducers.Response) -> list[OpenInPartition]:
    """The open transactions in the partitions that the broker could describe."""
    return [
        OpenInPartition(
            told.name,
            partition.partition_index,
            producer.producer_id,
            producer.producer_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
            producer.coordinator_epoch,
        )
        for told in answer.topics
        for partition in told.partitions
        if not partition.error_code
        for producer in partition.active_producers
        if producer.current_txn_start_offset >= 0
    ]
