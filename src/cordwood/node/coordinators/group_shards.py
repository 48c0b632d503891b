"""The shards of groups on this node, and the steps of every group request: find the shard, settle, set the alarm.

One `GroupShard` per partition of __consumer_offsets, and the deadlines and held heartbeats of its groups. Every answer
waits until all records of its shard are committed, so no client acts on state that a crash could take back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import NamedTuple

from cordwood.groups.classic.group import NEVER_MS, Limits
from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.consumer.heartbeat import ConsumerLimits
from cordwood.groups.shard import GroupShard
from cordwood.groups.state.offset_records import decode_key, key_prefixes
from cordwood.model.coordination import coordinating_partition, is_too_long
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.coordinators.coordinator_log import CoordinatorLog, Done, Ground, Shard, ShardState
from cordwood.node.coordinators.held_heartbeats import HeldHeartbeats, HeldOfGroups
from cordwood.node.coordinators.topic_matching import TopicMatching
from cordwood.node.coordinators.visible_matches import TopicRights
from cordwood.node.loop.timers import Timer
from cordwood.node.partitions.partition import Partition

ORDINARY_MEMBER_BYTES = 64 * 1024
"""Bytes that a member may always tell about itself, also while there is no room for newcomers: groups go on."""


def nothing(error: ErrorCode) -> None:
    """The callback of a write whose outcome is not needed."""


class Author(NamedTuple):
    """The member and generation in whose name a request is made; by default no member."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class Alarm(NamedTuple):
    at_ms: int
    timer: Timer


class LedGroups(Shard[GroupShard]):
    """The groups of one partition of __consumer_offsets, as long as this broker leads it in one epoch."""

    __slots__ = ("alarms", "deleted_topics", "expiring", "held")

    def __init__(self, partition: Partition, machine: GroupShard) -> None:
        super().__init__(partition, machine)
        self.alarms: dict[str, Alarm] = {}
        """The timer of each group with a deadline."""
        self.held: HeldOfGroups = {}
        self.deleted_topics: list[TopicId] = []
        """Deleted topics whose positions are still to be removed."""
        self.expiring = False
        """True if the removal of expired positions is under way."""


