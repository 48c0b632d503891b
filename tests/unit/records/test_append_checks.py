"""What a client's batch must be before the log takes it, with the error code that Kafka gives."""

import random
import struct
from dataclasses import replace

import pytest
from crc32c import crc32c

from cordwood.model.errors import ErrorCode
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import Codec
from cordwood.records.build import NewRecord, PackedNewRecord, build_batch
from cordwood.records.compression import compress
from cordwood.records.control import TransactionMarker, build_transaction_marker
from cordwood.records.corruption import CorruptRecords
from cordwood.records.record_rules import MAX_HEADERS, MAX_OPENED, MAX_RECORD_ERRORS
from cordwood.records.records import LEAST_RECORD_BYTES, PackedHeaders, max_record_count, packed_records_in
from cordwood.records.validate import InvalidBatch, check_client_batch

NOW_MS = 1_700_000_000_000
PLAIN = TopicSettings()
COMPACTED = TopicSettings(cleanup_policy=("compact",))
APPEND_TIME = TopicSettings(message_timestamp_type="LogAppendTime")
RECENT_ONLY = TopicSettings(message_timestamp_before_max_ms=1000)


def record(timestamp_ms: int = NOW_MS, key: bytes | None = b"key") -> NewRecord:
    return timestamp_ms, key, b"value", ()


def changed(batch: bytearray, position: int, layout: str, value: int) -> bytearray:
    """The batch with one field changed and a CRC that fits."""
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def refusal(records: bytes | bytearray, settings: TopicSettings = PLAIN) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as caught:
        check_client_batch(memoryview(records), settings, NOW_MS)
    return caught.value


@pytest.mark.parametrize("settings", [PLAIN, COMPACTED, APPEND_TIME, RECENT_ONLY])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_is_taken_and_left_as_it_is(codec: Codec, settings: TopicSettings) -> None:
    batch = build_batch(
        [record(), record(NOW_MS + 5), record(NOW_MS - 5)],
        codec=codec,
        producer_id=4,
        producer_epoch=0,
        base_sequence=0,
    )
    before = bytes(batch)
    header = check_client_batch(memoryview(batch), settings, NOW_MS)
    assert header.record_count == 3
    assert header.size == len(batch)
    assert batch == before


def test_exactly_one_whole_batch_is_needed() -> None:
    batch = build_batch([record()])
    for wrong in (b"", bytes(batch[:60]), bytes(batch[:-1]), bytes(batch + batch), bytes(batch) + b"\x00"):
        assert refusal(wrong).code == ErrorCode.INVALID_RECORD


def test_a_length_that_no_batch_has_is_corruption() -> None:
    for length in (-1, 0, 48):
        assert refusal(changed(build_batch([record()]), 8, ">i", length)).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_only_magic_2_is_taken(magic: int) -> None:
    assert refusal(changed(build_batch([record()]), 16, ">b", magic)).code == ErrorCode.INVALID_RECORD


def test_a_flipped_bit_is_corruption_wherever_it_is() -> None:
    batch = build_batch([record()])
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 1
        assert refusal(damaged).code == ErrorCode.CORRUPT_MESSAGE


def test_the_largest_batch_is_max_message_bytes_long() -> None:
    batch = build_batch([record()])
    check_client_batch(batch, replace(PLAIN, max_message_bytes=len(batch)), NOW_MS)
    assert refusal(batch, replace(PLAIN, max_message_bytes=len(batch) - 1)).code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(("count", "last_offset_delta"), [(0, 0), (0, -1), (-1, -2), (1, 0), (3, 2), (2, 2), (2, 0)])
def test_the_record_count_must_agree_with_the_offsets(count: int, last_offset_delta: int) -> None:
    batch = changed(build_batch([record(), record()]), 57, ">i", count)
    batch = changed(batch, 23, ">i", last_offset_delta)
    if count > 0 and count == last_offset_delta + 1:
        # Two records that claim to be one or three: believed, unless the topic's settings have them opened.
        check_client_batch(batch, PLAIN, NOW_MS)
        assert refusal(batch, COMPACTED).code == ErrorCode.INVALID_RECORD
    else:
        assert refusal(batch).code == ErrorCode.INVALID_RECORD


def test_clients_write_no_control_batches() -> None:
    marker = build_transaction_marker(TransactionMarker(True, 0), producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)
    assert refusal(marker).code == ErrorCode.INVALID_RECORD


