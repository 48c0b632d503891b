"""Three brokers with a controller, and disks that fill up: acknowledgements go on where there is room."""

from collections.abc import Iterator

import pytest
from simulation.world.world import World
from tests.simulation.test_refused_batches import sequence_told
from tests.simulation.test_replication_on_machines import (
    ALL,
    ROUND_MS,
    begin_produce,
    content,
    create,
    elect,
    image,
    log,
    others,
    read,
    told,
)
from tests.unit.node.speaking import batch_of, create_topic, produce

from cordwood.cluster.metadata.rows import broker_key
from cordwood.cluster.planner.registration import Condition, plan_own_row
from cordwood.model.errors import ErrorCode
from cordwood.node.partitions.full_disk import CALM_MS, LOOK_MS
from cordwood.wire.apis import ApiKey

SOON_MS = 500
"""Much less than replica.lag.time.max.ms."""
ROOM_AGAIN_MS = CALM_MS + 2 * LOOK_MS + 2 * ROUND_MS


@pytest.fixture
def world() -> Iterator[World]:
    settings = {"replica.lag.time.max.ms": "30000", "auto.leader.rebalance.enable": "false"}
    world = World(seed=1, settings=settings, machines=3, clustered=True).start()
    world.advance(3_000)
    yield world
    world.kill()


def fill(world: World, *brokers: int) -> None:
    for broker_id in brokers:
        world.machine_of(broker_id).disk.platter.free_for_appends = 0


def free(world: World, *brokers: int) -> None:
    for broker_id in brokers:
        world.machine_of(broker_id).disk.platter.free_for_appends = None


def in_sync(world: World) -> set[int]:
    return set(image(world).isr)


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_acks_do_not_wait_for_a_follower_whose_disk_is_full(world: World, durability: str) -> None:
    leader = create(world, ack_durability=durability, min_insync_replicas="2")
    full, _ = others(leader)
    fill(world, full)
    sent = begin_produce(world, leader, b"one")
    world.advance(SOON_MS)
    assert told(sent) == "NONE"
    assert in_sync(world) == set(ALL) - {full}
    assert image(world).leader == leader
    world.advance(ROOM_AGAIN_MS)
    assert in_sync(world) == set(ALL) - {full}, "the disk is still full"
    assert told(begin_produce(world, leader, b"two")) == "NONE"
    free(world, full)
    world.advance(ROOM_AGAIN_MS)
    assert in_sync(world) == set(ALL)
    assert len({content(log(world, broker_id)) for broker_id in ALL}) == 1
    assert told(begin_produce(world, leader, b"three")) == "NONE"


def test_a_follower_whose_disk_is_full_stays_eligible_where_too_few_are_in_sync_without_it(world: World) -> None:
    leader = create(world, min_insync_replicas="3")
    full, _ = others(leader)
    fill(world, full)
    sent = begin_produce(world, leader, b"one")
    world.advance(SOON_MS)
    assert told(sent) == "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    assert (in_sync(world), image(world).elr) == (set(ALL) - {full}, (full,))
    assert told(begin_produce(world, leader, b"two")) == "NOT_ENOUGH_REPLICAS"
    free(world, full)
    world.advance(ROOM_AGAIN_MS)
    assert (in_sync(world), image(world).elr) == (set(ALL), ())
    assert told(begin_produce(world, leader, b"three")) == "NONE"


def test_a_leader_whose_disk_is_full_hands_over_to_a_replica_with_room(world: World) -> None:
    leader = create(world, min_insync_replicas="2")
    assert told(begin_produce(world, leader, b"one")) == "NONE"
    fill(world, leader)
    assert told(begin_produce(world, leader, b"two")) == "KAFKA_STORAGE_ERROR"
    world.advance(SOON_MS)
    successor = image(world).leader
    assert successor != leader
    sent = begin_produce(world, successor, b"three")
    world.advance(SOON_MS)
    assert told(sent) == "NONE"
    assert in_sync(world) == set(ALL) - {leader}
    free(world, leader)
    world.advance(ROOM_AGAIN_MS)
    assert (image(world).leader, in_sync(world)) == (successor, set(ALL))
    assert len({content(log(world, broker_id)) for broker_id in ALL}) == 1


