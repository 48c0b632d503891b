"""Batches of one partition keep their order, whatever is answered."""

import pytest

from cordwood.client.answers import Produced
from cordwood.client.lanes import MAX_BATCHES_ON_THEIR_WAY, Lane, OutgoingBatch
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.records.build import build_batch

PARTITION = TopicPartition("orders", 0)


def batch(sequence: int, count: int = 1, producer_id: int = 7) -> OutgoingBatch:
    data = build_batch([(0, None, b"v", ())] * count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return OutgoingBatch.of(data, PARTITION)


def lane_with(*batches: OutgoingBatch) -> Lane:
    lane = Lane(PARTITION)
    lane.waiting.extend(batches)
    return lane


def test_the_first_batch_goes_alone_until_it_is_stored() -> None:
    lane = lane_with(*map(batch, range(3)))
    first = lane.sent()
    assert not lane.may_send
    assert lane.answered(first, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert lane.sent() is first
    assert not lane.may_send
    assert lane.answered(first, ErrorCode.NONE, 0)
    assert lane.may_send


def test_batches_of_an_idempotent_producer_go_together_up_to_what_a_broker_remembers() -> None:
    lane = lane_with(*map(batch, range(9)))
    lane.answered(lane.sent(), ErrorCode.NONE, 0)
    for _ in range(MAX_BATCHES_ON_THEIR_WAY):
        assert lane.may_send
        lane.sent()
    assert not lane.may_send


def test_batches_without_a_producer_id_go_one_at_a_time() -> None:
    lane = lane_with(batch(-1, producer_id=-1), batch(-1, producer_id=-1))
    first = lane.sent()
    assert not lane.may_send
    assert lane.answered(first, ErrorCode.NONE, 5)
    assert lane.may_send


def test_what_was_refused_for_now_goes_again_in_order_once_everything_is_answered() -> None:
    batches = [batch(number) for number in range(4)]
    lane = lane_with(*batches)
    for _ in range(3):
        lane.sent()
    assert lane.answered(batches[0], ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert not lane.may_send
    assert lane.answered(batches[1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert not lane.may_send
    assert lane.answered(batches[2], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert list(lane.waiting) == batches


def test_a_gap_that_no_retry_explains_is_final() -> None:
    lane = lane_with(batch(0), batch(1))
    assert not lane.answered(lane.sent(), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_a_duplicate_is_a_success() -> None:
    lane = lane_with(batch(0))
    assert lane.answered(lane.sent(), ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
    assert lane.is_done
    assert lane.produced == Produced(-1, -1)


def test_what_was_on_a_lost_connection_goes_again_in_order() -> None:
    batches = [batch(number) for number in range(3)]
    lane = lane_with(*batches)
    on_their_way = [lane.sent(), lane.sent()]
    for each in on_their_way:
        lane.lost(each)
    lane.settle()
    assert list(lane.waiting) == batches
    assert lane.may_send


def test_a_lane_tells_where_its_first_batch_begins_and_its_last_one_ends() -> None:
    lane = lane_with(batch(0, 3), batch(3, 2))
    first, second = lane.sent(), lane.sent()
    lane.answered(first, ErrorCode.NONE, 100)
    lane.answered(second, ErrorCode.NONE, 150)
    assert lane.is_done
    assert lane.produced == Produced(100, 152)


@pytest.mark.parametrize("data", [b"", b"x" * 70, bytes(batch(0).data) * 2, bytes(batch(0).data)[:-1]])
def test_what_is_not_exactly_one_batch_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="orders-0"):
        OutgoingBatch.of(data, PARTITION)