def test_clients_set_no_delete_horizon() -> None:
    assert refusal(build_batch([record()], delete_horizon_ms=NOW_MS)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch", "base_sequence", "transactional"),
    [(5, 0, -1, False), (5, -1, 0, False), (5, -1, -1, False), (-1, -1, -1, True), (-2, 0, 0, False)],
)
def test_a_producer_has_an_id_an_epoch_and_a_sequence_or_none_of_them(
    producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
) -> None:
    batch = build_batch(
        [record()],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    assert refusal(batch).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("settings", [PLAIN, APPEND_TIME])
def test_only_the_broker_may_say_that_it_stamped_a_batch(settings: TopicSettings) -> None:
    batch = build_batch([record()], log_append_time_ms=NOW_MS)
    assert refusal(batch, settings).code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_nobody_knows_are_not_supported(codec: int) -> None:
    batch = changed(build_batch([record()]), 21, ">h", codec)
    assert refusal(batch).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_record_may_be_ahead_of_the_brokers_clock_by_an_hour_and_no_more() -> None:
    hour_ms = 3_600_000
    check_client_batch(build_batch([record(NOW_MS + hour_ms)]), PLAIN, NOW_MS)
    error = refusal(build_batch([record(), record(NOW_MS + hour_ms + 1), record()]))
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]
    assert str(NOW_MS + hour_ms + 1) in error.record_errors[0][1]


def test_a_header_that_claims_a_later_time_than_its_records_have_is_refused() -> None:
    batch = changed(build_batch([record()]), 35, ">q", NOW_MS + 10**9)
    error = refusal(batch)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert error.record_errors == ()


@pytest.mark.parametrize("settings", [PLAIN, COMPACTED, RECENT_ONLY])
def test_of_a_batch_that_is_too_late_records_are_named_only_if_that_is_cheap(settings: TopicSettings) -> None:
    late = record(NOW_MS + 10**9)
    many = build_batch([late] * 1001)
    large = build_batch([(*late[:2], bytes(300_000), ())], codec=Codec.ZSTD)
    garbage = changed(build_batch([late], codec=Codec.ZSTD), 61, ">q", 0)
    for batch in (many, large, garbage):
        error = refusal(batch, settings)
        assert error.code == ErrorCode.INVALID_TIMESTAMP
        assert error.record_errors == ()
    few = build_batch([late] * 1000, codec=Codec.ZSTD)
    assert [index for index, _ in refusal(few, settings).record_errors] == list(range(MAX_RECORD_ERRORS))


def test_a_record_may_be_as_old_as_the_topic_allows() -> None:
    check_client_batch(build_batch([record(0)]), PLAIN, NOW_MS)
    check_client_batch(build_batch([record(NOW_MS - 1000)]), RECENT_ONLY, NOW_MS)
    # The header's timestamps are the first record's and the latest: the oldest is found only by opening the batch.
    error = refusal(build_batch([record(), record(NOW_MS - 1001), record()]), RECENT_ONLY)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]


def test_a_record_without_a_timestamp_is_not_out_of_bounds() -> None:
    check_client_batch(build_batch([record(-1)]), RECENT_ONLY, NOW_MS)


def test_the_producers_clock_does_not_matter_where_the_broker_stamps() -> None:
    settings = replace(APPEND_TIME, message_timestamp_before_max_ms=1000)
    check_client_batch(build_batch([record(NOW_MS + 10**9), record(5)]), settings, NOW_MS)


def test_compacted_topics_need_a_key_in_every_record() -> None:
    batch = build_batch([record(), record(key=None), record(key=b""), record(key=None)])
    error = refusal(batch, COMPACTED)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3]
    check_client_batch(batch, PLAIN, NOW_MS)


def test_so_many_records_at_fault_are_named_and_no_more() -> None:
    named = list(range(1, MAX_RECORD_ERRORS + 1))
    for settings, wrong, code in (
        (COMPACTED, record(key=None), ErrorCode.INVALID_RECORD),
        (RECENT_ONLY, record(NOW_MS - 1001), ErrorCode.INVALID_TIMESTAMP),
    ):
        error = refusal(build_batch([record()] + [wrong] * 5000), settings)
        assert error.code == code
        assert [index for index, _ in error.record_errors] == named


@pytest.mark.parametrize("headers", [b"\x02\x01\x01", b"\x02\x00\x03", b"\x04\x00\x01", b"\x02\x00\x01\x00"])
def test_malformed_headers_are_refused_where_records_are_opened(headers: bytes) -> None:
    batch = build_batch([(NOW_MS, b"key", b"value", PackedHeaders(headers))])
    for settings in (COMPACTED, RECENT_ONLY):
        assert refusal(batch, settings).code == ErrorCode.INVALID_RECORD
    check_client_batch(batch, PLAIN, NOW_MS)