def test_a_leader_leads_on_and_refuses_records_where_no_disk_has_room(world: World) -> None:
    leader = create(world, min_insync_replicas="1")
    assert told(begin_produce(world, leader, b"one")) == "NONE"
    fill(world, *others(leader))
    sent = begin_produce(world, leader, b"two")
    world.advance(SOON_MS)
    assert told(sent) == "NONE"
    fill(world, leader)
    assert told(begin_produce(world, leader, b"three")) == "KAFKA_STORAGE_ERROR"
    world.advance(ROOM_AGAIN_MS)
    assert (image(world).leader, in_sync(world)) == (leader, {leader})
    assert read(world, leader).high_watermark == 2
    free(world, others(leader)[0])
    world.advance(ROOM_AGAIN_MS)
    assert image(world).leader == others(leader)[0], "a replica that has room again gets in sync, and leads"
    free(world, *ALL)
    world.advance(ROOM_AGAIN_MS)
    assert in_sync(world) == set(ALL)
    assert len({content(log(world, broker_id)) for broker_id in ALL}) == 1


def test_a_gap_is_not_laid_to_the_disk_of_a_leader_that_was_full_when_it_led_before(world: World) -> None:
    leader = create(world, min_insync_replicas="2")
    assert sequence_told(world, leader, 0) == "NONE"
    fill(world, leader)
    assert sequence_told(world, leader, 1) == "KAFKA_STORAGE_ERROR"
    world.advance(SOON_MS)
    free(world, leader)
    world.advance(ROOM_AGAIN_MS)
    assert image(world).leader != leader
    elect(world, leader)
    world.advance(ROUND_MS)
    assert sequence_told(world, leader, 2) == "NOT_ENOUGH_REPLICAS", "it may close: another broker led in between"


def test_a_replica_with_a_full_disk_stays_in_sync_beside_those_that_have_just_lost_their_power(
    world: World,
) -> None:
    leader = create(world, ack_durability="os", min_insync_replicas="1")
    assert told(begin_produce(world, leader, b"one")) == "NONE"
    for dead in others(leader):
        world.machine_of(dead).lose_power()
    fill(world, leader)
    begin_produce(world, leader, b"two")
    world.advance(SOON_MS)
    assert leader in image(world, leader).isr
    for dead in others(leader):
        world.machine_of(dead).start()
    world.advance(ROOM_AGAIN_MS)
    assert read(world, image(world, leader).leader).high_watermark == 1


def test_a_broker_that_registers_again_still_says_that_its_disk_is_full(world: World) -> None:
    leader = create(world, min_insync_replicas="2")
    full, _ = others(leader)
    fill(world, full)
    begin_produce(world, leader, b"one")
    world.advance(SOON_MS)
    machine = world.machine_of(full)
    epoch = machine.node.serving.broker_epoch
    machine.pause(clock_stands_still=False)
    world.advance(10_000)
    machine.resume()
    world.advance(3_000)
    assert machine.node.serving.broker_epoch > epoch
    assert world.machine_of(leader).node.image.brokers[full].disk_full
    assert in_sync(world) == set(ALL) - {full}


def test_a_late_word_that_the_disk_is_full_is_taken_back(world: World) -> None:
    leader = create(world, min_insync_replicas="2")
    full, _ = others(leader)
    registered = world.store._items[broker_key(full)]
    # The broker's own write, which was on its way while the disk got room again.
    late = world.store.txn(*plan_own_row(registered, Condition(disk_full=True)))
    with pytest.raises(StopIteration, match="succeeded=True"):
        late.send(None)
    world.advance(ROUND_MS)
    world.advance(SOON_MS)
    assert not world.machine_of(leader).node.image.brokers[full].disk_full
    assert in_sync(world) == set(ALL)


def test_a_lone_broker_says_that_its_disk_is_full_to_who_asks_until_it_has_room() -> None:
    world = World(seed=1).start()
    create_topic(world)

    def says_full() -> bool:
        (told,) = world.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=1).brokers
        assert told.is_disk_full is world.node.full_disk.full
        return bool(told.is_disk_full)

    assert not says_full()
    world.disk.platter.free_for_appends = 0
    (refused,) = produce(world, "orders", batch_of(world, b"value"))
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert says_full()
    world.advance(ROOM_AGAIN_MS)
    assert says_full(), "nobody made room"
    world.disk.platter.free_for_appends = None
    world.advance(ROOM_AGAIN_MS)
    assert not says_full()
    (taken,) = produce(world, "orders", batch_of(world, b"value"))
    assert taken.error_code == 0
    world.kill()
