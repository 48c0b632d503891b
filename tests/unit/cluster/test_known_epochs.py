"""Epochs that only rise reveal a store that went back, also where the store has forgotten its history."""

from collections.abc import Mapping

import pytest

from cordwood.cluster.metadata.known_epochs import KnownEpochs, behind, decode_known_epochs, encode_known_epochs
from cordwood.cluster.metadata.rows import (
    PartitionRow,
    broker_epoch_key,
    encode_partition,
    partition_key,
    topic_name_key,
)
from cordwood.cluster.stores.interface import KeyValue
from cordwood.model.identifiers import TopicId

ORDERS = TopicId("0a8a6c0e-7a3f-4b6e-8f2e-5b7f0e6a1c2d")
KNOWN = KnownEpochs({1: 4, 2: 7}, {ORDERS: [3, 5]})


def store(brokers: Mapping[int, int], partitions: Mapping[int, int], *, named: bool = True) -> list[KeyValue]:
    rows = {broker_epoch_key(broker): b"%d" % epoch for broker, epoch in brokers.items()}
    for number, epoch in partitions.items():
        row = PartitionRow(1, 1, 0, replicas=(1,), isr=(1,), partition_epoch=epoch)
        rows[partition_key(ORDERS, number)] = encode_partition(row)
    if named:
        rows[topic_name_key("orders")] = str(ORDERS).encode()
    return [KeyValue(key, value, 2, 2, 0) for key, value in sorted(rows.items())]


@pytest.mark.parametrize(
    "items",
    [
        pytest.param(store({1: 4, 2: 7}, {0: 3, 1: 5}), id="the same"),
        pytest.param(store({1: 5, 2: 7, 3: 1}, {0: 9, 1: 5, 2: 0}), id="later"),
        pytest.param(store({1: 4, 2: 7}, {0: 0}, named=False), id="the topic was deleted, and is being swept"),
    ],
)
def test_a_store_that_is_as_new_as_is_known_is_not_behind(items: list[KeyValue]) -> None:
    assert behind(KNOWN, items) is None


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (store({1: 4, 2: 6}, {0: 3, 1: 5}), "broker 2 is in epoch 6, and was in epoch 7"),
        (store({1: 4}, {0: 3, 1: 5}), "broker 2 is in epoch 0, and was in epoch 7"),
        (store({1: 4, 2: 7}, {0: 9, 1: 4}), "the metadata of orders-1 is at change 4, and was at change 5"),
        (store({1: 4, 2: 7}, {0: 3}), "partition 1 of orders is unknown, and was known"),
    ],
)
def test_a_store_that_is_behind_is_told_by_the_first_epoch_that_is_lower(items: list[KeyValue], words: str) -> None:
    assert behind(KNOWN, items) == words


def test_epochs_are_read_as_they_were_written() -> None:
    assert decode_known_epochs(encode_known_epochs(KNOWN)) == KNOWN
