"""The snapshot of producers: Kafka's bytes, and nothing that was not written."""

import struct

import pytest
from crc32c import crc32c

from cordwood.segments.damaged import DamagedSnapshot
from cordwood.segments.producer_snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot

ENTRIES = [
    ProducerSnapshotEntry(4000, 3, 99, 1234, 9, 1_700_000_000_000, -1, -1),
    ProducerSnapshotEntry(4001, 0, -1, -1, 0, 1_700_000_000_001, 5, 1200),
]


def test_a_snapshot_is_a_version_a_crc_a_count_and_46_bytes_per_producer() -> None:
    data = encode_snapshot(ENTRIES)
    body = struct.pack(">i", 2) + b"".join(struct.pack(">qhiqiqiq", *entry) for entry in ENTRIES)
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    assert len(data) == 10 + 2 * 46


def test_what_was_written_is_read_back() -> None:
    assert decode_snapshot(encode_snapshot(ENTRIES)) == ENTRIES
    assert decode_snapshot(encode_snapshot([])) == []


def test_no_flipped_bit_and_no_cut_goes_unnoticed() -> None:
    data = encode_snapshot(ENTRIES)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(DamagedSnapshot):
            decode_snapshot(damaged)
        with pytest.raises(DamagedSnapshot):
            decode_snapshot(data[:position])


def test_a_count_that_does_not_fit_is_refused_even_with_a_right_crc() -> None:
    for count in (-1, 0, 2, 2**31 - 1):
        body = struct.pack(">i", count) + struct.pack(">qhiqiqiq", *ENTRIES[0])
        with pytest.raises(DamagedSnapshot, match="producers in"):
            decode_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)
