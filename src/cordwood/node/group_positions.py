"""The coordinator of committed positions on this node: one `Positions` per partition of __consumer_offsets."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from cordwood.groups.offset_records import OFFSET_COMMIT_KEY_TYPES, Position, decode_key, record_type
from cordwood.groups.positions import Commit, Positions, Record
from cordwood.model.coordination import coordinating_partition
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from cordwood.node.coordinator_log import CoordinatorLog, Done, Shard, Writer
from cordwood.records.control import TransactionMarker

if TYPE_CHECKING:
    from cordwood.node.node import Node

MINUTE_MS = 60_000

UNSTABLE = Position(-1, -1, "", -1)
"""Stands for a position that an open transaction is about to move."""


class GroupPositions:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._log = CoordinatorLog(node, CONSUMER_OFFSETS_TOPIC, Positions)

    def when_topic_exists(self, done: Callable[[ProtocolError | None], None]) -> None:
        self._log.when_topic_exists(done)

    def commit(self, group: str, commits: list[Commit], now_ms: int, done: Callable[[list[ErrorCode]], None]) -> None:
        """Remembers the positions; `done` gets one error code for each of them, once they are committed."""

        def loaded(shard: Shard[Positions]) -> None:
            limit = self._node.settings.offset_metadata_max_bytes
            outcome = shard.machine.commit(group, commits, metadata_max_bytes=limit, now_ms=now_ms)

            def committed(error: ErrorCode) -> None:
                done([error if asked is ErrorCode.NONE else asked for asked in outcome.errors])

            self._log.write(shard, outcome.records, now_ms, committed)

        self._log.with_shard(partial(coordinating_partition, group), loaded, lambda error: done([error] * len(commits)))

    def commit_in_transaction(
        self,
        group: str,
        commits: list[Commit],
        admit: Callable[[TopicPartition, Done], None],
        writer: Writer,
        done: Callable[[list[ErrorCode]], None],
    ) -> None:
        """As `commit`, but the positions hold only once the writer's transaction is committed.

        `admit` asks the transaction's coordinator whether the partition of __consumer_offsets is part of it, and calls
        back at a moment when that is true.
        """

        def failed(error: ErrorCode) -> None:
            done([error] * len(commits))

        def loaded(shard: Shard[Positions]) -> None:
            def admitted(error: ErrorCode) -> None:
                if error is not ErrorCode.NONE:
                    failed(error)
                    return
                now_ms = self._node.now_ms
                limit = self._node.settings.offset_metadata_max_bytes
                outcome = shard.machine.commit(group, commits, metadata_max_bytes=limit, now_ms=now_ms)

                def committed(error: ErrorCode) -> None:
                    done([error if asked is ErrorCode.NONE else asked for asked in outcome.errors])

                self._log.write(shard, outcome.records, now_ms, committed, writer)

            admit(shard.partition.name, admitted)

        self._log.with_shard(partial(coordinating_partition, group), loaded, failed)

    def partition_of(self, group: str) -> TopicPartition:
        """Where the positions of a group are kept; the topic exists."""
        count = len(self._node.topics[CONSUMER_OFFSETS_TOPIC])
        return TopicPartition(CONSUMER_OFFSETS_TOPIC, coordinating_partition(group, count))

    def end_transaction(
        self,
        index: int,
        writer: Writer,
        marker: TransactionMarker,
        now_ms: int,
        failed: Done,
        done: Callable[[int], None],
    ) -> None:
        self._log.end_transaction(index, writer, marker, now_ms, failed, done)

    def fetch(
        self,
        group: str,
        now_ms: int,
        done: Callable[[dict[TopicPartition, Position] | ErrorCode], None],
        *,
        require_stable: bool = False,
    ) -> None:
        """All positions of a group, as committed by now; UNSTABLE, if asked for, where that is about to change."""

        def loaded(shard: Shard[Positions]) -> None:
            found = dict(shard.machine.of_group(group))
            if require_stable:
                found.update(dict.fromkeys(_pending(shard, group), UNSTABLE))

            def committed(error: ErrorCode) -> None:
                done(found if error is ErrorCode.NONE else error)

            self._log.when_committed(shard, now_ms, committed)

        self._log.with_shard(partial(coordinating_partition, group), loaded, done)

    def topic_deleted(self, topic: str, now_ms: int) -> None:
        """Positions in a topic that is gone go with it."""
        self._forget(lambda positions: positions.of_deleted_topic(topic), now_ms)

    def expire(self, now_ms: int) -> None:
        retention_ms = self._node.settings.offsets_retention_minutes * MINUTE_MS
        self._forget(lambda positions: positions.expired(now_ms, retention_ms), now_ms)

    def _forget(self, tombstones: Callable[[Positions], list[Record]], now_ms: int) -> None:
        self._log.each_shard_with_records(
            lambda shard: self._log.write(shard, tombstones(shard.machine), now_ms, lambda error: None)
        )


def _pending(shard: Shard[Positions], group: str) -> Iterator[TopicPartition]:
    """Partitions for which an open transaction holds a position of this group."""
    for key in shard.pending.keys():  # noqa: SIM118
        if record_type(key) in OFFSET_COMMIT_KEY_TYPES:
            owner, partition = decode_key(key)
            if owner == group:
                yield partition
