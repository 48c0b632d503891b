"""The group coordinator of this node: shards, members, positions, and the requests of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.shard import GroupShard
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.coordinator_log import Done, Shard
from cordwood.node.group_membership import GroupMembership
from cordwood.node.group_positions import GroupPositions
from cordwood.node.group_shards import GroupShards, pending_positions
from cordwood.node.partition import Partition

if TYPE_CHECKING:
    from cordwood.node.node import Node


class GroupCoordinator:
    def __init__(self, node: Node, seed: int) -> None:
        self.shards = GroupShards(node)
        self._log = self.shards.log
        self.members = GroupMembership(node, self.shards, seed)
        self.positions = GroupPositions(node, self.shards)

    def when_topic_exists(self, done: Callable[[ProtocolError | None], None]) -> None:
        self._log.when_topic_exists(done)

    def topics_changed(self, created: list[str], deleted: list[str]) -> None:
        """Tells topic subscriptions of new and deleted topics. The image is up to date already."""
        self.shards.topics.topics_changed(created, deleted)

    def deposed(self, partition: Partition) -> None:
        """Gives up the groups of a partition of __consumer_offsets: its leadership ended."""
        self._log.deposed(partition)

    def stop_waiting(self) -> None:
        self.shards.stop_waiting()

    # Administration

    def describe(self, group_id: str, done: Callable[[GroupShard], None], failed: Done) -> None:
        """Calls back with the shard of the group, whether the group exists or not. The caller only reads the shard."""

        def loaded(shard: Shard[GroupShard]) -> None:
            def committed(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    done(shard.machine)
                else:
                    failed(error)

            self._log.when_committed(shard, committed)

        self.shards.with_shard(group_id, loaded, failed)

    def visit_shards(self, visit: Callable[[GroupShard], None], finished: Done) -> None:
        """Calls `visit` with every shard that has records, then `finished`. The caller only reads the shards."""
        self._log.each_shard_with_records(lambda shard: visit(shard.machine), finished)

    def delete(self, group_id: str, done: Done) -> None:
        def loaded(shard: Shard[GroupShard]) -> None:
            out = Outbox()
            refusal = shard.machine.delete(group_id, out, pending_positions(shard, group_id))
            self.shards.settle(shard, group_id, out, lambda error: done(error or refusal))

        self.shards.with_shard(group_id, loaded, done)
