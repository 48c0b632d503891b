"""Record batches under arbitrary records and arbitrary damage."""

import struct
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples

from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import Codec, read_header
from cordwood.records.build import NewRecord, build_batch
from cordwood.records.compression import compress, decompress
from cordwood.records.control import read_leader_change, read_transaction_marker
from cordwood.records.corruption import CorruptRecords
from cordwood.records.records import Record, count_headers, packed_records_in, records_in
from cordwood.records.validate import InvalidBatch, check_client_batch

NOW_MS = 1_700_000_000_000

timestamps = st.one_of(st.integers(NOW_MS - 10**6, NOW_MS + 10**6), st.integers(-1, 2**62))
payloads = st.one_of(st.none(), st.binary(max_size=80), st.integers(0, 9000).map(lambda size: bytes(size)))
header_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
headers = st.lists(st.tuples(header_names, st.one_of(st.none(), st.binary(max_size=20))), max_size=3).map(tuple)
new_records = st.tuples(timestamps, payloads, payloads, headers)
codecs = st.sampled_from(Codec)


@given(st.lists(new_records, min_size=1, max_size=20), codecs, st.integers(0, 2**60))
def test_records_come_back_as_they_went_in(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    read = list(records_in(batch))
    assert [tuple(record[1:]) for record in read] == records
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(records)))
    header = read_header(batch)
    assert header.size == len(batch)
    assert header.max_timestamp == max(record[0] for record in records)


@given(st.lists(new_records, min_size=1, max_size=5), st.data())
def test_survivors_keep_offsets_timestamps_and_content(records: list[NewRecord], data: st.DataObject) -> None:
    deltas = sorted(data.draw(st.sets(st.integers(0, 2**31 - 1), min_size=len(records), max_size=len(records))))
    horizon_ms = data.draw(st.none() | st.integers(0, 2**50))
    batch = build_batch(records, base_offset=7, offset_deltas=deltas, delete_horizon_ms=horizon_ms)
    read = list(records_in(batch))
    assert [tuple(record[1:]) for record in read] == records
    assert [record.offset - 7 for record in read] == deltas


@given(codecs, st.binary(max_size=2000), st.integers(1, 50))
def test_every_codec_gives_back_what_it_got(codec: Codec, data: bytes, repeats: int) -> None:
    whole = data * repeats
    assert decompress(codec, compress(codec, whole), len(whole)) == whole


@given(codecs, st.binary(max_size=300), st.integers(0, 5000))
def test_arbitrary_bytes_are_decompressed_within_bounds_or_refused(codec: Codec, data: bytes, max_size: int) -> None:
    with suppress(CorruptRecords):
        assert len(decompress(codec, data, max_size)) <= max_size


mutations = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6)


def mutated(batch: bytearray, changes: list[tuple[int, int]], *, from_position: int) -> bytearray:
    for place, value in changes:
        batch[from_position + place % (len(batch) - from_position)] = value
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


@settings(max_examples=examples(400))
@given(st.lists(new_records, min_size=1, max_size=4), codecs, mutations, st.sampled_from([0, 57, 61]))
def test_mutated_batches_are_read_or_called_corrupt_and_nothing_else(
    records: list[NewRecord], codec: Codec, changes: list[tuple[int, int]], from_position: int
) -> None:
    batch = mutated(build_batch(records, codec=codec), changes, from_position=from_position)
    with suppress(CorruptRecords):
        list(records_in(batch, 10**6))
    with suppress(CorruptRecords):
        read_transaction_marker(batch)
    with suppress(CorruptRecords):
        read_leader_change(batch)


@settings(max_examples=examples(400))
@given(st.lists(new_records, min_size=1, max_size=4), mutations, st.sampled_from([57, 61]))
def test_headers_that_stay_packed_are_found_malformed_as_opened_ones_are(
    records: list[NewRecord], changes: list[tuple[int, int]], from_position: int
) -> None:
    batch = mutated(build_batch(records), changes, from_position=from_position)
    opened: list[Record] | None = None
    with suppress(CorruptRecords):
        opened = list(records_in(batch))
    try:
        packed = list(packed_records_in(batch))
        counts = [count_headers(record.headers, 10**6) for record in packed]
    except CorruptRecords:
        assert opened is None
        return
    assert opened is not None
    assert [record[:4] for record in packed] == [record[:4] for record in opened]
    assert counts == [len(record.headers) for record in opened]
    again = build_batch([(0, None, None, record.headers) for record in packed])
    assert [record.headers for record in records_in(again)] == [record.headers for record in opened]


STRICT = TopicSettings(cleanup_policy=("compact",), message_timestamp_before_max_ms=10**6)


@settings(max_examples=examples(400))
@given(st.lists(new_records, min_size=1, max_size=4), codecs, mutations, st.sampled_from([0, 21, 57, 61]))
def test_mutated_batches_are_taken_or_refused_and_nothing_else(
    records: list[NewRecord], codec: Codec, changes: list[tuple[int, int]], from_position: int
) -> None:
    """With a CRC that fits: what a hostile client could send."""
    batch = mutated(build_batch(records, codec=codec), changes, from_position=from_position)
    for topic_settings in (TopicSettings(), STRICT):
        try:
            header = check_client_batch(memoryview(batch), topic_settings, NOW_MS)
        except InvalidBatch:
            continue
        assert header.record_count == header.last_offset_delta + 1
        if topic_settings is STRICT:
            assert all(record.key is not None for record in records_in(batch))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecords):
        list(records_in(data))
    with pytest.raises(InvalidBatch):
        check_client_batch(data, STRICT, NOW_MS)
