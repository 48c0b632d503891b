"""Requests that are worked on elsewhere are let go in the order of arrival, in each partition."""

import random
from functools import partial

from cordwood.node.partitions.partition_order import PartitionOrder


def test_a_request_waits_for_those_before_it_in_any_of_its_partitions() -> None:
    order, gone = PartitionOrder(), []
    first = order.enter(["a"], lambda: gone.append(1))
    second = order.enter(["a", "b"], lambda: gone.append(2))
    third = order.enter(["b"], lambda: gone.append(3))
    apart = order.enter(["c"], lambda: gone.append(4))
    assert order.busy(["b"])
    assert not order.busy(["d"])
    third()
    second()
    assert gone == []
    apart()
    assert gone == [4]
    first()
    assert gone == [4, 1, 2, 3]
    assert not order


def test_a_request_that_arrives_during_anothers_turn_waits_behind_it() -> None:
    order, gone = PartitionOrder(), []

    def first_goes() -> None:
        order.enter(["a"], lambda: gone.append("second"))()
        gone.append("first")

    order.enter(["a"], first_goes)()
    assert gone == ["first", "second"]
    assert not order


def test_whatever_is_ready_when_each_partition_keeps_its_order() -> None:
    chance = random.Random(1)
    for _ in range(200):
        order = PartitionOrder()
        gone: list[int] = []
        named = [chance.sample("abcd", chance.randint(1, 3)) for _ in range(8)]
        ready = [order.enter(names, partial(gone.append, number)) for number, names in enumerate(named)]
        chance.shuffle(ready)
        for each in ready:
            each()
        for partition in "abcd":
            there = [number for number in gone if partition in named[number]]
            assert there == sorted(there)
        assert len(gone) == 8
        assert not order
