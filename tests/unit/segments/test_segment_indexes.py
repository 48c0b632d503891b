"""When an index entry is due, and how the indexes of a segment are found again."""

from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.records.build import build_batch
from cordwood.records.control import TransactionMarker, build_transaction_marker
from cordwood.segments.filesystem import File
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.rebuild import rebuild
from cordwood.segments.transaction_index import AbortedTransaction


def new_file() -> File:
    return MemoryFilesystem().open("log", create=True)


def test_an_entry_is_due_once_more_than_the_interval_came_since_the_last() -> None:
    indexes = SegmentIndexes(base_offset=1000, interval_bytes=100)
    assert not indexes.note(0, 60, 1004, 10)
    assert not indexes.note(60, 40, 1009, 12)  # 60 bytes before it
    assert not indexes.note(100, 10, 1010, 11)  # exactly the interval is not more than it
    assert indexes.note(110, 500, 1019, 11)
    assert indexes.note(610, 50, 1020, 15)
    assert not indexes.note(660, 50, 1021, 15)
    assert indexes.offsets.entries() == [(19, 110), (20, 610)]
    assert indexes.times.entries() == [(12, 9), (15, 20)]
    assert (indexes.max_timestamp_ms, indexes.max_timestamp_offset) == (15, 1020)


def test_a_closed_segment_ends_its_time_index_with_its_largest_timestamp() -> None:
    indexes = SegmentIndexes(base_offset=1000, interval_bytes=100)
    indexes.close()
    assert indexes.times.entries() == []
    indexes.note(0, 60, 1004, 10)
    indexes.close()
    indexes.close()
    assert indexes.times.entries() == [(10, 4)]


def test_a_search_begins_at_or_before_its_target() -> None:
    indexes = SegmentIndexes(base_offset=1000, interval_bytes=0)
    for number in range(10):
        indexes.note(number * 100, 100, 1000 + number * 10 + 9, 5000 + number)
    assert indexes.position_of(1000) == 0
    assert indexes.position_of(1019) == 100
    assert indexes.position_of(1095) == 800  # batch 9 holds it; its entry is by its last offset, 1099
    assert indexes.offset_before(0) == 1000
    assert indexes.offset_before(5002) == 1019
    assert indexes.offset_before(9999) == 1099


def test_an_index_interval_of_zero_indexes_every_batch_but_the_first() -> None:
    file = new_file()
    for offset in range(5):
        file.append(build_batch([(offset, None, b"v", ())], base_offset=offset))
    rebuilt = rebuild(file, 0, interval_bytes=0)
    assert [offset for offset, _ in rebuilt.indexes.offsets.entries()] == [1, 2, 3, 4]


def test_a_rebuild_finds_the_aborted_transactions_of_a_segment() -> None:
    file = new_file()

    def data(offset: int, producer_id: int) -> None:
        file.append(
            build_batch(
                [(1, b"k", b"v", ())] * 2,
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )

    def end(offset: int, producer_id: int, *, committed: bool) -> None:
        marker = TransactionMarker(committed, 0)
        file.append(
            build_transaction_marker(
                marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=1, base_offset=offset
            )
        )

    data(0, 1)
    data(2, 2)
    end(4, 1, committed=False)
    end(5, 2, committed=True)
    end(6, 3, committed=False)  # nothing written: nobody needs to skip it
    data(7, 3)
    end(9, 3, committed=False)
    data(10, 4)
    rebuilt = rebuild(file, 0, interval_bytes=4096)
    assert rebuilt.transactions.entries() == [AbortedTransaction(1, 0, 4, 2), AbortedTransaction(3, 7, 9, 10)]
    assert rebuilt.open_transactions.first_offsets == {4: 10}
    assert rebuilt.invalid is None
    assert (rebuilt.valid_bytes, rebuilt.next_offset) == (file.size, 12)


def test_a_rebuild_stops_at_damage_and_says_so() -> None:
    file = new_file()
    batches = [build_batch([(offset, None, b"v", ())], base_offset=offset) for offset in range(3)]
    batches[1][-1] ^= 1
    for batch in batches:
        file.append(batch)
    rebuilt = rebuild(file, 0, interval_bytes=0)
    assert (rebuilt.valid_bytes, rebuilt.next_offset) == (len(batches[0]), 1)
    assert rebuilt.invalid is not None
    assert rebuilt.invalid.reason == "the CRC is wrong"
