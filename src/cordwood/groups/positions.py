"""The committed positions of the groups that live in one partition of __consumer_offsets.

The coordinator's contract: a request yields records and an answer; state changes only when those records are replayed,
at append; the answer waits until they are committed. So after a restart the log alone brings the state back.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from cordwood.groups.offset_records import (
    OFFSET_COMMIT_KEY_TYPES,
    Position,
    PositionKey,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    record_type,
)
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition

Record = tuple[bytes, bytes | None]
"""Key and value to append; a null value removes."""

Gone = Callable[[TopicPartition, Position], bool]


class Commit(NamedTuple):
    """What a reader asks to be remembered for one partition."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str | None


class CommitOutcome(NamedTuple):
    records: list[Record]
    errors: list[ErrorCode]
    """One for each commit asked for, in order."""


class Positions:
    """State of one partition of __consumer_offsets."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, Position]] = {}

    def commit(self, group: str, commits: Iterable[Commit], *, metadata_max_bytes: int, now_ms: int) -> CommitOutcome:
        """The records that remember these positions. Changes nothing: `replay` does."""
        records: list[Record] = []
        errors: list[ErrorCode] = []
        for commit in commits:
            metadata = commit.metadata or ""
            if len(metadata.encode()) > metadata_max_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            position = Position(commit.offset, commit.leader_epoch, metadata, now_ms)
            records.append((encode_key(PositionKey(group, commit.partition)), encode_value(position)))
            errors.append(ErrorCode.NONE)
        return CommitOutcome(records, errors)

    def replay(self, key: bytes, value: bytes | None) -> None:
        """A record of the log becomes state. Records of other types are not positions and are passed over."""
        if record_type(key) not in OFFSET_COMMIT_KEY_TYPES:
            return
        group, partition = decode_key(key)
        if value is not None:
            self._groups.setdefault(group, {})[partition] = decode_value(value)
        elif (positions := self._groups.get(group)) is not None:
            positions.pop(partition, None)
            if not positions:
                del self._groups[group]

    def of_group(self, group: str) -> dict[TopicPartition, Position]:
        """All positions of a group; the caller does not change them."""
        return self._groups.get(group, {})

    def __len__(self) -> int:
        return len(self._groups)

    def groups(self) -> Iterator[str]:
        return iter(sorted(self._groups))

    def of_deleted_topic(self, topic: str) -> list[Record]:
        """Tombstones for positions in a topic that is gone: a new topic of the same name starts afresh."""
        return self._tombstones(lambda partition, _: partition.topic == topic)

    def _tombstones(self, gone: Gone) -> list[Record]:
        return [
            (encode_key(PositionKey(group, partition)), None)
            for group, positions in sorted(self._groups.items())
            for partition, position in sorted(positions.items())
            if gone(partition, position)
        ]
