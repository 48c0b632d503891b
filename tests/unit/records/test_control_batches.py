"""Control batches: markers and leader changes, as bytes and back."""

import pytest

from cordwood.records.batch import crc_is_right, read_header
from cordwood.records.build import build_batch
from cordwood.records.control import (
    AbortedRecords,
    ControlRecord,
    LeaderChange,
    TransactionMarker,
    build_leader_change,
    build_transaction_marker,
    read_control_record,
    read_leader_change,
    read_transaction_marker,
)
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import records_in


@pytest.mark.parametrize(("committed", "kind"), [(True, 1), (False, 0)])
def test_a_marker_is_a_transactional_control_batch_of_one_record(committed: bool, kind: int) -> None:
    marker = TransactionMarker(committed, 5)
    batch = build_transaction_marker(
        marker, producer_id=7, producer_epoch=3, timestamp_ms=1000, base_offset=40, leader_epoch=2
    )
    header = read_header(batch)
    assert header.control
    assert header.transactional
    assert crc_is_right(batch, 0, len(batch))
    assert (header.base_offset, header.last_offset, header.record_count) == (40, 40, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert (header.partition_leader_epoch, header.max_timestamp) == (2, 1000)
    (record,) = records_in(batch)
    assert record.key == bytes([0, 0, 0, kind])
    assert record.value == b"\x00\x00\x00\x00\x00\x05"
    assert read_transaction_marker(batch) == marker
    assert read_leader_change(batch) is None


def test_a_leader_change_names_the_leader_and_its_voters() -> None:
    change = LeaderChange(2, (1, 2, 3), (2, 3))
    batch = build_leader_change(change, timestamp_ms=1000)
    header = read_header(batch)
    assert header.control
    assert not header.transactional
    (record,) = records_in(batch)
    assert record.key == b"\x00\x00\x00\x02"
    assert (
        record.value
        == (
            b"\x00\x00" + b"\x00\x00\x00\x02"  # version 0, leader 2
            b"\x04" + b"\x00\x00\x00\x01\x00" + b"\x00\x00\x00\x02\x00" + b"\x00\x00\x00\x03\x00"
            b"\x03" + b"\x00\x00\x00\x02\x00" + b"\x00\x00\x00\x03\x00"
            b"\x00"
        )
    )
    assert read_leader_change(batch) == change
    assert read_transaction_marker(batch) is None


def test_a_type_of_a_newer_version_is_passed_on_and_not_understood() -> None:
    batch = build_batch([(1, b"\x00\x00\x00\x2a", b"new", ())], control=True)
    assert read_control_record(batch) == ControlRecord(42, b"new")
    assert read_transaction_marker(batch) is None
    assert read_leader_change(batch) is None


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        build_batch([(1, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", ())]),
        build_batch([(1, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", ())] * 2, control=True),
        build_batch([(1, b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00", ())], control=True),
        build_batch([(1, None, b"\x00\x00\x00\x00\x00\x00", ())], control=True),
        build_batch([(1, b"\x00\x00\x00\x01", b"\x00\x00\x00", ())], control=True),
        build_batch([(1, b"\x00\x00\x00\x01", None, ())], control=True),
        build_batch([(1, b"\xff\xff\x00\x01", b"\x00\x00\x00\x00\x00\x00", ())], control=True),
        build_batch([(1, b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x00", ())], control=True),
    ],
    ids=["empty", "not-control", "two", "short-key", "no-key", "short", "no-value", "key-version", "version"],
)
def test_what_is_not_a_marker_is_called_corrupt(batch: bytes) -> None:
    with pytest.raises(CorruptRecords):
        read_transaction_marker(batch)


def test_a_leader_change_that_is_cut_short_is_called_corrupt() -> None:
    whole = build_leader_change(LeaderChange(2, (1, 2, 3), (2, 3)), timestamp_ms=1000)
    value = read_control_record(whole).value
    for cut in range(len(value) - 1):
        batch = build_batch([(1, b"\x00\x00\x00\x02", value[:cut], ())], control=True)
        with pytest.raises(CorruptRecords):
            read_leader_change(batch)


def test_a_reader_of_committed_records_skips_aborted_ones_up_to_the_marker_of_their_producer() -> None:
    def data(offset: int) -> bytearray:
        how = {"producer_id": 7, "producer_epoch": 0, "base_sequence": offset, "transactional": True}
        return build_batch([(0, None, b"v", ())], base_offset=offset, **how)  # type: ignore[arg-type]

    # Compaction keeps the last batch of a producer without its records, also a marker.
    emptied = build_batch([], base_offset=1, producer_id=7, base_sequence=-1, transactional=True, control=True)
    marker = build_transaction_marker(
        TransactionMarker(committed=False, coordinator_epoch=0),
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=3,
    )
    aborted = AbortedRecords([(7, 0)])
    found = [aborted.skips(read_header(batch), batch) for batch in (data(0), emptied, data(2), marker, data(4))]
    assert found == [True, False, True, False, False]
