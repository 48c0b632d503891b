"""Merges a lost internal topic with the one that came into use since: neither loses a position or a transactional id.

The broker has one `__consumer_offsets` and one `__transaction_state`, so a lost topic cannot come back under its name
beside a new one. Its records are appended to the new one instead. A key in the new topic, even a deleted one, is newer
and stands. A group that has members or a generation of its own in the new topic takes only positions from the old one:
members of two lives of a group do not fit together.

The records are durable before the old directories get their last name (`-merged`). A merge that was killed can be
repeated: keys that it has appended are then in the new topic.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.groups.classic.records import GROUP_METADATA_KEY_TYPE, decode_group_key
from cordwood.groups.consumer.records import CONSUMER_GROUP_KEY_TYPES, decode_consumer_key
from cordwood.groups.state.offset_records import OFFSET_COMMIT_KEY_TYPES
from cordwood.groups.state.offset_records import decode_key as decode_position_key
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.inspection.directory import Partition, read_data_directory
from cordwood.log.inspection.files import ReadOnlyFile
from cordwood.model.coordination import coordinating_partition, transaction_partition
from cordwood.model.failure import Failure
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from cordwood.model.moment import Moment
from cordwood.records.build import build_batch
from cordwood.records.control import TransactionMarker, read_transaction_marker
from cordwood.records.records import records_in
from cordwood.segments.names import Suffix
from cordwood.segments.partition_metadata import TopicDescription
from cordwood.segments.scan import SegmentScan
from cordwood.segments.set_aside import SET_ASIDE
from cordwood.transactions.families_records import FAMILY_KEY_TYPE, decode_family_key
from cordwood.transactions.log_records import KEY_TYPE as TRANSACTION_KEY_TYPE
from cordwood.transactions.log_records import decode_key as decode_transaction_key
from cordwood.transactions.log_records import decode_value as decode_transaction
from cordwood.transactions.transaction import State

MERGED = "-merged"
"""The end of a directory's name after its records were merged: kept until an operator removes it."""

_UNDER_WAY = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
_RECORDS_PER_BATCH = 500


class Latest(NamedTuple):
    """The newest record of a key."""

    timestamp_ms: int
    value: bytes | None


class Owner(NamedTuple):
    """The group or the transactional id that a record belongs to."""

    name: str
    is_position: bool = False


@dataclass(slots=True)
class Merge:
    """The result of a merge, for people."""

    taken: int = 0
    newer: int = 0
    """Keys whose record in the new topic stands."""
    superseded_transactions: list[str] = field(default_factory=list)
    """Transactional ids that were in the middle of a transaction, and that the new topic has as well."""
    undecided_positions: int = 0
    """Positions of transactions that were never decided: not taken, as after an abort."""
    not_understood: int = 0


def merge_topic(
    directory: DataDirectory, image: ClusterImage, topic: TopicImage, lost: list[Partition], now: Moment
) -> Merge:
    """Appends the records that the new topic lacks, durably. Then renames the lost directories."""
    merge = Merge()
    old: dict[bytes, Latest] = {}
    for read in lost:
        found, undecided = latest_records(read)
        old.update(found)
        merge.undecided_positions += undecided
    # Recovery comes first: bytes of a killed broker behind the last sound batch must not be taken for a record.
    directory.open()
    clean = directory.clean
    directory.describe_topic(topic.topic_id, TopicDescription(len(topic.partitions), topic.overrides))
    for index in range(len(topic.partitions)):
        name = TopicPartition(topic.name, index)
        if directory.has_log(name):
            directory.open_log(name, topic.topic_id, topic.settings, now)
    new = _records_in_place(directory, topic.name)
    chosen = _chosen(topic, old, new, merge)
    for index, records in sorted(chosen.items()):
        log = directory.open_log(TopicPartition(topic.name, index), topic.topic_id, topic.settings, now)
        for start in range(0, len(records), _RECORDS_PER_BATCH):
            batch = build_batch(records[start : start + _RECORDS_PER_BATCH])
            log.append_internal(batch, leader_epoch=image.leadership(topic.partitions[index]).epoch, now=now)
    directory.checkpoint()
    directory.close(clean=clean, release=False)
    for read in lost:
        directory.filesystem.rename(read.directory, read.directory.removesuffix(SET_ASIDE) + MERGED)
    directory.filesystem.sync_directory(directory.path)
    return merge


