"""Losses, and gaps that are no loss."""

import uuid

import pytest

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source.data_loss import Cause, Ledger, Loss, Partition, find_losses

OLD, NEW = uuid.uuid4(), uuid.uuid4()
ZERO = TopicPartition("t", 0)


def losses(
    position: int | None,
    now: Partition | None,
    *,
    seen: int | None = None,
    existing: tuple[TopicPartition, ...] = (),
) -> list[Loss]:
    return find_losses(
        {} if position is None else {ZERO: position},
        {} if now is None else {ZERO: now},
        known_ids={"t": OLD},
        last_seen={} if seen is None else {ZERO: seen},
        existing=existing,
    )


@pytest.mark.parametrize("position", [10, 15, 20])
def test_a_position_within_the_log_has_lost_nothing(position: int) -> None:
    assert losses(position, Partition(OLD, 10, 20)) == []


def test_records_removed_before_they_were_read_are_lost_exactly() -> None:
    (loss,) = losses(4, Partition(OLD, 10, 20))
    assert (loss.start, loss.end, loss.count, loss.cause) == (4, 10, 6, Cause.REMOVED)
    assert str(loss).startswith("t-0: offsets 4 to 9 (6 offsets): records were removed")


def test_a_new_partition_has_lost_what_was_removed_before_it_was_seen() -> None:
    assert losses(None, Partition(OLD, 0, 20)) == []
    (loss,) = losses(None, Partition(OLD, 7, 20))
    assert (loss.start, loss.end, loss.cause) == (0, 7, Cause.STARTS_LATE)


def test_a_topic_that_was_created_again_is_another_even_if_the_offsets_fit() -> None:
    (loss,) = losses(4, Partition(NEW, 0, 20), seen=9)
    assert (loss.start, loss.end, loss.cause) == (4, 9, Cause.RECREATED)
    (unseen,) = losses(4, Partition(NEW, 0, 20))
    assert unseen.end is None
    assert "whatever there was from offset 4 on" in str(unseen)


def test_brokers_without_topic_ids_are_not_suspected() -> None:
    assert losses(4, Partition(None, 0, 20)) == []


def test_a_log_that_ends_before_the_position_was_truncated_or_is_another() -> None:
    (loss,) = losses(25, Partition(OLD, 0, 20))
    assert (loss.cause, loss.log_end_offset, loss.count) == (Cause.ENDS_EARLIER, 20, 0)


def test_a_topic_that_is_gone_lost_what_was_seen_of_it() -> None:
    (loss,) = losses(4, None, seen=9)
    assert (loss.cause, loss.count) == (Cause.TOPIC_GONE, 5)


def test_a_topic_that_is_only_not_read_any_more_is_not_gone() -> None:
    (loss,) = losses(4, None, existing=(ZERO,))
    assert loss.cause is Cause.NOT_SUBSCRIBED


def test_a_topic_with_fewer_partitions_than_before_is_another_one() -> None:
    one = TopicPartition("t", 1)
    found = find_losses(
        {ZERO: 4, one: 5, TopicPartition("u", 0): 6},
        {ZERO: Partition(None, 0, 20), TopicPartition("u", 0): Partition(None, 0, 20)},
        known_ids={},
        last_seen={},
        existing=(ZERO,),
    )
    assert [(loss.partition, loss.cause) for loss in found] == [(ZERO, Cause.RECREATED), (one, Cause.RECREATED)]


def test_the_ledger_counts_an_offset_once() -> None:
    ledger = Ledger()
    assert ledger.add(ZERO, 0, 10) == 10
    assert ledger.add(ZERO, 5, 12) == 2
    assert ledger.add(ZERO, 20, 30) == 10
    assert ledger.add(ZERO, 8, 25) == 8
    assert ledger.add(ZERO, 3, 3) == 0
    assert ledger.count(ZERO) == ledger.total == 30


def test_the_ledger_knows_what_lies_behind_a_position() -> None:
    ledger = Ledger()
    ledger.add(ZERO, 10, 30)
    assert [ledger.count(ZERO, below=position) for position in (0, 10, 15, 30, 99)] == [0, 0, 5, 20, 20]


def test_what_was_lost_of_a_topic_that_is_gone_stays_counted() -> None:
    ledger = Ledger()
    ledger.add(ZERO, 10, 30)
    ledger.settle(ZERO)
    assert ledger.count(ZERO, below=0) == 20
    assert ledger.add(ZERO, 10, 12) == 2
    assert ledger.total == 22
