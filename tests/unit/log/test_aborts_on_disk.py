"""The file of aborted transactions where it is not what the log has: what is too much in it is never believed."""

import pytest
from tests.unit.log.log_making import (
    NOW_MS,
    ONE_SEGMENT,
    append,
    bases,
    beside,
    disk,
    end_transaction,
    fill,
    log_path,
    open_log,
    reopen,
)

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.segments.abort_witness import FILE_NAME as ABORTS_FILE
from cordwood.segments.names import Suffix
from cordwood.segments.transaction_index import ENTRY_SIZE

LATER_MS = NOW_MS + ONE_SEGMENT.segment_ms


def with_a_stale_abort() -> tuple[CrashingFilesystem, Log]:
    """A log of ten offsets that a power cut took four more from, but not the index entry of an abort among them."""
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    fill(log, 8)
    append(log, b"aborted", producer=6, transactional=True)
    end_transaction(log, 6, committed=False)
    log.checkpoint()
    size = filesystem.open(log_path()).size
    fill(log, 2)
    append(log, b"lost", producer=5, transactional=True)
    end_transaction(log, 5, committed=False)
    ticket = log.begin_checkpoint()
    assert ticket is not None
    ticket.write()
    filesystem.sync_everything()
    log.close()
    filesystem.cut(log_path(), size)
    assert filesystem.open(beside(Suffix.TXN_INDEX)).size == 2 * ENTRY_SIZE
    return filesystem, recovered(filesystem)


def recovered(filesystem: CrashingFilesystem) -> Log:
    return open_log(filesystem, ONE_SEGMENT, recovery_point=10, clean=False, now_ms=NOW_MS)


def grow(log: Log, now_ms: int = NOW_MS) -> None:
    """Past the offsets of the lost transaction, with another one of its producer there, committed."""
    for _ in range(2):
        append(log, b"plain", now_ms=now_ms)
    append(log, b"committed", producer=5, transactional=True, now_ms=now_ms)
    end_transaction(log, 5, committed=True)


def aborted(log: Log) -> list[tuple[int, int]]:
    return log.aborts.between(0, log.offsets.end)


def test_an_abort_whose_batches_a_crash_took_is_forgotten_for_good() -> None:
    _, log = with_a_stale_abort()
    assert log.offsets.end == 10
    grow(log)
    log.checkpoint()
    assert aborted(log) == [(6, 8)]
    assert aborted(reopen(log, clean=True)) == [(6, 8)]


def test_such_an_abort_leaves_the_disk_also_if_nothing_is_ever_appended_again() -> None:
    filesystem, log = with_a_stale_abort()
    log.checkpoint()
    assert filesystem.open(beside(Suffix.TXN_INDEX)).size == ENTRY_SIZE
    assert log.begin_checkpoint() is None


def test_such_an_abort_is_forgotten_again_after_a_kill_before_the_next_checkpoint() -> None:
    filesystem, log = with_a_stale_abort()
    grow(log)
    log.close()
    log = recovered(filesystem)
    assert log.offsets.end == 14
    assert aborted(log) == [(6, 8)]
    log.checkpoint()
    assert aborted(reopen(log, clean=True)) == [(6, 8)]


def test_such_an_abort_is_forgotten_again_if_its_segment_was_closed_before_the_kill() -> None:
    """The segment ends at the recovery point then, and recovery has no other reason to look into its files."""
    filesystem, log = with_a_stale_abort()
    grow(log, LATER_MS)
    assert len(log.segments) == 2
    log.close()
    log = recovered(filesystem)
    assert aborted(log) == [(6, 8)]
    log.checkpoint()
    assert filesystem.open(beside(Suffix.TXN_INDEX)).size == ENTRY_SIZE
    assert not log.segments.closing
    assert aborted(reopen(log, clean=True)) == [(6, 8)]


def test_an_abort_that_was_cut_off_is_forgotten_for_good() -> None:
    log = open_log(disk(), ONE_SEGMENT)
    fill(log, 10)
    append(log, b"cut off", producer=5, transactional=True)
    end_transaction(log, 5, committed=False)
    log.checkpoint()
    log.truncate_to(10)
    fill(log, 10)
    log.checkpoint()
    assert aborted(log) == []
    assert aborted(reopen(log, clean=True)) == []


