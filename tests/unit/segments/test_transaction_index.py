"""The index of aborted transactions: what a read_committed reader is told to skip."""

import struct

import pytest

from cordwood.segments.damaged import DamagedIndex
from cordwood.segments.transaction_index import ENTRY_SIZE, AbortedTransaction, OpenTransactions, TransactionIndex

FIRST = AbortedTransaction(producer_id=7, first_offset=10, last_offset=20, last_stable_offset=12)
SECOND = AbortedTransaction(producer_id=8, first_offset=12, last_offset=30, last_stable_offset=31)


def filled() -> TransactionIndex:
    index = TransactionIndex()
    index.append(FIRST)
    index.append(SECOND)
    return index


def test_an_entry_is_34_bytes() -> None:
    assert filled().to_bytes() == struct.pack(">hqqqqhqqqq", 0, 7, 10, 20, 12, 0, 8, 12, 30, 31)
    assert filled().size_bytes == 68
    assert filled().to_bytes(first_entry=1) == struct.pack(">hqqqq", 0, 8, 12, 30, 31)


def test_what_was_written_is_read_back() -> None:
    assert TransactionIndex.from_bytes(filled().to_bytes(), base_offset=15) == filled()
    assert len(TransactionIndex.from_bytes(b"")) == 0


def test_a_reader_gets_the_transactions_that_touch_its_range() -> None:
    index = filled()
    assert index.collect(0, 10) == ([], True)  # the first entry's stable offset is beyond: no later one can matter
    assert index.collect(0, 11) == ([FIRST], True)
    assert index.collect(11, 13) == ([FIRST, SECOND], True)
    assert index.collect(20, 25) == ([FIRST, SECOND], True)
    assert index.collect(21, 25) == ([SECOND], True)
    assert index.collect(31, 32) == ([], False)
    assert index.collect(0, 40) == ([FIRST, SECOND], False)  # later segments may have more


def test_truncation_drops_those_whose_marker_is_gone() -> None:
    index = filled()
    index.truncate(31)
    assert index.entries() == [FIRST, SECOND]
    index.truncate(30)
    assert index.entries() == [FIRST]
    index.truncate(0)
    assert index.entries() == []


@pytest.mark.parametrize(
    "data",
    [
        bytes(33),
        struct.pack(">hqqqq", 1, 7, 10, 20, 12),
        struct.pack(">hqqqq", 0, 7, -1, 20, 12),
        struct.pack(">hqqqq", 0, 7, 21, 20, 12),
        struct.pack(">hqqqqhqqqq", 0, 7, 10, 20, 12, 0, 8, 12, 20, 31),
        struct.pack(">hqqqq", 0, 7, 1, 4, 5),
    ],
    ids=["odd-size", "version", "negative", "backwards", "same-marker", "before-the-segment"],
)
def test_a_file_that_is_no_index_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedIndex):
        TransactionIndex.from_bytes(data, base_offset=5)


def test_zeros_that_a_power_cut_left_are_no_entry_even_at_the_beginning_of_a_log() -> None:
    for entries in (1, 2):
        with pytest.raises(DamagedIndex):
            TransactionIndex.from_bytes(bytes(entries * ENTRY_SIZE), base_offset=0)


def test_only_aborts_of_transactions_with_data_are_noted() -> None:
    pending = OpenTransactions()
    assert pending.marker(1, 0, committed=False) is None
    pending.data(1, 5)
    pending.data(1, 6)
    pending.data(2, 7)
    assert pending.first_offset == 5
    assert pending.marker(1, 10, committed=True) is None
    assert pending.first_offset == 7
    assert pending.marker(2, 11, committed=False) == AbortedTransaction(2, 7, 11, 12)
    assert pending.first_offset is None


def test_the_stable_offset_of_an_abort_is_the_oldest_transaction_still_open() -> None:
    pending = OpenTransactions({9: 40, 3: 20})
    pending.data(4, 50)
    assert pending.first_offsets == {3: 20, 9: 40, 4: 50}
    assert pending.marker(9, 60, committed=False) == AbortedTransaction(9, 40, 60, 20)
    assert pending.marker(3, 61, committed=False) == AbortedTransaction(3, 20, 61, 50)
