"""Indexes, snapshots and checkpoints: against a plain model of the log, and under arbitrary damage."""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples

from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.model.identifiers import TopicPartition
from cordwood.records.build import build_batch
from cordwood.records.control import TransactionMarker, build_transaction_marker
from cordwood.segments.damaged import DamagedFile
from cordwood.segments.filesystem import File
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.offset_checkpoint import decode_offsets, encode_offsets
from cordwood.segments.offset_index import OffsetIndex
from cordwood.segments.partition_metadata import decode_partition_metadata
from cordwood.segments.producer_snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from cordwood.segments.rebuild import rebuild
from cordwood.segments.scan import SegmentScan
from cordwood.segments.time_index import TimeIndex
from cordwood.segments.transaction_index import AbortedTransaction, OpenTransactions, TransactionIndex

BASE_OFFSET = 5000


class Written(NamedTuple):
    """What the model knows of a batch."""

    position: int
    base_offset: int
    last_offset: int
    timestamps: list[int]


class Segment:
    """A log file with indexes kept by the append rule, and a plain list beside it."""

    def __init__(self, interval_bytes: int) -> None:
        self.file: File = MemoryFilesystem().open("log", create=True)
        self.indexes = SegmentIndexes(BASE_OFFSET, interval_bytes)
        self.batches: list[Written] = []
        self.next_offset = BASE_OFFSET

    def append(self, gap: int, timestamps: list[int], payload_size: int) -> None:
        base_offset = self.next_offset + gap
        rows = [(timestamp, b"k", bytes(payload_size), ()) for timestamp in timestamps]
        batch = build_batch(rows, base_offset=base_offset)
        position = self.file.size
        self.file.append(batch)
        self.next_offset = base_offset + len(rows)
        self.batches.append(Written(position, base_offset, self.next_offset - 1, timestamps))
        self.indexes.note(position, len(batch), self.next_offset - 1, max(timestamps))

    def truncate_to_batch(self, index: int) -> None:
        kept, cut = self.batches[:index], self.batches[index]
        self.file.truncate(cut.position)
        self.batches = kept
        self.next_offset = kept[-1].last_offset + 1 if kept else BASE_OFFSET
        self.indexes.truncate(self.next_offset, self.file)


appends = st.lists(
    st.tuples(
        st.integers(0, 3), st.lists(st.integers(0, 300), min_size=1, max_size=4), st.sampled_from([0, 10, 100, 500])
    ),
    max_size=30,
)
intervals = st.sampled_from([0, 1, 100, 200, 500, 4096])


def built(plan: list[tuple[int, list[int], int]], interval_bytes: int) -> Segment:
    segment = Segment(interval_bytes)
    for gap, timestamps, payload_size in plan:
        segment.append(gap, timestamps, payload_size)
    return segment


@given(appends, intervals)
def test_a_rebuild_gives_the_indexes_that_the_appends_gave(
    plan: list[tuple[int, list[int], int]], interval_bytes: int
) -> None:
    segment = built(plan, interval_bytes)
    rebuilt = rebuild(segment.file, BASE_OFFSET, interval_bytes=interval_bytes, closed=False)
    assert rebuilt.indexes.offsets.to_bytes() == segment.indexes.offsets.to_bytes()
    assert rebuilt.indexes.times.to_bytes() == segment.indexes.times.to_bytes()
    assert rebuilt.next_offset == segment.next_offset
    segment.indexes.close()
    closed = rebuild(segment.file, BASE_OFFSET, interval_bytes=interval_bytes)
    assert closed.indexes.times.to_bytes() == segment.indexes.times.to_bytes()


