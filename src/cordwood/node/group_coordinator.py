"""The coordinator of groups on this node: its shards, the members and the positions in them, and their operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.shard import GroupListing, GroupShard
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.coordinator_log import Done, Shard
from cordwood.node.group_membership import GroupMembership
from cordwood.node.group_positions import GroupPositions
from cordwood.node.group_shards import GroupShards, pending_positions

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
        """The image has it already."""
        self.shards.topics.topics_changed(created, deleted)

    def stop_waiting(self) -> None:
        self.shards.stop_waiting()

    def shift_deadlines(self, by_ms: int) -> None:
        self.shards.shift_deadlines(by_ms)

    # Administration

    def describe(self, group_id: str, done: Callable[[GroupShard], None], failed: Done) -> None:
        """Shows the shard that the group lives in, if it does; the caller changes nothing."""

        def loaded(shard: Shard[GroupShard]) -> None:
            def committed(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    done(shard.machine)
                else:
                    failed(error)

            self._log.when_committed(shard, committed)

        self.shards.with_shard(group_id, loaded, failed)

    def list_groups(self, done: Callable[[list[GroupListing], ErrorCode], None]) -> None:
        """All groups that could be read, and what went wrong with the rest."""
        found: list[GroupListing] = []
        self._log.each_shard_with_records(
            lambda shard: found.extend(shard.machine.listing()), lambda error: done(sorted(found), error)
        )

    def visit_shards(self, visit: Callable[[GroupShard], None], finished: Done) -> None:
        """Shows every shard that holds something, and says when all were shown; the caller changes nothing."""
        self._log.each_shard_with_records(lambda shard: visit(shard.machine), finished)

    def delete(self, group_id: str, done: Done) -> None:
        def loaded(shard: Shard[GroupShard]) -> None:
            out = Outbox()
            refusal = shard.machine.delete(group_id, out, pending_positions(shard, group_id))
            self.shards.settle(shard, group_id, out, lambda error: done(error or refusal))

        self.shards.with_shard(group_id, loaded, done)
