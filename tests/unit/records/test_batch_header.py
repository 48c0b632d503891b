"""The header of a batch: its fields are where Kafka has them, and a broker sets only what the CRC leaves free."""

from crc32c import crc32c

from cordwood.records.batch import (
    HEADER_SIZE,
    assign_offset,
    batches_in,
    crc_is_right,
    read_header,
    read_offset_and_size,
    stamp_append_time,
)
from cordwood.records.build import build_batch
from cordwood.records.records import records_in

FIELDS = (
    b"\x00\x00\x00\x00\x00\x00\x01\x00"  # base offset 256
    b"\x00\x00\x00\x31"  # length 49: a header and no records
    b"\x00\x00\x00\x07"  # leader epoch 7
    b"\x02"  # magic
    b"\xfe\xdc\xba\x98"  # CRC
    b"\x00\x54"  # delete horizon, transactional, zstd
    b"\x00\x00\x00\x09"  # last offset delta 9
    b"\x00\x00\x01\x8b\xcf\xe5\x68\x00"  # base timestamp
    b"\x00\x00\x01\x8b\xcf\xe5\x68\x05"  # max timestamp
    b"\x00\x00\x00\x00\x00\x00\x0f\xa0"  # producer id 4000
    b"\x00\x03"  # producer epoch 3
    b"\x7f\xff\xff\xff"  # base sequence 2147483647
    b"\x00\x00\x00\x0a"  # 10 records
)


def test_every_field_is_read_from_its_place() -> None:
    header = read_header(FIELDS)
    assert header == (
        256,
        49,
        7,
        2,
        0xFEDCBA98,
        0x54,
        9,
        1_700_000_000_000,
        1_700_000_000_005,
        4000,
        3,
        2_147_483_647,
        10,
    )
    assert (header.size, header.last_offset, header.next_offset) == (HEADER_SIZE, 265, 266)
    assert header.transactional
    assert not header.control
    assert not header.log_append_time
    assert header.codec == 4
    assert header.delete_horizon_ms == 1_700_000_000_000
    assert read_offset_and_size(FIELDS) == (256, 61)


def test_sequence_numbers_go_on_at_zero_after_the_largest() -> None:
    header = read_header(FIELDS)
    assert header.last_sequence == 8
    assert header._replace(base_sequence=5).last_sequence == 14
    assert header._replace(base_sequence=-1).last_sequence == -1


def test_an_offset_is_assigned_without_touching_what_the_crc_covers() -> None:
    batch = build_batch([(1, b"k", b"v", ())])
    covered = bytes(batch[21:])
    assign_offset(batch, 2**40, 12)
    assert read_header(batch).base_offset == 2**40
    assert read_header(batch).partition_leader_epoch == 12
    assert bytes(batch[21:]) == covered
    assert crc_is_right(batch, 0, len(batch))


def test_append_time_is_stamped_with_a_new_crc_and_read_back_for_every_record() -> None:
    batch = build_batch([(1, b"k", b"v", ()), (2, b"k", b"w", ())])
    stamp_append_time(memoryview(batch), 99)
    assert crc_is_right(batch, 0, len(batch))
    assert read_header(batch).log_append_time
    assert [record.timestamp_ms for record in records_in(batch)] == [99, 99]


def test_a_flipped_bit_under_the_crc_is_seen_at_any_position() -> None:
    batch = build_batch([(1, b"key", b"value", ())])
    at_5 = bytes(5) + bytes(batch)
    assert crc_is_right(at_5, 5, len(batch))
    for position in range(17, len(batch)):
        damaged = bytearray(at_5)
        damaged[5 + position] ^= 0x10
        assert not crc_is_right(damaged, 5, len(batch)), position


def test_batches_follow_each_other_until_one_is_cut_short() -> None:
    one, two = build_batch([(1, None, b"a", ())]), build_batch([(1, None, b"bc", ())], base_offset=1)
    both = bytes(one + two)
    assert [(position, header.base_offset) for position, header in batches_in(both)] == [(0, 0), (len(one), 1)]
    for cut in range(len(one), len(both)):
        assert len(list(batches_in(both[:cut]))) == 1
    assert list(batches_in(bytes(200))) == []  # zeros: a length of 0 is no batch


def test_the_crc_in_a_built_batch_is_castagnolis_over_all_from_the_attributes_on() -> None:
    batch = bytes(build_batch([(1, b"k", b"v", ())]))
    assert read_header(batch).crc == crc32c(batch[21:])
    assert crc32c(b"123456789") == 0xE3069283  # the published check value
