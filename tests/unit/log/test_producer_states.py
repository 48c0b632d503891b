"""Idempotence and transactions in one partition: what is a retry, what is out of order, what is still open."""

import pytest

from cordwood.log.parts.producers import ProducerStates
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.records.batch import MAX_SEQUENCE, BatchHeader, read_header
from cordwood.records.build import build_batch
from cordwood.records.control import TransactionMarker
from cordwood.segments.producer_snapshot import decode_snapshot, encode_snapshot
from cordwood.segments.transaction_index import AbortedTransaction

NOW_MS = 5_000


def header(
    sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    rows = [(NOW_MS, None, b"v", ())] * count
    return read_header(
        build_batch(
            rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
    )


class Partition:
    """Appends to nothing but the state, as the log does it."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def append(
        self, sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, transactional: bool = False
    ) -> tuple[int, bool]:
        """(base offset, whether it is a duplicate)."""
        batch = header(sequence, count, producer=producer, epoch=epoch, transactional=transactional)
        repeated = self.states.check(batch)
        if repeated is not None:
            return repeated.first_offset, True
        base_offset, self.end = self.end, self.end + count
        self.states.appended(
            producer, epoch, sequence, base_offset, base_offset + count - 1, NOW_MS, NOW_MS, transactional
        )
        return base_offset, False

    def end_transaction(
        self, *, committed: bool, producer: int = 7, epoch: int = 0, coordinator_epoch: int = 0
    ) -> AbortedTransaction | None:
        marker = TransactionMarker(committed, coordinator_epoch)
        batch = header(0, producer=producer, epoch=epoch, transactional=True)
        self.states.check_marker(batch, marker)
        offset, self.end = self.end, self.end + 1
        return self.states.ended(batch, marker, offset, NOW_MS)

    def refused(self, code: ErrorCode, sequence: int, *, epoch: int = 0, transactional: bool = False) -> None:
        with pytest.raises(ProtocolError) as refusal:
            self.append(sequence, epoch=epoch, transactional=transactional)
        assert refusal.value.code is code


def test_the_last_five_batches_are_recognised_and_a_sixth_is_out_of_order() -> None:
    partition = Partition()
    for number in range(6):
        assert partition.append(number * 3, 3) == (number * 3, False)
    for number in range(1, 6):
        assert partition.append(number * 3, 3) == (number * 3, True)
    partition.refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)


def test_a_batch_that_only_overlaps_an_old_one_is_no_duplicate() -> None:
    partition = Partition()
    partition.append(0, 3)
    for sequence, count in ((0, 2), (1, 2), (0, 4)):
        with pytest.raises(ProtocolError):
            partition.append(sequence, count)


def test_a_gap_in_the_sequence_is_refused() -> None:
    partition = Partition()
    partition.append(0)
    partition.refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2)
    assert partition.append(1) == (1, False)


def test_a_batch_lacks_earlier_ones_if_its_sequence_is_ahead_of_the_next() -> None:
    partition = Partition()
    lacks = partition.states.lacks_earlier
    assert [lacks(header(sequence)) for sequence in (0, 1)] == [False, True], "an unknown producer"
    partition.append(MAX_SEQUENCE - 1)
    for sequence, is_ahead in ((MAX_SEQUENCE - 1, False), (MAX_SEQUENCE, False), (0, True), (1, True), (5_000, True)):
        assert lacks(header(sequence)) is is_ahead
    assert [lacks(header(sequence, epoch=1)) for sequence in (0, 1)] == [False, True], "a new epoch"
    partition.append(0, epoch=1)
    assert not lacks(header(7, epoch=0)), "an old epoch"


def test_after_the_largest_sequence_comes_zero() -> None:
    partition = Partition()
    partition.append(MAX_SEQUENCE)
    assert partition.append(0) == (1, False)
    assert partition.append(MAX_SEQUENCE) == (0, True)


def test_a_batch_may_span_the_wrap_of_the_sequence() -> None:
    partition = Partition()
    partition.append(MAX_SEQUENCE - 1, 4)
    assert partition.append(MAX_SEQUENCE - 1, 4) == (0, True)
    assert partition.append(2) == (4, False)


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert Partition().append(1234) == (0, False)


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    partition = Partition()
    partition.append(0)
    partition.refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, epoch=1)
    assert partition.append(0, epoch=1) == (1, False)
    partition.refused(ErrorCode.INVALID_PRODUCER_EPOCH, 1, epoch=0)
    partition.refused(ErrorCode.INVALID_PRODUCER_EPOCH, 0, epoch=0)
    assert partition.append(0, epoch=1) == (1, True)


def test_producers_do_not_know_of_each_other() -> None:
    partition = Partition()
    partition.append(0, producer=1)
    assert partition.append(0, producer=2) == (1, False)
    assert partition.append(0, producer=1) == (0, True)


def test_silent_producers_expire_but_not_with_an_open_transaction() -> None:
    partition = Partition()
    partition.append(0, producer=1)
    partition.append(0, producer=2, transactional=True)
    assert partition.states.expire(NOW_MS + 99, 100) == 0
    assert partition.states.expire(NOW_MS + 100, 100) == 1
    assert [each.producer_id for each in partition.states.describe()] == [2]
    assert partition.append(55, producer=1) == (2, False)


def test_outside_an_open_transaction_nothing_may_be_written_by_its_producer() -> None:
    partition = Partition()
    partition.append(0, transactional=True)
    partition.refused(ErrorCode.INVALID_TXN_STATE, 1)
    partition.end_transaction(committed=True)
    assert partition.append(1) == (2, False)


def test_the_last_stable_offset_waits_for_the_marker_to_be_below_the_high_watermark() -> None:
    partition = Partition()
    partition.append(0)
    partition.append(1, 2, transactional=True)
    states = partition.states
    assert states.first_open_offset == 1
    assert states.last_stable_offset(3) == 1
    partition.end_transaction(committed=True)
    assert states.first_open_offset is None
    assert states.last_stable_offset(3) == 1, "the marker at 3 is not below 3"
    assert states.last_stable_offset(4) == 4


def test_the_oldest_open_transaction_holds_the_last_stable_offset() -> None:
    partition = Partition()
    partition.append(0, producer=1, transactional=True)
    partition.append(0, producer=2, transactional=True)
    partition.append(1, producer=1, transactional=True)
    assert partition.states.last_stable_offset(3) == 0
    partition.end_transaction(committed=False, producer=1)
    assert partition.states.last_stable_offset(4) == 1


def test_an_abort_says_what_readers_must_skip() -> None:
    partition = Partition()
    partition.append(0, producer=1, transactional=True)
    partition.append(0, producer=2, transactional=True)
    aborted = partition.end_transaction(committed=False, producer=2)
    assert aborted == AbortedTransaction(producer_id=2, first_offset=1, last_offset=2, last_stable_offset=0)
    assert partition.end_transaction(committed=True, producer=1) is None
    assert partition.end_transaction(committed=False, producer=2) is None, "a transaction without data"


def test_markers_of_older_epochs_are_refused() -> None:
    partition = Partition()
    partition.append(0, epoch=3, transactional=True)
    with pytest.raises(ProtocolError) as refusal:
        partition.end_transaction(committed=True, epoch=2)
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    partition.end_transaction(committed=True, epoch=3, coordinator_epoch=9)
    with pytest.raises(ProtocolError) as refusal:
        partition.end_transaction(committed=True, epoch=3, coordinator_epoch=8)
    assert refusal.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_that_raises_the_epoch_starts_the_sequence_again() -> None:
    partition = Partition()
    partition.append(0, transactional=True)
    partition.end_transaction(committed=True, epoch=1)
    partition.refused(ErrorCode.INVALID_PRODUCER_EPOCH, 1, transactional=True)
    partition.refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, epoch=1, transactional=True)
    assert partition.append(0, epoch=1, transactional=True) == (2, False)


def test_a_marker_of_the_same_epoch_lets_the_sequence_run_on() -> None:
    partition = Partition()
    partition.append(0, transactional=True)
    partition.end_transaction(committed=True)
    assert partition.append(1, transactional=True) == (2, False)


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
def test_a_batch_of_an_ended_transaction_is_not_repeated_in_the_next_one(committed: bool) -> None:
    partition = Partition()
    partition.append(0, transactional=True)
    partition.append(1, transactional=True)
    assert partition.append(1, transactional=True) == (1, True)
    partition.end_transaction(committed=committed)
    partition.refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, transactional=True)
    partition.append(2, transactional=True)
    partition.refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, transactional=True)
    assert partition.append(2, transactional=True) == (3, True)


def test_a_snapshot_brings_back_the_whole_window_and_open_transactions() -> None:
    partition = Partition()
    for number in range(7):
        partition.append(number)
    partition.append(0, producer=8, transactional=True)
    partition.end_transaction(committed=True, producer=9, epoch=4, coordinator_epoch=2)
    saved = encode_snapshot(partition.states.snapshot_entries())
    partition.states = ProducerStates.from_snapshot(decode_snapshot(saved), NOW_MS)
    assert encode_snapshot(partition.states.snapshot_entries()) == saved
    for number in range(2, 7):
        assert partition.append(number) == (number, True)
    partition.refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1)
    assert partition.states.first_open_offset == 7
    described = {each.producer_id: each for each in partition.states.describe()}
    assert (described[9].producer_epoch, described[9].coordinator_epoch, described[9].last_sequence) == (4, 2, -1)
    assert described[8].transaction_start_offset == 7


def test_kafka_reads_the_last_entry_of_a_producer_as_the_current_one() -> None:
    partition = Partition()
    for number in range(3):
        partition.append(number)
    entries = decode_snapshot(encode_snapshot(partition.states.snapshot_entries()))
    assert {entry.producer_id: entry.last_sequence for entry in entries} == {7: 2}


def test_replaying_a_log_gives_the_state_that_appending_it_gave() -> None:
    partition, replayed = Partition(), ProducerStates()
    for number in range(4):
        partition.append(number, transactional=True)
        batch = build_batch(
            [(NOW_MS, None, b"v", ())],
            base_offset=number,
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
            transactional=True,
        )
        replayed.replay(read_header(batch), batch, NOW_MS)
    assert replayed.describe() == partition.states.describe()
    assert list(replayed.snapshot_entries()) == list(partition.states.snapshot_entries())


def test_no_epoch_lets_a_batch_in_beside_an_open_transaction() -> None:
    """A higher epoch would have the transaction's marker refused: readers of what is committed would wait for ever."""
    partition = Partition()
    partition.append(0, transactional=True)
    partition.refused(ErrorCode.INVALID_TXN_STATE, 0, epoch=1)
    partition.end_transaction(committed=True)
    assert partition.states.first_open_offset is None
    assert partition.append(0, epoch=1) == (2, False)


def test_finished_transactions_are_forgotten_when_the_high_watermark_has_passed_their_markers() -> None:
    partition = Partition()
    for number in range(3):
        partition.append(number, transactional=True)
        partition.end_transaction(committed=True)
    assert partition.states.undecided == 3
    partition.states.committed_to(4)
    assert partition.states.undecided == 1
    assert partition.states.last_stable_offset(4) == 4
    partition.states.committed_to(partition.end)
    assert partition.states.undecided == 0
