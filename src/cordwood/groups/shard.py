"""All that lives in one partition of __consumer_offsets: groups with members, and committed positions.

The coordinator's contract: a request yields records and answers; what the log holds becomes state only when its
records are replayed, at append; answers wait until they are committed.
"""

from typing import NamedTuple

from cordwood.groups.classic.expiry import after_loading, refuse_all, shift_deadlines, time_passed
from cordwood.groups.classic.group import CONSUMER_PROTOCOL_TYPE, Group, Limits, State
from cordwood.groups.classic.heartbeat import check_commit, heartbeat
from cordwood.groups.classic.join import JoinRequest, join
from cordwood.groups.classic.leave import Leaving, leave
from cordwood.groups.classic.outbox import JoinAnswer, JoinTicket, Outbox, SyncTicket
from cordwood.groups.classic.records import GROUP_METADATA_KEY_TYPE, decode_group, decode_group_key, encode_group_key
from cordwood.groups.classic.sync import SyncRequest, not_written, sync
from cordwood.groups.offset_records import Position, PositionKey, encode_key, record_type
from cordwood.groups.positions import Positions, Record
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: State


class GroupShard:
    """Groups by name. A group without members that only commits positions has no `Group`: it is just its positions."""

    def __init__(self) -> None:
        self.positions = Positions()
        self.groups: dict[str, Group] = {}

    def replay(self, key: bytes, value: bytes | None) -> None:
        if record_type(key) != GROUP_METADATA_KEY_TYPE:
            self.positions.replay(key, value)
            return
        group_id = decode_group_key(key)
        if value is None:
            self.groups.pop(group_id, None)
        else:
            self.groups.setdefault(group_id, Group(group_id)).restore(decode_group(value))

    def after_loading(self, now_ms: int) -> None:
        for group in self.groups.values():
            after_loading(group, now_ms)

    def exists(self, group_id: str) -> bool:
        return group_id in self.groups or bool(self.positions.of_group(group_id))

    def at_least(self) -> int:
        """How many groups there are at least, without looking at them all: never less than half of them."""
        return max(len(self.groups), len(self.positions))

    # The classic protocol

    def join(
        self, group_id: str, request: JoinRequest, ticket: JoinTicket, out: Outbox, now_ms: int, limits: Limits
    ) -> None:
        group = self.groups.get(group_id)
        if group is None:
            if request.member_id:
                out.joins.append((ticket, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)))
                return
            group = self.groups[group_id] = Group(group_id)
        join(group, request, ticket, out, now_ms, limits)
        self._forget_if_blank(group)

    def sync(
        self, group_id: str, request: SyncRequest, ticket: SyncTicket, out: Outbox, now_ms: int, limits: Limits
    ) -> None:
        sync(self.groups.get(group_id), request, ticket, out, now_ms, limits)

    def not_written(self, group_id: str, out: Outbox, now_ms: int, limits: Limits) -> None:
        not_written(self.groups.get(group_id), out, now_ms, limits)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        return heartbeat(self.groups.get(group_id), member_id, instance_id, generation, now_ms)

    def leave(self, group_id: str, leaving: list[Leaving], out: Outbox, now_ms: int, limits: Limits) -> list[ErrorCode]:
        group = self.groups.get(group_id)
        errors = leave(group, leaving, out, now_ms, limits)
        if group is not None:
            self._forget_if_blank(group)
        return errors

    def time_passed(self, group_id: str, out: Outbox, now_ms: int, limits: Limits) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            time_passed(group, out, now_ms, limits)
            self._forget_if_blank(group)

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        known = bool(self.positions.of_group(group_id))
        group = self.groups.get(group_id)
        return check_commit(group, member_id, instance_id, generation, now_ms, known=known)

    def refuse_all(self, out: Outbox, reason: ErrorCode) -> None:
        for group in self.groups.values():
            refuse_all(group, out, reason)

    def shift_deadlines(self, by_ms: int) -> None:
        for group in self.groups.values():
            shift_deadlines(group, by_ms)

    def _forget_if_blank(self, group: Group) -> None:
        """Somebody asked and went before there was a first generation: the log knows nothing of it, nor need we."""
        if group.state is State.EMPTY and not group.generation and not group.pending:
            del self.groups[group.group_id]

    # Administration

    def listing(self) -> list[GroupListing]:
        found = []
        for group_id in sorted(self.groups.keys() | set(self.positions.groups())):
            group = self.groups.get(group_id)
            if group is None:
                found.append(GroupListing(group_id, "", State.EMPTY))
            else:
                found.append(GroupListing(group_id, group.protocol_type, group.state))
        return found

    def describe(self, group_id: str) -> Group | None:
        """The group as it is; the caller does not change it."""
        group = self.groups.get(group_id)
        if group is None and self.positions.of_group(group_id):
            return Group(group_id)
        return group

    def delete(self, group_id: str, out: Outbox) -> ErrorCode:
        if not self.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = self.groups.get(group_id)
        if group is not None and group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        out.records += self._tombstones(group_id, sorted(self.positions.of_group(group_id)))
        if group is not None:
            out.records.append((encode_group_key(group_id), None))
        return ErrorCode.NONE

    def delete_positions(
        self, group_id: str, partitions: list[TopicPartition], out: Outbox
    ) -> ErrorCode | list[ErrorCode]:
        """One error code for each, or one for all if the group cannot lose positions at all."""
        if not self.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = self.groups.get(group_id)
        has_members = group is not None and group.state is not State.EMPTY
        if group is not None and has_members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        errors = []
        known = self.positions.of_group(group_id)
        for partition in partitions:
            if group is not None and has_members and group.subscribes_to(partition.topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if partition in known:
                out.records += self._tombstones(group_id, [partition])
        return errors

    def expired(self, now_ms: int, retention_ms: int) -> list[Record]:
        """Tombstones for what nobody has needed for longer than the retention.

        A group with members keeps the positions of what it reads, however old. One that lost its members keeps them
        for the retention from then on. A group without members and positions goes itself.
        """
        records: list[Record] = []
        for group_id in sorted(self.groups.keys() | set(self.positions.groups())):
            group = self.groups.get(group_id)
            positions = self.positions.of_group(group_id)
            gone = [
                partition
                for partition, position in sorted(positions.items())
                if _is_expired(group, partition, position, now_ms, retention_ms)
            ]
            records += self._tombstones(group_id, gone)
            idle = group is not None and group.state is State.EMPTY and not group.pending
            if idle and len(gone) == len(positions):
                records.append((encode_group_key(group_id), None))
        return records

    @staticmethod
    def _tombstones(group_id: str, partitions: list[TopicPartition]) -> list[Record]:
        return [(encode_key(PositionKey(group_id, partition)), None) for partition in partitions]


def _is_expired(
    group: Group | None, partition: TopicPartition, position: Position, now_ms: int, retention_ms: int
) -> bool:
    needed_ms = position.commit_timestamp_ms
    if group is not None:
        if group.state is State.EMPTY:
            needed_ms = max(needed_ms, group.state_timestamp_ms)
        elif group.state is not State.STABLE or group.subscribes_to(partition.topic):
            return False
    return needed_ms + retention_ms <= now_ms
