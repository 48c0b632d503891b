"""What a member of the consumer protocol says that it owns counts only where there are such partitions."""

import uuid
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, delete_topic, error

from cordwood.wire.apis import ApiKey

LAST_NUMBER = 2**31 - 1
Owned = list[tuple[uuid.UUID, list[int]]]


def beat(world: World, epoch: int, owned: Owned, member: str = "a", *names: str) -> Any:
    return world.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=1000 if names else -1,
        subscribed_topic_names=list(names) or None,
        topic_partitions=[{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in owned],
    )


def assigned(answer: Any) -> dict[uuid.UUID, list[int]]:
    assert error(answer.error_code) == "NONE"
    return {topic.topic_id: list(topic.partitions) for topic in answer.assignment.topic_partitions}


@pytest.fixture
def topics(world: World) -> tuple[uuid.UUID, uuid.UUID]:
    return create_topic(world, "orders", 4).topic_id, create_topic(world, "refunds", 2).topic_id


def test_numbers_and_topics_that_there_are_not_take_no_memory_and_change_nothing(
    world: World, topics: tuple[uuid.UUID, uuid.UUID]
) -> None:
    """A share is as long as its largest number: these would take hundreds of megabytes each."""
    orders, _ = topics
    joined = beat(world, 0, [], "a", "orders")
    assert assigned(joined) == {orders: [0, 1, 2, 3]}
    absurd: Owned = [(uuid.UUID(int=number), [0, LAST_NUMBER]) for number in range(10_000)]
    absurd += [(orders, [LAST_NUMBER, -1, -(2**31), 4])] * 1000
    for epoch in (joined.member_epoch, joined.member_epoch):
        answer = beat(world, epoch, [(orders, [3, 1, 0, 2]), *absurd])
        assert (error(answer.error_code), answer.member_epoch, answer.assignment) == ("NONE", epoch, None)


def test_what_a_member_has_it_has_beside_nonsense_too(world: World, topics: tuple[uuid.UUID, uuid.UUID]) -> None:
    orders, _ = topics
    first = beat(world, 0, [], "a", "orders")
    assert assigned(beat(world, 0, [], "b", "orders")) == {}
    nonsense: Owned = [(uuid.UUID(int=7), [LAST_NUMBER]), (orders, [LAST_NUMBER, -5])]
    told = beat(world, first.member_epoch, [*nonsense, (orders, [0, 1, 2, 3])])
    assert (told.member_epoch, assigned(told)) == (first.member_epoch, {orders: [0, 1]})
    still = beat(world, first.member_epoch, [(orders, [0, 1]), *nonsense, (orders, [2])])
    assert still.member_epoch == first.member_epoch, "it has not given back all of it"
    given_back = beat(world, first.member_epoch, [(orders, [0]), *nonsense, (orders, [1])])
    assert given_back.member_epoch == first.member_epoch + 1
    assert assigned(beat(world, first.member_epoch + 1, [], "b")) == {orders: [2, 3]}


def test_what_is_left_of_a_deleted_topic_counts_as_given_back(
    world: World, topics: tuple[uuid.UUID, uuid.UUID]
) -> None:
    """Nobody else can get it, so nobody has to wait until the member has given it back."""
    orders, refunds = topics
    first = beat(world, 0, [], "a", "orders", "refunds")
    everything = [(orders, [0, 1, 2, 3]), (refunds, [0, 1])]
    assert assigned(first) == dict(everything)
    delete_topic(world, "refunds")
    told = beat(world, first.member_epoch, everything)
    assert (told.member_epoch, assigned(told)) == (first.member_epoch + 1, {orders: [0, 1, 2, 3]})
    again = create_topic(world, "refunds", 2).topic_id
    assert assigned(beat(world, told.member_epoch, everything)) == {orders: [0, 1, 2, 3], again: [0, 1]}


def test_a_member_that_is_giving_back_goes_on_when_that_topic_is_deleted(
    world: World, topics: tuple[uuid.UUID, uuid.UUID]
) -> None:
    orders, refunds = topics
    first = beat(world, 0, [], "a", "orders", "refunds")
    everything = [(orders, [0, 1, 2, 3]), (refunds, [0, 1])]
    told = beat(world, first.member_epoch, everything, "a", "orders")
    assert (told.member_epoch, assigned(told)) == (first.member_epoch, {orders: [0, 1, 2, 3]})
    delete_topic(world, "refunds")
    assert beat(world, first.member_epoch, everything).member_epoch > first.member_epoch


def test_who_joins_owns_nothing_not_even_what_there_is_not(world: World, topics: tuple[uuid.UUID, uuid.UUID]) -> None:
    orders, _ = topics
    for owned in ([(orders, [0])], [(orders, [LAST_NUMBER])], [(uuid.UUID(int=7), [0])]):
        assert error(beat(world, 0, owned, "a", "orders").error_code) == "INVALID_REQUEST"
    assert assigned(beat(world, 0, [(orders, [])], "a", "orders")) == {orders: [0, 1, 2, 3]}