class GroupShards:
    """All groups of this node. `GroupMembership` and `GroupPositions` handle the requests."""

    def __init__(self, ground: Ground, held: HeldHeartbeats, rights: TopicRights) -> None:
        self._loop = ground.loop
        self._image = ground.image
        self._held = held
        self.topics = TopicMatching(ground.loop, ground.image, rights)
        self.log = CoordinatorLog(
            ground,
            CONSUMER_OFFSETS_TOPIC,
            lambda partition: LedGroups(partition, GroupShard(self.topics)),
            self._loaded,
            self._unloaded,
        )

    def with_shard(self, group_id: str, done: Callable[[LedGroups], None], failed: Done) -> None:
        if is_too_long(group_id):
            failed(ErrorCode.INVALID_GROUP_ID)
            return
        self.log.with_shard(partial(coordinating_partition, group_id), done, failed)

    def loaded(self, group_id: str) -> LedGroups | None:
        """The shard of the group if it is at hand: no request for it has to wait."""
        return None if is_too_long(group_id) else self.log.loaded(partial(coordinating_partition, group_id))

    def is_full(self) -> bool:
        return sum(shard.machine.at_least() for shard in self.log.loaded_shards()) >= self._image.settings.groups_max

    def room_for_positions(self) -> int:
        """The room for new positions. Positions of open transactions take some room: a commit keeps them."""
        kept = sum(shard.machine.positions.weight + shard.pending.weight for shard in self.log.loaded_shards())
        return self._image.settings.positions_max - kept

    def room_for_members(self) -> int:
        """The further bytes that this broker may keep for members; 0: newcomers are refused."""
        kept = sum(shard.machine.kept.total for shard in self.log.loaded_shards())
        return max(self._image.settings.groups_members_max_bytes - kept, 0)

    def limits(self, shard: LedGroups) -> Limits:
        settings, room = self._image.settings, self.room_for_members()
        return Limits(
            settings.group_max_size if room else 0,
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
            settings.group_initial_rebalance_delay_ms,
            shard.partition.settings.max_message_bytes,
            min(shard.partition.settings.max_message_bytes, room + ORDINARY_MEMBER_BYTES),
        )

    def consumer_limits(self, group_id: str) -> ConsumerLimits:
        image, room = self._image, self.room_for_members()
        return ConsumerLimits(
            image.settings.group_consumer_max_size if room else 0,
            image.group_settings(group_id).consumer_session_timeout_ms,
            min(image.topics[CONSUMER_OFFSETS_TOPIC].settings.max_message_bytes, room + ORDINARY_MEMBER_BYTES),
        )

    # Settling

    def settle(self, shard: LedGroups, group_id: str, out: Outbox, done: Done = nothing) -> None:
        """Writes the records of a transition, and gives its answers when the records are committed."""
        if done is nothing and out.is_empty:
            self._held.look(shard.held, group_id, self._loop.now)
            self.set_alarm(shard, group_id)
            return

        def committed(error: ErrorCode) -> None:
            out.settle(error)
            done(error)
            if error is not ErrorCode.NONE and out.records and shard.state is not ShardState.UNLOADED:
                again = Outbox()
                shard.machine.not_written(group_id, again, self._loop.now, self.limits(shard))
                self.settle(shard, group_id, again)

        if out.records:
            self.log.write(shard, out.records, committed)
        else:
            self.log.when_committed(shard, committed)
        shard.machine.after_writing(group_id, self._loop.now, self.consumer_limits)
        self._held.look(shard.held, group_id, self._loop.now)
        self.set_alarm(shard, group_id)

    # Time, and the end of waiting

    def stop_waiting(self) -> None:
        """Refuses members that wait for a round: the broker stops, and members look for a coordinator again."""
        for shard in self.log.loaded_shards():
            out = Outbox()
            shard.machine.refuse_all(out, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            out.settle(ErrorCode.NONE)

    def _loaded(self, shard: LedGroups) -> None:
        shard.machine.after_loading(self._loop.now, self.consumer_limits)
        # A group that is only its positions has no deadlines.
        for group_id in chain(shard.machine.groups, shard.machine.consumer_groups):
            self.set_alarm(shard, group_id)

    def _unloaded(self, shard: LedGroups) -> None:
        """Sends the members of all groups to another coordinator."""
        for alarm in shard.alarms.values():
            alarm.timer.cancel()
        self._held.answer_all(shard.held, self._loop.now)
        out = Outbox()
        shard.machine.refuse_all(out, ErrorCode.NOT_COORDINATOR)
        out.settle(ErrorCode.NONE)

    def set_alarm(self, shard: LedGroups, group_id: str) -> None:
        """Keeps one timer per group, never later than the group's next deadline: heartbeats need not move it."""
        if shard.state is ShardState.UNLOADED:
            return
        wake_ms = shard.machine.wake_ms(group_id)
        alarm = shard.alarms.get(group_id)
        if alarm is not None:
            if alarm.at_ms <= wake_ms < NEVER_MS:
                return
            del shard.alarms[group_id]
            alarm.timer.cancel()
        if wake_ms < NEVER_MS:
            timer = self._loop.timers.at(wake_ms, partial(self._time_passed, shard, group_id))
            shard.alarms[group_id] = Alarm(wake_ms, timer)
            self._loop.effects.wake()

    def _time_passed(self, shard: LedGroups, group_id: str, now: Moment) -> None:
        del shard.alarms[group_id]
        out = Outbox()
        shard.machine.time_passed(group_id, out, now, self.limits(shard))
        self.settle(shard, group_id, out)


def pending_positions(shard: LedGroups, group_id: str) -> frozenset[TopicPartition]:
    """Partitions for which an open transaction holds a position of this group."""
    if not shard.pending:
        return frozenset()
    # Other groups' positions are passed over without decoding them: one transaction may hold very many.
    prefixes = key_prefixes(group_id)
    return frozenset(decode_key(key).partition for key in shard.pending.moving_keys() if key.startswith(prefixes))
