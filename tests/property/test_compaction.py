"""Compaction against a dict: of every key the latest record stays, at its old offset, and nothing else is touched."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.seeds import examples

from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.log.rewriting.compaction import BYTES_PER_KEY, CompactionJob, CompactionResult, compact
from cordwood.records.batch import CRC_POSITION, CRC_START, HEADER_SIZE, Codec, read_header
from cordwood.records.build import build_batch
from cordwood.records.checksum import crc32c
from cordwood.records.records import PackedHeaders, PackedRecord, Record, packed_records_in, records_in
from cordwood.segments.filesystem import Filesystem
from cordwood.segments.names import Stage, Suffix, segment_file
from cordwood.segments.offset_index import OffsetIndex
from cordwood.segments.rebuild import rebuild
from cordwood.segments.scan import SegmentScan

BASE_TIMESTAMP = 27
"""Its place in a batch."""
DIRECTORY = "t-0"
RETENTION_MS = 1000

Row = tuple[bytes, bytes | None]
rows = st.tuples(st.sampled_from([b"a", b"b", b"c", b"k" * 40]), st.none() | st.binary(max_size=4))
batches = st.lists(rows, min_size=1, max_size=4)
segments_of_batches = st.lists(st.lists(batches, min_size=1, max_size=4), min_size=1, max_size=4)


def write(filesystem: Filesystem, segments: list[list[list[Row]]], codec: int) -> tuple[list[int], list[int], int]:
    """Base offsets, sizes and the end of segments with these rows."""
    filesystem.make_directory(DIRECTORY)
    bases, sizes, offset = [], [], 0
    for segment in segments:
        bases.append(offset)
        file = filesystem.open(segment_file(DIRECTORY, offset, Suffix.LOG), create=True)
        for batch in segment:
            records = [(100 + index, key, value, ()) for index, (key, value) in enumerate(batch)]
            file.append(build_batch(records, base_offset=offset, codec=codec))
            offset += len(batch)
        sizes.append(file.size)
    return bases, sizes, offset


def job(
    bases: list[int], sizes: list[int], end: int, *, now_ms: int = 0, dirty: int = 0, keys: int = 1000
) -> CompactionJob:
    return CompactionJob(
        DIRECTORY,
        tuple(bases),
        tuple(sizes),
        dirty,
        end,
        now_ms,
        RETENTION_MS,
        1 << 30,
        10 << 20,
        64,
        keys * BYTES_PER_KEY,
    )


def swap(filesystem: Filesystem, result: CompactionResult) -> None:
    for old, new in result.replacements:
        for base in old:
            filesystem.remove(segment_file(DIRECTORY, base, Suffix.LOG))
        filesystem.rename(
            segment_file(DIRECTORY, new, Suffix.LOG, Stage.CLEANED), segment_file(DIRECTORY, new, Suffix.LOG)
        )


def read_all(filesystem: Filesystem) -> list[Record]:
    records: list[Record] = []
    for name in filesystem.list(DIRECTORY):
        if name.endswith(".log"):
            scan = SegmentScan(filesystem.open(f"{DIRECTORY}/{name}"), int(name.partition(".")[0]))
            for _ in scan:
                records += records_in(scan.batch)
            assert scan.invalid is None
    return records


@settings(max_examples=examples(150), deadline=None)
@given(segments_of_batches, st.sampled_from(list(Codec)))
def test_the_latest_record_of_every_key_stays_at_its_offset(segments: list[list[list[Row]]], codec: Codec) -> None:
    filesystem = MemoryFilesystem()
    bases, sizes, end = write(filesystem, segments, codec)
    before = read_all(filesystem)
    result = compact(filesystem, job(bases, sizes, end))
    assert result.clean_offset == end
    swap(filesystem, result)
    latest = {record.key: record for record in before}
    assert read_all(filesystem) == sorted(latest.values(), key=lambda record: record.offset)


@settings(max_examples=examples(100), deadline=None)
@given(segments_of_batches)
def test_tombstones_stay_for_their_retention_and_go_after_it(segments: list[list[list[Row]]]) -> None:
    filesystem = MemoryFilesystem()
    bases, sizes, end = write(filesystem, segments, Codec.NONE)
    latest = {record.key: record for record in read_all(filesystem)}
    swap(filesystem, compact(filesystem, job(bases, sizes, end, now_ms=50)))

    def again(now_ms: int) -> list[Record]:
        names = [name for name in filesystem.list(DIRECTORY) if name.endswith(".log")]
        bases = [int(name.partition(".")[0]) for name in names]
        sizes = [filesystem.open(f"{DIRECTORY}/{name}").size for name in names]
        swap(filesystem, compact(filesystem, job(bases, sizes, end, now_ms=now_ms, dirty=end)))
        return read_all(filesystem)

    in_order = sorted(latest.values(), key=lambda record: record.offset)
    assert again(50 + RETENTION_MS - 1) == in_order
    assert again(50 + RETENTION_MS) == [record for record in in_order if record.value is not None]


@settings(max_examples=examples(100), deadline=None)
@given(segments_of_batches, st.integers(1, 3))
def test_with_little_memory_several_rounds_come_to_the_same_end(segments: list[list[list[Row]]], keys: int) -> None:
    filesystem = MemoryFilesystem()
    bases, sizes, end = write(filesystem, segments, Codec.NONE)
    latest = {record.key: record for record in read_all(filesystem)}
    dirty = 0
    while dirty < end:
        names = [name for name in filesystem.list(DIRECTORY) if name.endswith(".log")]
        bases = [int(name.partition(".")[0]) for name in names]
        sizes = [filesystem.open(f"{DIRECTORY}/{name}").size for name in names]
        result = compact(filesystem, job(bases, sizes, end, dirty=dirty, keys=keys))
        assert result.clean_offset > dirty
        swap(filesystem, result)
        dirty = result.clean_offset
    assert read_all(filesystem) == sorted(latest.values(), key=lambda record: record.offset)


def files(filesystem: Filesystem) -> tuple[list[int], list[int]]:
    """Base offsets and sizes of the segments that are there."""
    names = [name for name in filesystem.list(DIRECTORY) if name.endswith(".log")]
    sizes = [filesystem.open(f"{DIRECTORY}/{name}").size for name in names]
    return [int(name.partition(".")[0]) for name in names], sizes


@settings(max_examples=examples(100), deadline=None)
@given(segments_of_batches, st.integers(1, 3))
@example([[[(b"a", b"deleted")]], [[(b"b", b"")], [(b"c", b"")], [(b"a", None)]]], 1)
def test_a_tombstone_never_goes_before_what_it_deletes(segments: list[list[list[Row]]], keys: int) -> None:
    """Memory lasts for a part of a segment only, and between two rounds the time of every tombstone passes."""
    filesystem = MemoryFilesystem()
    _, _, end = write(filesystem, segments, Codec.NONE)
    latest = {record.key: record.value for record in read_all(filesystem)}
    there = {key: value for key, value in latest.items() if value is not None}
    dirty = now_ms = 0
    while dirty < end:
        result = compact(filesystem, job(*files(filesystem), end, now_ms=now_ms, dirty=dirty, keys=keys))
        swap(filesystem, result)
        dirty, now_ms = result.clean_offset, now_ms + RETENTION_MS
        found = {record.key: record.value for record in read_all(filesystem)}
        assert {key: value for key, value in found.items() if value is not None} == there


@settings(max_examples=examples(50), deadline=None)
@given(segments_of_batches)
@example([[[(b"a", None)]]])
def test_where_the_log_ends_is_still_known_when_everything_in_it_is_gone(segments: list[list[list[Row]]]) -> None:
    """A crash forgot how far the log was compacted, so it is done again when its tombstones may go."""
    filesystem = MemoryFilesystem()
    _, _, end = write(filesystem, segments, Codec.NONE)
    for now_ms in (0, RETENTION_MS):
        swap(filesystem, compact(filesystem, job(*files(filesystem), end, now_ms=now_ms)))
    base = files(filesystem)[0][-1]
    scan = SegmentScan(filesystem.open(segment_file(DIRECTORY, base, Suffix.LOG)), base)
    for _ in scan:
        pass
    assert scan.next_offset == end


@pytest.mark.parametrize("harm", ["records", "times"])
def test_a_batch_that_cannot_be_opened_or_written_again_stays_as_it_is_and_the_rest_is_compacted(harm: str) -> None:
    """It has the right CRC: somebody sent it so, while the topic was not compacted."""
    filesystem = MemoryFilesystem()
    filesystem.make_directory(DIRECTORY)
    file = filesystem.open(segment_file(DIRECTORY, 0, Suffix.LOG), create=True)
    rows = [(0, b"key", b"value", ()), (5, b"other", None, ())]
    for offset in (0, 2, 4, 6):
        batch = build_batch(rows, base_offset=offset)
        if offset == 2:
            if harm == "records":
                batch[HEADER_SIZE] = 0x7F
            else:
                batch[BASE_TIMESTAMP : BASE_TIMESTAMP + 8] = (2**63 - 1).to_bytes(8, "big")
            batch[CRC_POSITION : CRC_POSITION + 4] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
            hostile = bytes(batch)
        file.append(batch)
    result = compact(filesystem, job([0], [file.size], 8))
    assert result.clean_offset == 8
    cleaned = filesystem.open(segment_file(DIRECTORY, 0, Suffix.LOG, Stage.CLEANED))
    data = cleaned.read(0, cleaned.size)
    assert data[: len(hostile)] == hostile
    assert [record.offset for record in _records(data[len(hostile) :])] == [6, 7]


def test_headers_are_kept_without_opening_them() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directory(DIRECTORY)
    file = filesystem.open(segment_file(DIRECTORY, 0, Suffix.LOG), create=True)
    # The second's header claims a name that is not there: it shows that nobody looked.
    kept = [PackedHeaders(b"\x02\x02h\x02x"), PackedHeaders(b"\x02\x7e\x00"), PackedHeaders()]
    rows = [(5, b"%d" % number, b"value", headers) for number, headers in enumerate(kept)]
    file.append(build_batch([*rows, (5, b"again", b"old", kept[0]), (6, b"again", b"new", kept[0])]))
    compact(filesystem, job([0], [file.size], 5))
    cleaned = filesystem.open(segment_file(DIRECTORY, 0, Suffix.LOG, Stage.CLEANED))
    assert list(packed_records_in(cleaned.read(0, cleaned.size))) == [
        *(PackedRecord(number, 5, b"%d" % number, b"value", headers) for number, headers in enumerate(kept)),
        PackedRecord(4, 6, b"again", b"new", kept[0]),
    ]


def test_a_transaction_index_that_a_given_up_round_left_is_not_taken_for_this_rounds() -> None:
    filesystem = MemoryFilesystem()
    bases, sizes, end = write(filesystem, [[[(b"a", b"1")], [(b"a", b"2")]]], Codec.NONE)
    stale = segment_file(DIRECTORY, 0, Suffix.TXN_INDEX, Stage.CLEANED)
    filesystem.replace(stale, bytes(34))
    assert compact(filesystem, job(bases, sizes, end)).replacements
    assert not filesystem.exists(stale)


@settings(max_examples=examples(50), deadline=None)
@given(segments_of_batches)
def test_the_indexes_are_those_that_a_rebuild_would_make(segments: list[list[list[Row]]]) -> None:
    filesystem = MemoryFilesystem()
    bases, sizes, end = write(filesystem, segments, Codec.NONE)
    for _, new in compact(filesystem, job(bases, sizes, end)).replacements:
        file = filesystem.open(segment_file(DIRECTORY, new, Suffix.LOG, Stage.CLEANED))
        rebuilt = rebuild(file, new, interval_bytes=64)
        written = filesystem.read_bytes(segment_file(DIRECTORY, new, Suffix.INDEX, Stage.CLEANED))
        assert OffsetIndex.from_bytes(written) == rebuilt.indexes.offsets
        times = filesystem.read_bytes(segment_file(DIRECTORY, new, Suffix.TIME_INDEX, Stage.CLEANED))
        assert times == rebuilt.indexes.times.to_bytes()


def test_the_header_of_a_producers_last_batch_outlives_its_records() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directory(DIRECTORY)
    file = filesystem.open(segment_file(DIRECTORY, 0, Suffix.LOG), create=True)
    for offset, producer_id in ((0, 7), (1, 8), (2, -1)):
        record = (0, b"key", b"value", ())
        file.append(
            build_batch([record], base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=5)
        )
    asked = job([0], [file.size], 3)
    asked.last_offsets[7] = 0  # type: ignore[index]
    compact(filesystem, asked)
    cleaned = filesystem.open(segment_file(DIRECTORY, 0, Suffix.LOG, Stage.CLEANED))
    first = read_header(cleaned.read(0, cleaned.size))
    assert (first.base_offset, first.record_count, first.base_sequence, first.producer_id) == (0, 0, 5, 7)
    assert [record.offset for record in _records(cleaned.read(0, cleaned.size))] == [2]


def _records(data: bytes) -> list[Record]:
    records: list[Record] = []
    position = 0
    while position < len(data):
        size = read_header(data, position).size
        records += records_in(data[position : position + size])
        position += size
    return records


def test_a_round_tells_the_highest_tombstone_that_it_dropped_and_can_be_told_to_drop_none() -> None:
    filesystem = MemoryFilesystem()
    bases, sizes, end = write(filesystem, [[[(b"a", None)], [(b"b", None)]], [[(b"c", b"value")]]], Codec.NONE)
    first = compact(filesystem, job(bases, sizes, end))
    assert first.dropped == -1
    swap(filesystem, first)
    late = job(*files(filesystem), end, now_ms=RETENTION_MS, dirty=end)
    before = read_all(filesystem)
    kept = compact(filesystem, replace(late, drops_deletions=False))
    assert (kept.dropped, kept.replacements) == (-1, [])
    dropped = compact(filesystem, late)
    assert dropped.dropped == 1
    swap(filesystem, dropped)
    assert [record.key for record in before] == [b"a", b"b", b"c"]
    assert [record.key for record in read_all(filesystem)] == [b"c"]
