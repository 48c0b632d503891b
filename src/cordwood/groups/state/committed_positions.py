"""The committed positions of the groups that live in one partition of __consumer_offsets.

The coordinator's contract: a request yields records and an answer; state changes only when those records are replayed,
at append; the answer waits until they are committed. So after a restart the log alone brings the state back.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from cordwood.groups.state.offset_records import (
    Position,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition

Record = tuple[bytes, bytes | None]
"""Key and value to append; a null value removes the key."""

LATEST_MS = 2**63 - 1
MAX_FIELD_BYTES = 32_767
"""The latest time that a record can hold, for clients that ask for a longer time to live."""

Gone = Callable[[TopicPartition, Position], bool]
TopicIdOf = Callable[[str], TopicId | None]

METADATA_OF_ONE = 256
"""Metadata of this many characters takes as much memory as a position."""


class Commit(NamedTuple):
    """A commit of one position, as the reader asked for it."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str | None
    topic_id: TopicId
    retention_ms: int = -1
    """The position's own time to live (OffsetCommit 2 to 4); -1: the broker's."""


class CommitOutcome(NamedTuple):
    records: list[Record]
    errors: list[ErrorCode]
    """One error code for each commit, in order."""

    def told(self, error: ErrorCode) -> list[ErrorCode]:
        """The answer to the reader, given the result of the append."""
        if error is ErrorCode.NONE:
            return self.errors
        return [error if asked is ErrorCode.NONE else asked for asked in self.errors]


class Positions:
    """State of one partition of __consumer_offsets."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, Position]] = {}
        self._topics_without_id: set[str] = set()
        self.weight = 0
        """The memory that all positions take, in positions without metadata."""

    def commit(
        self,
        group: str,
        commits: Iterable[Commit],
        *,
        metadata_max_bytes: int,
        wall_ms: int,
        room: int = sys.maxsize,
        held: Collection[bytes] = (),
    ) -> CommitOutcome:
        """The records that store these positions. State changes only in `replay`. Positions that need more than `room`
        in memory are refused. `held`: keys that the transaction of these commits has committed before, which need no
        more room."""
        records: list[Record] = []
        errors: list[ErrorCode] = []
        kept = self.of_group(group)
        for commit in commits:
            metadata = commit.metadata or ""
            if metadata and _is_too_large(metadata, metadata_max_bytes):
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            expires_ms = -1 if commit.retention_ms < 0 else min(wall_ms + commit.retention_ms, LATEST_MS)
            position = Position(commit.offset, commit.leader_epoch, metadata, wall_ms, expires_ms, commit.topic_id)
            key = encode_key(group, commit.partition)
            growth = _weight(position) - max(_weight(kept.get(commit.partition)), key in held)
            if growth > max(room, 0):
                errors.append(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                continue
            room -= growth
            records.append((key, encode_value(position)))
            errors.append(ErrorCode.NONE)
        return CommitOutcome(records, errors)

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Replays a record of a position into state."""
        group, partition = decode_key(key)
        if value is not None:
            position = decode_value(value)
            positions = self._groups.setdefault(group, {})
            self.weight += _weight(position) - _weight(positions.get(partition))
            positions[partition] = position
            if not position.topic_id.int:
                self._topics_without_id.add(partition.topic)
        elif group in self._groups:
            positions = self._groups[group]
            self.weight -= _weight(positions.pop(partition, None))
            if not positions:
                del self._groups[group]

    def of_group(self, group: str) -> dict[TopicPartition, Position]:
        """All positions of a group, also those in deleted topics. The caller must not change them."""
        return self._groups.get(group, {})

    def __len__(self) -> int:
        return len(self._groups)

    def groups(self) -> Iterator[str]:
        return iter(self._groups)

    def may_lack_id(self, topic: str) -> bool:
        """True if positions without a topic id may exist for topics of this name."""
        return topic in self._topics_without_id

    def of_deleted_topic(self, topic: str, topic_id: TopicId) -> list[Record]:
        """Tombstones for positions in a deleted topic, also for positions without a topic id.

        They are written at once: later they would remove positions in a new topic of the same name.
        """
        return self._tombstones(
            lambda partition, position: partition.topic == topic and position.topic_id in (topic_id, ZERO_TOPIC_ID)
        )

    def of_topics(
        self, group: str, partitions: Iterable[TopicPartition], topic_ids: Collection[TopicId]
    ) -> list[Record]:
        """Tombstones for positions of a group, among these partitions, with the id of one of these topics."""
        positions = self.of_group(group)
        return [
            (encode_key(group, partition), None)
            for partition in partitions
            if (position := positions.get(partition)) is not None and position.topic_id in topic_ids
        ]

    def _tombstones(self, gone: Gone) -> list[Record]:
        return [
            (encode_key(group, partition), None)
            for group, positions in sorted(self._groups.items())
            for partition, position in sorted(positions.items())
            if gone(partition, position)
        ]


def _weight(position: Position | None) -> int:
    return 0 if position is None else 1 + len(position.metadata) // METADATA_OF_ONE


def _is_too_large(metadata: str, max_length: int) -> bool:
    """True if metadata is too long: in characters, as Kafka counts in spite of the setting's name, or for a record."""
    return len(metadata) > max_length or len(metadata.encode()) > MAX_FIELD_BYTES


def is_current(partition: TopicPartition, position: Position, topic_id_of: TopicIdOf) -> bool:
    """True if the position belongs to the current topic of this name. A position without a topic id is believed."""
    return position.topic_id == ZERO_TOPIC_ID or position.topic_id == topic_id_of(partition.topic)
