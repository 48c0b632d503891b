"""Who stays in an in-sync set when brokers come back without records: pure decisions of the controller."""

import pytest

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.cluster.metadata.rows import BrokerRow
from cordwood.cluster.planner.failover import decide
from cordwood.model.identifiers import TopicId
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.topic_settings import resolve

REPLICAS = (3, 1, 2)


def decided(
    *returned: int, leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = (), durability: str = "os"
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """ISR and ELR after these brokers have registered again after a power cut."""
    image = ClusterImage(1, BrokerSettings.from_texts({}))
    for broker in returned:
        image.brokers[broker] = BrokerRow(2, "", (), None, storage_id="same", unclean=True, fenced=True)
        image.storage_ids[broker] = "same"
        image.broker_epochs[broker] = 2
    partition = PartitionImage(leader, 5, 1, REPLICAS, isr, 7, elr)
    topic = TopicImage("t", TopicId(int=1), (partition,), {}, resolve({"ack.durability": durability}))
    row = decide(image, topic, partition).row
    return (partition.isr, partition.elr) if row is None else (row.isr, row.elr)


def test_a_broker_that_lost_power_leaves_the_in_sync_set_to_others() -> None:
    assert decided(1, leader=3, isr=(3, 1)) == ((3,), ())


@pytest.mark.parametrize(("leader", "stays"), [(1, 1), (2, 2), (-1, 3)])
def test_of_many_that_lost_power_one_stays_and_the_others_catch_up_with_it(leader: int, stays: int) -> None:
    assert decided(1, 2, 3, leader=leader, isr=(3, 1, 2)) == ((stays,), ())


def test_a_member_of_the_in_sync_set_stays_rather_than_an_eligible_one() -> None:
    assert decided(1, 2, 3, leader=-1, isr=(2,), elr=(3, 1)) == ((2,), ())


def test_under_disk_nobody_loses_anything_with_the_power() -> None:
    assert decided(1, 2, 3, leader=-1, isr=(3, 1), elr=(2,), durability="disk") == ((3, 1), (2,))