def test_a_checkpoint_that_was_under_way_while_its_abort_was_cut_off_does_not_bring_it_back() -> None:
    filesystem = disk()
    log = open_log(filesystem, ONE_SEGMENT)
    fill(log, 10)
    append(log, b"cut off", producer=5, transactional=True)
    end_transaction(log, 5, committed=False)
    ticket = log.begin_checkpoint()
    assert ticket is not None
    ticket.write()
    log.truncate_to(10)
    ticket.install()
    ticket.finish()
    assert filesystem.open(beside(Suffix.TXN_INDEX)).size == ENTRY_SIZE
    fill(log, 10)
    log.checkpoint()
    assert aborted(reopen(log, clean=True)) == []


def test_aborted_transactions_are_known_on_a_full_disk_though_their_file_is_damaged() -> None:
    filesystem = disk()
    log = open_log(filesystem)
    append(log, b"aborted", producer=5, transactional=True)
    end_transaction(log, 5, committed=False)
    fill(log, 20)
    log.checkpoint()
    filesystem.cut(beside(Suffix.TXN_INDEX), ENTRY_SIZE - 1)
    log = reopen(log, clean=True)
    filesystem.free_for_appends = 0
    assert aborted(log) == [(5, 0)]
    filesystem.free_for_appends = None
    log = reopen(log, clean=True)
    assert aborted(log) == [(5, 0)]
    assert filesystem.open(beside(Suffix.TXN_INDEX)).size == ENTRY_SIZE


def with_two_closed_aborts(filesystem: CrashingFilesystem) -> Log:
    """Two segments with an abort each, closed and below the recovery point, and an open one behind them."""
    log = open_log(filesystem, ONE_SEGMENT)
    for place in range(2):
        append(log, b"aborted", producer=5 + place, transactional=True, now_ms=NOW_MS + place * ONE_SEGMENT.segment_ms)
        end_transaction(log, 5 + place, committed=False)
        log.checkpoint()
    append(log, b"plain", now_ms=NOW_MS + 2 * ONE_SEGMENT.segment_ms)
    log.checkpoint()
    assert bases(log) == [0, 2, 4]
    log.close()
    return log


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_of_aborts_that_is_lost_is_made_again(clean: bool) -> None:
    filesystem = disk()
    log = with_two_closed_aborts(filesystem)
    filesystem.remove(beside(Suffix.TXN_INDEX, 2))
    log = reopen(log, clean=clean)
    assert aborted(log) == [(5, 0), (6, 2)]
    log.checkpoint()
    assert filesystem.open(beside(Suffix.TXN_INDEX, 2)).size == ENTRY_SIZE
    assert aborted(reopen(log, clean=clean)) == [(5, 0), (6, 2)]


@pytest.mark.parametrize("place", [5, 9, 17], ids=["another producer", "a higher id", "a later start"])
def test_an_index_of_aborts_with_a_flipped_bit_is_made_again(place: int) -> None:
    filesystem = disk()
    log = with_two_closed_aborts(filesystem)
    entry = bytearray(filesystem.read_bytes(beside(Suffix.TXN_INDEX)))
    entry[place] ^= 1
    filesystem.replace(beside(Suffix.TXN_INDEX), bytes(entry))
    assert aborted(reopen(log, clean=True)) == [(5, 0), (6, 2)]


def test_indexes_of_aborts_are_believed_where_the_witness_is_damaged() -> None:
    filesystem = disk()
    log = with_two_closed_aborts(filesystem)
    witness = f"{log.directory.path}/{ABORTS_FILE}"
    filesystem.replace(witness, filesystem.read_bytes(witness).replace(b"2 1 ", b"2 3 "))
    assert aborted(reopen(log, clean=True)) == [(5, 0), (6, 2)]


def test_compaction_finds_the_index_of_aborts_that_was_lost() -> None:
    filesystem = disk()
    log = with_two_closed_aborts(filesystem)
    filesystem.remove(beside(Suffix.TXN_INDEX, 2))
    log = reopen(log, clean=True)
    log.aborts.check_indexes(2)
    assert filesystem.open(beside(Suffix.TXN_INDEX, 2)).size == ENTRY_SIZE
