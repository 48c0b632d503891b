"""The coordinator of committed positions on this node: one `Positions` per partition of __consumer_offsets."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from cordwood.groups.offset_records import Position
from cordwood.groups.positions import Commit, Positions, Record, coordinating_partition
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from cordwood.node.coordinator_log import CoordinatorLog, Shard

if TYPE_CHECKING:
    from cordwood.node.node import Node

MINUTE_MS = 60_000


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

    def fetch(
        self, group: str, now_ms: int, done: Callable[[dict[TopicPartition, Position] | ErrorCode], None]
    ) -> None:
        """All positions of a group, as committed by now."""

        def loaded(shard: Shard[Positions]) -> None:
            found = dict(shard.machine.of_group(group))

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