def test_headers_are_looked_at_up_to_a_number_for_the_whole_batch() -> None:
    half = PackedHeaders(b"\xa0\xc2\x1e" + b"\x00\x01" * (MAX_HEADERS // 2))
    rows: list[NewRecord | PackedNewRecord] = [(NOW_MS, b"key", None, half)] * 2
    check_client_batch(build_batch(rows, codec=Codec.ZSTD), COMPACTED, NOW_MS)
    rows.append((NOW_MS, b"key", None, (("one", b"more"),)))
    batch = build_batch(rows, codec=Codec.ZSTD)
    error = refusal(batch, COMPACTED)
    assert error.code == ErrorCode.INVALID_RECORD
    assert "more headers" in error.message
    check_client_batch(batch, PLAIN, NOW_MS)


def test_a_batch_that_is_not_compressed_may_have_as_many_headers_as_fit() -> None:
    all_of_them = PackedHeaders(b"\xc2\x84\x3d" + b"\x00\x01" * (MAX_HEADERS + 1))
    batch = build_batch([(NOW_MS, b"key", None, all_of_them)])
    check_client_batch(batch, COMPACTED, NOW_MS)


def test_records_are_opened_up_to_a_number_and_more_are_for_the_client_to_split() -> None:
    # Its bytes do not compress: there are enough of them for so many records.
    noise = random.Random(1).randbytes(MAX_OPENED // 7)
    batch = build_batch([(NOW_MS, b"key", noise, ())], codec=Codec.ZSTD)
    for position, value in ((23, MAX_OPENED), (57, MAX_OPENED + 1)):
        batch = changed(batch, position, ">i", value)
    for settings in (COMPACTED, RECENT_ONLY):
        assert refusal(batch, settings).code == ErrorCode.MESSAGE_TOO_LARGE
    check_client_batch(batch, PLAIN, NOW_MS)
    for position, value in ((23, MAX_OPENED - 1), (57, MAX_OPENED)):
        batch = changed(batch, position, ">i", value)
    assert refusal(batch, COMPACTED).code == ErrorCode.INVALID_RECORD, "opened, and found to have fewer"


def claiming(batch: bytearray, count: int) -> bytearray:
    for position, value in ((23, count - 1), (57, count)):
        batch = changed(batch, position, ">i", value)
    return batch


def test_a_batch_claims_no_more_records_than_its_bytes_can_hold() -> None:
    empty = claiming(build_batch([record()])[:61], 2**31 - 1)
    struct.pack_into(">i", empty, 8, 61 - 12)
    assert refusal(changed(empty, 57, ">i", 2**31 - 1)).code == ErrorCode.INVALID_RECORD
    for count in (1, 63, 64, 10_000):
        smallest = build_batch([(0, None, None, ())] * count)
        check_client_batch(smallest, PLAIN, NOW_MS)
        most = (len(smallest) - 61) // LEAST_RECORD_BYTES
        check_client_batch(claiming(smallest, most), PLAIN, NOW_MS)
        assert "at most" in refusal(claiming(smallest, most + 1)).message


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("count", [1, 1000, 50_000])
def test_the_densest_batches_that_codecs_write_are_taken(codec: Codec, count: int) -> None:
    batch = build_batch([(0, None, None, ())] * count, codec=codec)
    check_client_batch(batch, PLAIN, NOW_MS)
    assert count * 4 < max_record_count(len(batch) - 61, codec), "a wide margin"
    assert "at most" in refusal(claiming(batch, max_record_count(len(batch) - 61, codec) + 1)).message


def test_a_small_batch_of_millions_of_equal_records_is_not_read_beyond_the_second() -> None:
    one = b"\x0c\x00\x00\x00\x01\x01\x00"
    bomb = claiming(build_batch([record()]), 1_000_000)
    bomb[61:] = compress(Codec.ZSTD, one * 1_000_000)
    bomb = changed(bomb, 21, ">h", Codec.ZSTD)
    struct.pack_into(">i", bomb, 8, len(bomb) - 12)
    walk = packed_records_in(bomb)
    assert next(walk).offset == 0
    with pytest.raises(CorruptRecords, match="do not rise"):
        next(walk)
    assert refusal(changed(bomb, 57, ">i", 1_000_000)).code == ErrorCode.INVALID_RECORD


def test_offsets_within_a_batch_count_up_one_by_one() -> None:
    batch = build_batch([record(), record()], offset_deltas=[1, 0], last_offset_delta=1)
    assert refusal(batch, COMPACTED).code == ErrorCode.INVALID_RECORD


def test_records_that_cannot_be_opened_are_refused_where_they_must_be() -> None:
    batch = build_batch([record()], codec=Codec.LZ4)
    batch[70:] = bytes(len(batch) - 70)
    batch = changed(batch, 57, ">i", 1)
    assert refusal(batch, COMPACTED).code == ErrorCode.INVALID_RECORD
