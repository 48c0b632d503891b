"""Built batches, byte for byte."""

import pytest

from cordwood.records.batch import Codec, crc_is_right, read_header
from cordwood.records.build import build_batch, build_batch_of_now
from cordwood.records.records import Record, records_in


def test_the_records_section_is_laid_out_as_kafka_has_it() -> None:
    batch = build_batch(
        [
            (1000, b"k", b"value", ()),
            (1001, None, None, (("h", b"x"), ("é", None))),
            (900, b"", b"v" * 70, ()),
        ]
    )
    assert bytes(batch[61:]) == (
        b"\x18\x00\x00\x00\x02k\x0avalue\x00"  # length 12: deltas 0 and 0, key of 1, value of 5, no headers
        b"\x1c\x00\x02\x02\x01\x01\x04\x02h\x02x\x04\xc3\xa9\x01"  # +1 ms, nulls are -1, two headers
        b"\x9c\x01\x00\xc7\x01\x04\x00\x8c\x01" + b"v" * 70 + b"\x00"  # -100 ms; 78 and 70 need two bytes
    )


def test_the_header_describes_the_records() -> None:
    batch = build_batch(
        [(5, None, b"a", ()), (9, None, b"b", ()), (7, None, b"c", ())],
        base_offset=100,
        leader_epoch=4,
        producer_id=77,
        producer_epoch=2,
        base_sequence=10,
        transactional=True,
    )
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 102, 3)
    assert (header.base_timestamp, header.max_timestamp) == (5, 9)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (77, 2, 10, 12)
    assert header.partition_leader_epoch == 4
    assert header.transactional
    assert not header.control
    assert crc_is_right(batch, 0, len(batch))


def test_survivors_of_compaction_keep_their_offsets_and_the_batch_its_end() -> None:
    batch = build_batch(
        [(5, b"a", b"1", ()), (6, b"b", b"2", ())], base_offset=50, offset_deltas=[3, 7], last_offset_delta=9
    )
    assert [record.offset for record in records_in(batch)] == [53, 57]
    assert read_header(batch).last_offset == 59


def test_a_delete_horizon_takes_the_base_timestamps_place_and_timestamps_stay() -> None:
    batch = build_batch([(5, b"a", None, ()), (6, b"b", b"2", ())], delete_horizon_ms=10_000)
    header = read_header(batch)
    assert header.delete_horizon_ms == 10_000
    assert header.max_timestamp == 6
    assert [record.timestamp_ms for record in records_in(batch)] == [5, 6]


@pytest.mark.parametrize("codec", list(Codec))
def test_an_emptied_batch_keeps_its_producers_place(codec: Codec) -> None:
    batch = build_batch(
        [], base_offset=20, last_offset_delta=4, producer_id=9, producer_epoch=0, base_sequence=3, codec=codec
    )
    header = read_header(batch)
    assert (header.size, header.record_count, header.last_offset, header.last_sequence) == (61, 0, 24, 7)
    assert list(records_in(batch)) == []


def test_append_time_is_every_records_time() -> None:
    batch = build_batch([(5, b"a", None, ())], log_append_time_ms=123)
    assert read_header(batch).log_append_time
    assert list(records_in(batch)) == [Record(0, 123, b"a", None, ())]


def test_as_many_offset_deltas_as_records_are_needed() -> None:
    with pytest.raises(ValueError, match="1 offset deltas for 2 records"):
        build_batch([(5, None, b"", ()), (5, None, b"", ())], offset_deltas=[0])


def test_any_buffer_can_be_a_key_or_value() -> None:
    batch = build_batch([(5, memoryview(b"key"), bytearray(b"value"), ())])
    assert list(records_in(batch)) == [Record(0, 5, b"key", b"value", ())]


@pytest.mark.parametrize("transactional", [False, True])
def test_a_batch_of_one_time_is_the_same_in_short(transactional: bool) -> None:
    records = [(b"k", b"value"), (b"gone", None), (b"", b""), (b"k" * 100, b"v" * 5000)] * 50
    short = build_batch_of_now(records, 1_000, producer_id=7, producer_epoch=3, transactional=transactional)
    rows = [(1_000, key, value, ()) for key, value in records]
    assert short == build_batch(rows, producer_id=7, producer_epoch=3, transactional=transactional)
