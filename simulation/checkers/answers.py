"""Checks every answer, at the moment when the node gives it, against the state of the node.

An acknowledgement is given only for records that are as safe as asked for; a reader gets no record beyond the high
watermark (or the last stable offset), no more bytes than it asked for, and no early answer without a reason. Promises
in answers go into the ledger.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from cordwood.model.errors import ErrorCode, StorageFailure
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId
from cordwood.node.node import Node
from cordwood.node.partitions.partition import Partition
from cordwood.records.batch import batches_in, crc_is_right, read_header
from cordwood.records.records import records_in
from cordwood.wire.apis import ApiKey
from simulation.checkers.fetched_positions import Commit, PositionsChecker
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Exchange
from simulation.world.ledger import Ledger

ALL_REPLICAS = -1
READ_COMMITTED = 1
LATEST, EARLIEST = -1, -2

Key = tuple[str, TopicId, int]
"""Group, topic and partition."""


class Durability(NamedTuple):
    """The meaning of an acknowledgement."""

    ack_durability: str
    flush_messages: int

    @property
    def means_disk(self) -> bool:
        """True if a record is synced before it is acknowledged: the topic demands it, or every message is flushed."""
        return self.ack_durability == "disk" or self.flush_messages == 1


class Answers:
    def __init__(self, ledger: Ledger, positions: PositionsChecker[Key]) -> None:
        self._ledger = ledger
        self._positions = positions
        self._node: Node | None = None
        self.stopping = False
        """True if the broker stops: it answers long polls at once."""
        self.cold_reads = False
        """True if places are looked up in threads: the reason for an urgent answer may be gone when it is given."""
        self._topic_ids: dict[Exchange, dict[str, TopicId]] = {}
        """The ids that topic names had when the node got the request."""
        self._durability: dict[Exchange, dict[tuple[TopicId, int], Durability]] = {}
        """The promises of a produce request's topics when the node got it."""
        self._settled: dict[Exchange, dict[Key, int]] = {}
        self._on_request: dict[ApiKey, Callable[[Exchange], None]] = {
            ApiKey.PRODUCE: self._produce_asked,
            ApiKey.DELETE_RECORDS: self._delete_records_asked,
            ApiKey.OFFSET_COMMIT: self._commit_asked,
            ApiKey.OFFSET_FETCH: self._positions_asked,
        }
        self._on_sent: dict[ApiKey, Callable[[Exchange], None]] = {
            ApiKey.PRODUCE: self._produced,
            ApiKey.FETCH: self._fetched,
            ApiKey.LIST_OFFSETS: self._listed,
            ApiKey.DELETE_RECORDS: self._records_deleted,
            ApiKey.OFFSET_COMMIT: self._committed,
            ApiKey.OFFSET_FETCH: self._positions_fetched,
        }

    def attach(self, node: Node | None) -> None:
        self._node = node
        self.stopping = False
        self._topic_ids.clear()
        self._durability.clear()
        self._settled.clear()

    def requested(self, exchange: Exchange) -> None:
        if (note := self._on_request.get(exchange.key)) is not None:
            note(exchange)

    def sent(self, exchange: Exchange) -> None:
        if (check := self._on_sent.get(exchange.key)) is not None:
            check(exchange)

    @property
    def _live(self) -> Node:
        assert self._node is not None
        return self._node

    def _partition(self, topic_id: TopicId, index: int) -> Partition | None:
        topic = self._live.image.topics_by_id.get(topic_id)
        return None if topic is None else self._live.hosted.get(topic.name, index)

    def _exists(self, topic_id: TopicId, index: int) -> bool:
        topic = self._live.image.topics_by_id.get(topic_id)
        return topic is not None and index < len(topic.partitions)

    # Produce

    def _produce_asked(self, exchange: Exchange) -> None:
        names = {topic.get("name") for topic in exchange.values["topic_data"]}
        self._topic_ids[exchange] = {name: self._live.image.topic_id(name) for name in sorted(filter(None, names))}
        self._durability[exchange] = {
            (topic_id, index): _durability(partition)
            for topic_id, index, _ in self._batches_in(exchange)
            if (partition := self._partition(topic_id, index)) is not None
        }

    def _batches_in(self, exchange: Exchange) -> list[tuple[TopicId, int, bytes]]:
        by_name = self._topic_ids[exchange]
        return [
            (topic.get("topic_id") or by_name.get(topic.get("name", ""), ZERO_TOPIC_ID), each["index"], each["records"])
            for topic in exchange.values["topic_data"]
            for each in topic["partition_data"]
        ]

    def _produced(self, exchange: Exchange) -> None:
        asked = self._batches_in(exchange)
        results = [each for topic in exchange.answer.responses for each in topic.partition_responses]
        if [each.index for each in results] != [index for _, index, _ in asked]:
            raise InvariantBroken(f"{exchange} asked for {asked} and was answered {results}")
        for (topic_id, index, batch), result in zip(asked, results, strict=True):
            if result.error_code == ErrorCode.NONE:
                self._acknowledged(exchange, topic_id, index, batch, result.base_offset)
        del self._topic_ids[exchange], self._durability[exchange]

    def _acknowledged(self, exchange: Exchange, topic_id: TopicId, index: int, batch: bytes, base_offset: int) -> None:
        partition = self._partition(topic_id, index)
        if partition is None:
            return  # the topic was deleted after the append was safe, while the request waited for other partitions
        replica = partition.replica
        # Records that were safe enough before a change of settings need not be so after it.
        durability = _durability(partition)
        on_disk = durability.means_disk and self._durability[exchange].get((topic_id, index)) == durability
        last_offset = base_offset + read_header(batch).last_offset_delta
        safe_end = replica.log.offsets.durable_end if on_disk else replica.log.offsets.end
        if exchange.values["acks"] == ALL_REPLICAS:
            safe_end = min(safe_end, replica.high_watermark)
        if last_offset >= safe_end:
            raise InvariantBroken(
                f"{exchange}: {partition.name} acknowledged offset {last_offset} and is safe only up to {safe_end}"
            )
        topic, _ = partition.name
        known = self._ledger.partition(topic_id, topic, index)
        self._ledger.promised(known, batch, base_offset, on_disk=on_disk)

    # Fetch

    def _fetched(self, exchange: Exchange) -> None:
        values, answer = exchange.values, exchange.answer
        found_bytes, batches, urgent = 0, 0, answer.error_code != 0
        for topic in answer.responses:
            for part in topic.partitions:
                partition = self._fetched_partition(exchange, topic, part.partition_index)
                urgent = urgent or part.error_code != 0 or getattr(part.diverging_epoch, "epoch", -1) >= 0
                count = self._check_records(exchange, partition, part)
                batches += count
                found_bytes += len(part.records or b"")
                if partition is not None and part.error_code == 0:
                    self._check_ends(exchange, partition, part)
        if batches > 1 and found_bytes > values["max_bytes"]:
            raise InvariantBroken(f"{exchange} asked for {values['max_bytes']} bytes and got {found_bytes}")
        waited_ms = exchange.replied_ms - exchange.handled_ms
        reads_something = bool(values["topics"]) or values.get("session_epoch", -1) > 0
        has_reason = urgent or self.stopping or self.cold_reads or not reads_something or _makes_way(exchange)
        wanted_bytes = min(values["min_bytes"], values["max_bytes"])
        if not has_reason and found_bytes < wanted_bytes and waited_ms < values["max_wait_ms"]:
            raise InvariantBroken(
                f"{exchange} got {found_bytes} bytes after {waited_ms} ms; it wanted {wanted_bytes} or to wait "
                f"{values['max_wait_ms']} ms"
            )

    def _fetched_partition(self, exchange: Exchange, topic: Any, index: int) -> Partition | None:
        if exchange.version >= 13:
            return self._partition(topic.topic_id or ZERO_TOPIC_ID, index)
        return self._partition(self._live.image.topic_id(topic.topic), index)

    def _check_records(self, exchange: Exchange, partition: Partition | None, part: Any) -> int:
        """Checks the batches of a partition; returns their number."""
        data, count, expected = part.records or b"", 0, None
        for position, header in batches_in(data):
            batch = data[position : position + header.size]
            if not crc_is_right(batch, 0, header.size):
                raise InvariantBroken(f"{exchange} got a batch at {header.base_offset} with a wrong CRC")
            if expected is not None and header.base_offset < expected:
                raise InvariantBroken(f"{exchange} got offset {header.base_offset} after {expected - 1}")
            expected, count = header.next_offset, count + 1
            if partition is not None:
                self._check_visible(exchange, partition, batch)
        if sum(header.size for _, header in batches_in(data)) != len(data):
            raise InvariantBroken(f"{exchange} got {len(data)} bytes that are not whole batches")
        return count

    def _check_visible(self, exchange: Exchange, partition: Partition, batch: bytes) -> None:
        replica, last_offset = partition.replica, read_header(batch).last_offset
        end = replica.high_watermark
        if exchange.values["isolation_level"] == READ_COMMITTED:
            end = replica.last_stable_offset
        if last_offset >= end:
            raise InvariantBroken(f"{exchange}: {partition.name} served offset {last_offset}, and {end} is the end")
        topic, index = partition.name
        known = self._ledger.partition(partition.topic_id, topic, index)
        for record in records_in(batch):
            known.know(record.offset, record)

    def _check_ends(self, exchange: Exchange, partition: Partition, part: Any) -> None:
        replica = partition.replica
        known = self._ledger.partition(partition.topic_id, *partition.name)
        if getattr(part.diverging_epoch, "epoch", -1) >= 0 and not known.lost_volatile:
            raise InvariantBroken(
                f"{exchange}: {partition.name} says that it diverged, and nothing was lost: {part.diverging_epoch}"
            )
        if not part.last_stable_offset <= part.high_watermark <= replica.high_watermark:
            raise InvariantBroken(
                f"{exchange}: {partition.name} told of the high watermark {part.high_watermark} and the last stable "
                f"offset {part.last_stable_offset}; the high watermark is {replica.high_watermark}"
            )

    # ListOffsets and DeleteRecords

    def _listed(self, exchange: Exchange) -> None:
        asked = {
            (topic["name"], each["partition_index"]): each["timestamp"]
            for topic in exchange.values["topics"]
            for each in topic["partitions"]
        }
        for topic in exchange.answer.topics:
            for each in topic.partitions:
                partition = self._live.hosted.get(topic.name, each.partition_index)
                if each.error_code or partition is None:
                    continue
                replica = partition.replica
                if asked[topic.name, each.partition_index] >= LATEST and each.offset > replica.high_watermark:
                    raise InvariantBroken(f"{exchange} was told of offset {each.offset}, beyond the high watermark")

    def _delete_records_asked(self, exchange: Exchange) -> None:
        for topic in exchange.values["topics"]:
            for each in topic["partitions"]:
                name, index = topic["name"], each["partition_index"]
                partition = self._live.hosted.get(name, index)
                if partition is not None and _opens(partition):
                    ledger = self._ledger.partition(partition.topic_id, name, index)
                    end, before = partition.replica.high_watermark, each["offset"]
                    if before <= end:
                        before = end if before == LATEST else before
                        ledger.deletable_before = max(ledger.deletable_before, before)

    def _records_deleted(self, exchange: Exchange) -> None:
        for topic in exchange.answer.topics:
            for each in topic.partitions:
                partition = self._live.hosted.get(topic.name, each.partition_index)
                if each.error_code or partition is None:
                    continue
                # A newer topic may have the name by now: its log begins before the answered offset.
                if each.low_watermark <= partition.replica.log.offsets.start:
                    ledger = self._ledger.partition(partition.topic_id, *partition.name)
                    ledger.deleted_before = max(ledger.deleted_before, each.low_watermark)

    # Positions

    def _commits_in(self, exchange: Exchange) -> Iterator[tuple[Key, int]]:
        values = exchange.values
        for topic in values["topics"]:
            topic_id = topic.get("topic_id") or self._topic_ids[exchange].get(topic.get("name"), ZERO_TOPIC_ID)
            for each in topic["partitions"]:
                yield (values["group_id"], topic_id, each["partition_index"]), each["committed_offset"]

    def _commit_asked(self, exchange: Exchange) -> None:
        names = sorted(topic["name"] for topic in exchange.values["topics"] if topic.get("name"))
        self._topic_ids[exchange] = {name: self._live.image.topic_id(name) for name in names}
        for key, offset in self._commits_in(exchange):
            if key[1] != ZERO_TOPIC_ID:
                # Every commit of a group to a partition has another offset, which identifies the commit.
                self._positions.committing(key, Commit(str(offset), offset, (key[0], 0)))

    def _committed(self, exchange: Exchange) -> None:
        results = [each.error_code for topic in exchange.answer.topics for each in topic.partitions]
        for (key, offset), error in zip(self._commits_in(exchange), results, strict=True):
            if error == ErrorCode.NONE:
                self._positions.answered(key, str(offset), ErrorCode.NONE)
        del self._topic_ids[exchange]

    def _positions_asked(self, exchange: Exchange) -> None:
        node, settled = self._live, dict[Key, int]()
        for group in self._groups_in(exchange):
            for topic in node.image.sorted_topics():
                for index in range(len(topic.partitions)):
                    key = (group, topic.topic_id, index)
                    settled[key] = self._positions.settled(key)
        self._settled[exchange] = settled

    @staticmethod
    def _groups_in(exchange: Exchange) -> list[str]:
        values = exchange.values
        return [group["group_id"] for group in values["groups"]] if exchange.version >= 8 else [values["group_id"]]

    def _positions_fetched(self, exchange: Exchange) -> None:
        settled = self._settled.pop(exchange)
        groups = exchange.answer.groups if exchange.version >= 8 else [exchange.answer]
        for group_id, group in zip(self._groups_in(exchange), groups, strict=True):
            if group.error_code:
                continue
            for topic in group.topics:
                topic_id = topic.topic_id if exchange.version >= 10 else self._live.image.topic_id(topic.name)
                for each in topic.partitions:
                    key = (group_id, topic_id or ZERO_TOPIC_ID, each.partition_index)
                    # A topic that was created after the request, or deleted before the answer, proves nothing.
                    if key in settled and self._exists(key[1], key[2]) and not each.error_code:
                        offset = each.committed_offset
                        self._positions.fetched(key, str(offset), offset, settled[key])


def _opens(partition: Partition) -> bool:
    """True if the log can be opened. A log without a place on a full disk deletes nothing."""
    try:
        return partition.replica is not None
    except StorageFailure:
        return False


def _durability(partition: Partition) -> Durability:
    return Durability(partition.settings.ack_durability, partition.settings.flush_messages)


def _makes_way(exchange: Exchange) -> bool:
    """True if a fetch is answered early because another request follows on its connection."""
    handled = exchange.connection.network.handling
    return handled is not None and handled.connection is exchange.connection and handled.key is not ApiKey.FETCH