def _records_in_place(directory: DataDirectory, topic: str) -> dict[bytes, Latest]:
    new: dict[bytes, Latest] = {}
    for read in read_data_directory(directory.path).partitions:
        if read.partition.topic == topic:
            new.update(latest_records(read)[0])
    return new


def _chosen(
    topic: TopicImage, old: dict[bytes, Latest], new: dict[bytes, Latest], merge: Merge
) -> dict[int, list[tuple[int, bytes, bytes | None, tuple[()]]]]:
    """The records that each partition of the new topic gets."""
    alive = {owner.name for key in new if (owner := owner_of(topic.name, key)) is not None and not owner.is_position}
    chosen: dict[int, list[tuple[int, bytes, bytes | None, tuple[()]]]] = {}
    place = coordinating_partition if topic.name == CONSUMER_OFFSETS_TOPIC else transaction_partition
    for key, (timestamp_ms, value) in sorted(old.items()):
        owner = owner_of(topic.name, key)
        if owner is None:
            merge.not_understood += 1
        elif key in new:
            merge.newer += value is not None
            if _is_under_way(topic.name, owner, key, value):
                merge.superseded_transactions.append(owner.name)
        elif value is not None and (owner.is_position or owner.name not in alive):
            merge.taken += 1
            chosen.setdefault(place(owner.name, len(topic.partitions)), []).append((timestamp_ms, key, value, ()))
    return chosen


def owner_of(topic: str, key: bytes) -> Owner | None:
    """The owner of a record; None for a record of a type that this version does not know."""
    kind = int.from_bytes(key[:2])
    try:
        if topic != CONSUMER_OFFSETS_TOPIC:
            if kind == TRANSACTION_KEY_TYPE:
                return Owner(decode_transaction_key(key))
            return Owner(decode_family_key(key)) if kind == FAMILY_KEY_TYPE else None
        if kind in OFFSET_COMMIT_KEY_TYPES:
            return Owner(decode_position_key(key).group, is_position=True)
        if kind == GROUP_METADATA_KEY_TYPE:
            return Owner(decode_group_key(key))
        return Owner(decode_consumer_key(key).group_id) if kind in CONSUMER_GROUP_KEY_TYPES else None
    except ValueError:
        return None


def _is_under_way(topic: str, owner: Owner, key: bytes, value: bytes | None) -> bool:
    if topic == CONSUMER_OFFSETS_TOPIC or value is None or int.from_bytes(key[:2]) != TRANSACTION_KEY_TYPE:
        return False
    return decode_transaction(owner.name, value).state in _UNDER_WAY


def latest_records(read: Partition) -> tuple[dict[bytes, Latest], int]:
    """The newest committed record of each key in a partition's directory, and the number of undecided records.

    Changes nothing. A Failure if a batch below the recovery point is damaged: it may have had any key.
    """
    latest: dict[bytes, Latest] = {}
    open_transactions: dict[int, dict[bytes, Latest]] = {}
    for producer_id, found, marker in _batches(read):
        if marker is not None:
            decided = open_transactions.pop(producer_id, {})
            if marker.committed:
                latest.update(decided)
        elif producer_id >= 0:
            open_transactions.setdefault(producer_id, {}).update(found)
        else:
            latest.update(found)
    return latest, sum(map(len, open_transactions.values()))


def _batches(read: Partition) -> Iterator[tuple[int, dict[bytes, Latest], TransactionMarker | None]]:
    """(producer id of a transaction or -1, records by key, end of the transaction) of each batch."""
    for segment in read.segments:
        path = segment.path(Suffix.LOG)
        with ReadOnlyFile(path) as file:
            scan = SegmentScan(file, segment.base_offset)
            for _, header in scan:
                producer_id = header.producer_id if header.transactional else -1
                if header.control:
                    marker = read_transaction_marker(scan.batch) if header.record_count else None
                    if marker is not None:
                        yield producer_id, {}, marker
                elif header.last_offset >= read.start_offset:
                    records = records_in(scan.batch)
                    found = {
                        each.key: Latest(each.timestamp_ms, each.value) for each in records if each.key is not None
                    }
                    yield producer_id, found, None
            torn_tail = segment is read.segments[-1] and scan.next_offset >= (read.recovery_point or 0)
            if scan.invalid is not None and not torn_tail:
                raise Failure(
                    "DAMAGED",
                    f"{os.path.relpath(path)} is damaged at byte {scan.position}: {scan.invalid.reason}",
                    "restore the file from a backup",
                )
