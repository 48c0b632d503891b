"""Checked batches for another replica: who may ask, what is handed out, and what is not."""

from typing import Any

import pytest
from simulation.world.life import DATA_DIRECTORY
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, fill
from tests.unit.node.test_listeners import BROKERS, CLIENTS, ask
from tests.unit.node.two_brokers import ME, OTHER, elect

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.model.settings.listeners import Entrance
from cordwood.records.batch import batches_in
from cordwood.wire.apis import ApiKey


@pytest.fixture
def replicated(world: World) -> World:
    """This broker leads `orders`, with ten batches in one segment; broker 2 is the other replica."""
    create_topic(world)
    fill(world, "orders", *[b"%d" % number * 50 for number in range(10)])
    elect(world, "orders", ME, isr=(ME,))
    return world


def batches(world: World, entrance: Entrance = BROKERS, **changes: Any) -> tuple[str, list[int]]:
    """The error, and the offsets of the batches that were handed out."""
    image = world.node.image
    values = {
        "broker_id": OTHER,
        "broker_epoch": image.broker_epochs[OTHER],
        "topic_id": image.topics["orders"].topic_id,
        "partition": 0,
        "first_offset": 3,
        "end_offset": 6,
        "max_bytes": 1 << 20,
    }
    answer = ask(world, entrance, ApiKey.SOUND_BATCHES, 0, **{**values, **changes})
    return ErrorCode(answer.error_code).name, [header.base_offset for _, header in batches_in(answer.batches)]


def test_the_asked_batches_are_handed_out(replicated: World) -> None:
    assert batches(replicated) == ("NONE", [3, 4, 5])
    assert batches(replicated, max_bytes=1) == ("NONE", [3]), "one batch at least"
    assert batches(replicated, end_offset=2**62) == ("NONE", [3, 4, 5, 6, 7, 8, 9])


def test_a_follower_hands_them_out_as_well(replicated: World) -> None:
    elect(replicated, "orders", OTHER)
    assert batches(replicated) == ("NONE", [3, 4, 5])


def test_only_other_replicas_may_ask_at_the_listener_of_brokers(replicated: World) -> None:
    assert batches(replicated, CLIENTS) == ("CLUSTER_AUTHORIZATION_FAILED", [])
    assert batches(replicated, broker_epoch=77) == ("STALE_BROKER_EPOCH", [])
    assert batches(replicated, topic_id=TopicId(int=5)) == ("UNKNOWN_TOPIC_ID", [])
    assert batches(replicated, partition=9) == ("NOT_LEADER_OR_FOLLOWER", [])
    elect(replicated, "orders", ME, replicas=(ME,))
    assert batches(replicated) == ("NOT_LEADER_OR_FOLLOWER", [])


def test_offsets_that_are_not_here_or_not_committed_are_refused(replicated: World) -> None:
    assert batches(replicated, first_offset=10, end_offset=12) == ("OFFSET_OUT_OF_RANGE", [])
    assert batches(replicated, first_offset=-1) == ("OFFSET_OUT_OF_RANGE", [])
    assert batches(replicated, first_offset=5, end_offset=5) == ("OFFSET_OUT_OF_RANGE", [])


def test_no_damaged_batch_is_handed_out(replicated: World) -> None:
    path = f"{DATA_DIRECTORY}/orders-0/{0:020}.log"
    size = len(replicated.disk.platter.read_bytes(path)) // 10
    replicated.disk.platter.corrupt(path, 4 * size + 80, b"\xff\xff")
    assert batches(replicated) == ("NONE", [3])
    assert batches(replicated, first_offset=4) == ("CORRUPT_MESSAGE", [])
    assert batches(replicated, first_offset=5) == ("NONE", [5])
