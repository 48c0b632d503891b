"""The group coordinator of this node: shards, members, positions, and the requests of operators."""

from __future__ import annotations

from collections.abc import Callable

from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.shard import GroupShard
from cordwood.model.errors import ErrorCode
from cordwood.node.coordinators.coordinator_log import Done, Ground
from cordwood.node.coordinators.group_membership import GroupMembership
from cordwood.node.coordinators.group_positions import GroupPositions
from cordwood.node.coordinators.group_shards import GroupShards, LedGroups, pending_positions
from cordwood.node.coordinators.held_heartbeats import HeldHeartbeats
from cordwood.node.coordinators.visible_matches import TopicRights


class GroupCoordinator:
    def __init__(self, ground: Ground, held: HeldHeartbeats, rights: TopicRights, seed: int) -> None:
        self.shards = GroupShards(ground, held, rights)
        self._log = self.shards.log
        self.members = GroupMembership(ground.loop, ground.image, self.shards, held, seed)
        self.positions = GroupPositions(ground.loop, ground.image, self.shards)

    # Administration

    def describe(self, group_id: str, done: Callable[[GroupShard], None], failed: Done) -> None:
        """Calls back with the shard of the group, whether the group exists or not. The caller only reads the shard."""

        def loaded(shard: LedGroups) -> None:
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
        def loaded(shard: LedGroups) -> None:
            out = Outbox()
            refusal = shard.machine.delete(group_id, out, pending_positions(shard, group_id))
            self.shards.settle(shard, group_id, out, lambda error: done(error or refusal))

        self.shards.with_shard(group_id, loaded, done)
