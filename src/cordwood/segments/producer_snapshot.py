"""The snapshot of a partition's producers at an offset (`<offset>.snapshot`): recovery need not replay earlier batches.

int16 version 1, uint32 CRC-32C of all that follows, int32 count, then 46 bytes per producer. Kafka writes the last
batch of each producer only; this broker writes an entry per remembered batch (log/parts/producers.py), so a restart
keeps the window of known duplicates.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from cordwood.records.batch import Buffer
from cordwood.records.checksum import crc32c
from cordwood.segments.damaged import DamagedSnapshot

_VERSION = 1
_PREAMBLE = struct.Struct(">hIi")
_CRC_START = 6
_ENTRY = struct.Struct(">qhiqiqiq")
assert _ENTRY.size == 46

FORGOTTEN_EARLY = -1
"""The producer id of an entry whose timestamp says when a producer was last forgotten before its time. No producer has
this id, so Kafka takes the entry for a producer that never comes back."""


class ProducerSnapshotEntry(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1 (and last_offset -1) where only a transaction marker is known of this producer."""
    last_offset: int
    offset_delta: int
    """Last minus first offset of the last batch."""
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int
    """The first offset of the open transaction; -1: none is open."""


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """The content of a snapshot file."""
    body = [_ENTRY.pack(*entry) for entry in entries]
    data = bytearray(_PREAMBLE.pack(_VERSION, 0, len(body)))
    data += b"".join(body)
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CRC_START:]))
    return bytes(data)


def decode_snapshot(data: Buffer) -> list[ProducerSnapshotEntry]:
    """Reads the producers of a snapshot file. DamagedSnapshot if it is cut or its checksum is wrong."""
    if len(data) < _PREAMBLE.size:
        raise DamagedSnapshot(f"producer snapshot: {len(data)} bytes are too few")
    version, crc, count = _PREAMBLE.unpack_from(data)
    if version != _VERSION:
        raise DamagedSnapshot(f"producer snapshot: version {version} is unknown")
    view = memoryview(data)
    if crc32c(view[_CRC_START:]) != crc:
        raise DamagedSnapshot("producer snapshot: the CRC is wrong")
    if count < 0 or _PREAMBLE.size + count * _ENTRY.size != len(data):
        raise DamagedSnapshot(f"producer snapshot: {count} producers in {len(data)} bytes")
    return [ProducerSnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(view[_PREAMBLE.size :])]