@given(appends, intervals, appends)
def test_indexes_that_were_saved_and_loaded_go_on_as_if_nothing_had_happened(
    before: list[tuple[int, list[int], int]], interval_bytes: int, after: list[tuple[int, list[int], int]]
) -> None:
    segment = built(before, interval_bytes)
    loaded = SegmentIndexes(BASE_OFFSET, interval_bytes)
    loaded.offsets = OffsetIndex.from_bytes(segment.indexes.offsets.to_bytes(), log_size=segment.file.size)
    loaded.times = TimeIndex.from_bytes(segment.indexes.times.to_bytes())
    scan = loaded.resume(segment.file)
    assert scan.invalid is None
    assert scan.next_offset == segment.next_offset
    segment.indexes = loaded
    for gap, timestamps, payload_size in after:
        segment.append(gap, timestamps, payload_size)
    rebuilt = rebuild(segment.file, BASE_OFFSET, interval_bytes=interval_bytes, closed=False)
    assert rebuilt.indexes.offsets == segment.indexes.offsets
    assert rebuilt.indexes.times == segment.indexes.times


@given(appends, intervals)
def test_the_last_entry_can_be_taken_back_and_made_again(
    plan: list[tuple[int, list[int], int]], interval_bytes: int
) -> None:
    segment = built(plan, interval_bytes)
    offsets, times = segment.indexes.offsets.to_bytes(), segment.indexes.times.to_bytes()
    largest = segment.indexes.max_timestamp_ms
    for position, header in SegmentScan(segment.file, BASE_OFFSET, position=segment.indexes.rewind()):
        segment.indexes.note(position, header.size, header.last_offset, header.max_timestamp)
    assert segment.indexes.offsets.to_bytes() == offsets
    assert segment.indexes.times.to_bytes() == times
    assert segment.indexes.max_timestamp_ms == largest


@given(appends, intervals, st.data())
def test_indexes_lead_to_every_offset_and_every_timestamp(
    plan: list[tuple[int, list[int], int]], interval_bytes: int, data: st.DataObject
) -> None:
    segment = built(plan, interval_bytes)
    truncates = data.draw(st.booleans(), label="truncate")
    if segment.batches and truncates:
        segment.truncate_to_batch(data.draw(st.integers(0, len(segment.batches) - 1), label="batch"))
    if data.draw(st.booleans(), label="close"):
        segment.indexes.close()
    indexes = segment.indexes
    everything = [
        (batch.base_offset + place, timestamp)
        for batch in segment.batches
        for place, timestamp in enumerate(batch.timestamps)
    ]
    assert indexes.max_timestamp_ms == max((timestamp for _, timestamp in everything), default=-1)
    places = {batch.position for batch in segment.batches} | {0}
    for batch in segment.batches:
        for offset in (batch.base_offset, batch.last_offset):
            position = indexes.position_of(offset)
            assert position in places
            assert position <= batch.position
    for target in range(0, 301, 7):
        first = next((offset for offset, timestamp in everything if timestamp >= target), None)
        if first is not None:
            assert indexes.offset_before(target) <= first


transaction_steps = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(["data", "commit", "abort", "plain"])), max_size=25
)


@given(transaction_steps, st.integers(0, 25))
def test_aborted_transactions_are_found_again_also_across_segments(steps: list[tuple[int, str]], roll_at: int) -> None:
    files = [MemoryFilesystem().open("log", create=True) for _ in range(2)]
    bases = [0, 0]
    expected: list[list[AbortedTransaction]] = [[], []]
    open_since: dict[int, int] = {}
    for offset, (producer_id, step) in enumerate(steps):
        part = int(offset >= roll_at)
        if part and not files[1].size:
            bases[1] = offset
        if step in ("data", "plain"):
            files[part].append(
                build_batch(
                    [(1, b"k", b"v", ())],
                    base_offset=offset,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    transactional=step == "data",
                )
            )
            if step == "data":
                open_since.setdefault(producer_id, offset)
            continue
        files[part].append(
            build_transaction_marker(
                TransactionMarker(step == "commit", 0),
                producer_id=producer_id,
                producer_epoch=0,
                timestamp_ms=1,
                base_offset=offset,
            )
        )
        first = open_since.pop(producer_id, None)
        if first is not None and step == "abort":
            stable = min(open_since.values(), default=offset + 1)
            expected[part].append(AbortedTransaction(producer_id, first, offset, stable))
    pending = OpenTransactions()
    for file, base_offset, aborted in zip(files, bases, expected, strict=True):
        rebuilt = rebuild(file, base_offset, interval_bytes=0, open_transactions=pending)
        assert rebuilt.invalid is None
        assert rebuilt.transactions.entries() == aborted
        stored = TransactionIndex.from_bytes(rebuilt.transactions.to_bytes(), base_offset=base_offset)
        assert stored == rebuilt.transactions
    assert pending.first_offsets == open_since


