"""Control batches, which the cluster writes between the clients' records.

Consumers skip them, but each takes an offset. A control batch has one record. Key: int16 version 0, int16 type. The
value depends on the type; unknown types are skipped.
"""

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from cordwood.records.batch import CONTROL_BIT, HEADER_SIZE, BatchHeader, Buffer, read_header
from cordwood.records.build import build_batch
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import records_in

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_LEADER = struct.Struct(">hi")
_VOTER = struct.Struct(">ib")
_NO_TAGGED_FIELDS = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecord(NamedTuple):
    """A control record. A type beyond ControlType comes from a newer version."""

    type: int
    value: bytes


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in this partition."""

    committed: bool
    coordinator_epoch: int


class LeaderChange(NamedTuple):
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


def build_transaction_marker(
    marker: TransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that commits or aborts a producer's transaction."""
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    return build_batch(
        [(timestamp_ms, _KEY.pack(0, kind), _MARKER.pack(0, marker.coordinator_epoch), ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def build_leader_change(
    change: LeaderChange, *, timestamp_ms: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    """The control batch with which a new leader opens its epoch."""
    value = bytearray(_LEADER.pack(0, change.leader_id))
    for voters in (change.voters, change.granting_voters):
        _write_voters(value, voters)
    value.append(_NO_TAGGED_FIELDS)
    return build_batch(
        [(timestamp_ms, _KEY.pack(0, ControlType.LEADER_CHANGE), value, ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        control=True,
    )


def read_control_record(batch: Buffer) -> ControlRecord:
    """The one record of a control batch. Raises CorruptRecords for other batches."""
    if len(batch) < HEADER_SIZE or not read_header(batch).attributes & CONTROL_BIT:
        raise CorruptRecords("not a control batch")
    records = list(records_in(batch))
    if len(records) != 1:
        raise CorruptRecords(f"a control batch with {len(records)} records")
    key = records[0].key
    if key is None or len(key) < _KEY.size:
        raise CorruptRecords("a control record without a type")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecords(f"a control record of version {version}")
    return ControlRecord(kind, records[0].value or b"")


def read_transaction_marker(batch: Buffer) -> TransactionMarker | None:
    """The transaction marker in a control batch; None for another kind of control batch."""
    kind, value = read_control_record(batch)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if len(value) < _MARKER.size:
        raise CorruptRecords("a transaction marker that is cut short")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptRecords(f"a transaction marker of version {version}")
    return TransactionMarker(kind == ControlType.COMMIT, coordinator_epoch)


def known_marker_in(header: BatchHeader, batch: Buffer) -> TransactionMarker | None:
    """The marker in a batch whose CRC is right; None without one. Compaction may have kept a control batch without its
    record, as the trace of a producer, and a marker of a newer version ends no transaction here."""
    if not (header.control and header.record_count):
        return None
    try:
        return read_transaction_marker(batch)
    except CorruptRecords:
        return None


class AbortedRecords:
    """Tells which batches a reader of committed records skips. Follows the batches of one answer, in order.

    An aborted transaction reaches from its first offset to its producer's next marker: the same producer may commit
    records behind the marker.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted`: producer id and first offset of each aborted transaction that reaches into these batches."""
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._under_way: set[int] = set()

    def skips(self, header: BatchHeader, batch: Buffer) -> bool:
        """True if the records of this batch were aborted. Has to be called for every batch, in order."""
        if not self._to_come and not self._under_way:
            return False
        while self._to_come and self._to_come[0][1] <= header.last_offset:
            self._under_way.add(self._to_come.popleft()[0])
        if not header.transactional:
            return False
        if header.control:
            marker = known_marker_in(header, batch)
            if marker is not None and not marker.committed:
                self._under_way.discard(header.producer_id)
            return False
        return header.producer_id in self._under_way


def read_leader_change(batch: Buffer) -> LeaderChange | None:
    """The change of leader in a control batch; None for another kind of control batch."""
    kind, value = read_control_record(batch)
    if kind != ControlType.LEADER_CHANGE:
        return None
    try:
        _, leader_id = _LEADER.unpack_from(value)
        voters, position = _read_voters(value, _LEADER.size)
        granting, position = _read_voters(value, position)
    except (struct.error, IndexError):
        raise CorruptRecords("a leader change that is cut short") from None
    return LeaderChange(leader_id, voters, granting)


def _write_voters(out: bytearray, voters: Sequence[int]) -> None:
    count = len(voters) + 1  # compact arrays: 0 would be null
    assert count < 0x80, "a quorum of more than 126 voters"
    out.append(count)
    for voter in voters:
        out += _VOTER.pack(voter, _NO_TAGGED_FIELDS)


def _read_voters(value: bytes, position: int) -> tuple[tuple[int, ...], int]:
    count = value[position]
    position += 1
    voters = []
    for _ in range(count - 1):
        voter, tagged = _VOTER.unpack_from(value, position)
        if tagged or count >= 0x80:
            raise CorruptRecords("a leader change of a version that is not known")
        voters.append(voter)
        position += _VOTER.size
    return tuple(voters), position