@settings(max_examples=examples(200))
@given(appends, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4), st.integers(0, 10**6))
def test_a_damaged_log_is_walked_up_to_the_damage_and_never_beyond(
    plan: list[tuple[int, list[int], int]], changes: list[tuple[int, int]], cut: int
) -> None:
    segment = built(plan, 0)
    whole = segment.file.read(0, segment.file.size)
    damaged = bytearray(whole)
    for place, value in changes:
        if damaged:
            damaged[place % len(damaged)] = value
    del damaged[len(damaged) - cut % (len(damaged) + 1) :]
    file = MemoryFilesystem().open("log", create=True)
    file.append(damaged)
    scan = SegmentScan(file, BASE_OFFSET, chunk_size=128)
    for position, header in scan:
        # The CRC covers all but base offset, length, leader epoch and magic; the batch's content is the one written.
        assert bytes(scan.batch[21:]) == whole[position + 21 : position + header.size]
    assert scan.position <= file.size
    assert (scan.invalid is None) == (scan.position == file.size)


producer_entries = st.builds(
    ProducerSnapshotEntry,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
)


@given(st.lists(producer_entries, max_size=10))
def test_producers_come_back_from_a_snapshot(entries: list[ProducerSnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == entries


topics = st.text("abcxyz019._-", min_size=1, max_size=20)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=10))
def test_offsets_come_back_from_a_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 50)), max_size=15), st.integers(0, 60), st.booleans())
def test_epochs_and_starts_increase_whatever_is_assigned_and_cut(
    assignments: list[tuple[int, int]], cut: int, from_start: bool
) -> None:
    epochs = LeaderEpochs()
    for epoch, start_offset in assignments:
        epochs.assign(epoch, start_offset)
        assert epochs.latest == epoch
        assert epochs.epoch_at(max(start_offset, epochs.entries[-1].start_offset)) == epoch
    if from_start:
        before = [epochs.epoch_at(offset) for offset in range(cut, 100)]
        epochs.truncate_to_start(cut)
        assert [epochs.epoch_at(offset) for offset in range(cut, 100)] == before
    else:
        before = [epochs.epoch_at(offset) for offset in range(cut)]
        epochs.truncate_to_end(cut)
        assert [epochs.epoch_at(offset) for offset in range(cut)] == before
    entries = epochs.entries
    for one, two in pairwise(entries):
        assert one.epoch < two.epoch
        assert one.start_offset < two.start_offset
    assert LeaderEpochs.from_bytes(epochs.to_bytes()) == epochs
    for epoch in range(-1, 12):
        found, end = epochs.end_offset_for(epoch, 100)
        assert found <= epoch
        assert all(epochs.epoch_at(offset) > epoch for offset in range(max(end, 0), 100)) or found == -1


READERS: list[Callable[[bytes], object]] = [
    OffsetIndex.from_bytes,
    TimeIndex.from_bytes,
    TransactionIndex.from_bytes,
    decode_snapshot,
    LeaderEpochs.from_bytes,
    decode_offsets,
    decode_partition_metadata,
]


@given(
    st.sampled_from(READERS),
    st.binary(max_size=120) | st.text("0123456789 \nabversiontopic_:-", max_size=60).map(str.encode),
)
def test_arbitrary_files_are_read_or_called_damaged_and_nothing_else(
    read: Callable[[bytes], object], data: bytes
) -> None:
    with suppress(DamagedFile):
        read(data)
