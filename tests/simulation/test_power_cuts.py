"""All replicas lose their power under `ack.durability=os`: what is left of the acknowledged records on any of them is
kept, whoever led and whoever comes back first."""

from collections.abc import Iterator

import pytest
from simulation.game import FENCES_LIFTED_MS
from simulation.world.world import World
from tests.simulation.scenes import keep_through_power_cut, lose_power_and_tail
from tests.simulation.test_replication_on_machines import (
    ALL,
    ROUND_MS,
    TOPIC,
    begin_produce,
    create,
    cut_off,
    hosted,
    image,
    log,
    others,
    told,
)

from cordwood.cluster.metadata.rows import LogEnd
from cordwood.cluster.planner.survivors import ANSWERS_WITHIN_MS
from cordwood.node.partitions.log_ends import LogEnds
from cordwood.node.partitions.partition import Partition
from cordwood.wire.apis import ApiKey

AWAY_MS = 12_000
"""Registrations of brokers that lost their power have ended by then."""
SETTLED_MS = 20_000


@pytest.fixture
def world() -> Iterator[World]:
    settings = {"replica.lag.time.max.ms": "1000", "auto.leader.rebalance.enable": "false"}
    world = World(seed=1, settings=settings, machines=3, clustered=True).start()
    world.advance(FENCES_LIFTED_MS)
    yield world
    world.kill()


def acknowledged(world: World) -> int:
    """Has all replicas acknowledge three records. Returns their leader."""
    leader = create(world, ack_durability="os")
    for number in range(3):
        sent = begin_produce(world, leader, b"%d" % number)
        world.advance(ROUND_MS)
        assert told(sent) == "NONE"
    return leader


def start(world: World, *brokers: int, apart_ms: int = 0) -> None:
    for broker_id in brokers:
        world.machine_of(broker_id).start()
        world.advance(apart_ms)
    world.advance(SETTLED_MS)


def ends(world: World) -> list[int]:
    return [log(world, broker_id).offsets.end for broker_id in ALL]


def test_the_longest_log_leads_though_the_last_leader_is_back_as_well(world: World) -> None:
    leader = acknowledged(world)
    shorter, keeper = others(leader)
    lose_power_and_tail(world, leader, records=1)
    lose_power_and_tail(world, shorter, records=2)
    keep_through_power_cut(world, keeper)
    world.advance(AWAY_MS)
    start(world, keeper, shorter, leader)
    assert image(world, leader).leader == keeper
    assert ends(world) == [3, 3, 3]
    assert set(image(world, leader).isr) == set(ALL)
    assert told(begin_produce(world, keeper, b"goes on")) == "NONE"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_longest_log_leads_whoever_comes_back_first(world: World, place: int) -> None:
    leader = acknowledged(world)
    keeper = others(leader)[0]
    for broker_id in ALL:
        if broker_id == keeper:
            keep_through_power_cut(world, broker_id)
        else:
            lose_power_and_tail(world, broker_id, records=0)
    world.advance(AWAY_MS)
    order = [broker_id for broker_id in ALL if broker_id != keeper]
    order.insert(place, keeper)
    start(world, *order, apart_ms=AWAY_MS)
    assert ends(world) == [3, 3, 3]
    assert set(image(world, leader).isr) == set(ALL)


def test_a_later_epoch_counts_more_than_a_longer_log(world: World) -> None:
    """The deposed leader has records behind the end of its epoch, which nobody acknowledged."""
    deposed = acknowledged(world)
    cut_off(world, deposed)
    for _ in range(3):
        begin_produce(world, deposed, b"on one", acks=1)
    keep_through_power_cut(world, deposed)
    world.advance(AWAY_MS)
    leader = image(world, others(deposed)[0]).leader
    last = next(each for each in others(deposed) if each != leader)
    assert told(begin_produce(world, leader, b"acknowledged later")) == "NONE"
    world.advance(ROUND_MS)
    lose_power_and_tail(world, last, records=3)
    keep_through_power_cut(world, leader)
    world.links.heal_all()
    world.advance(AWAY_MS)
    start(world, deposed, last, leader)
    assert image(world, leader).leader == leader
    assert ends(world) == [4, 4, 4]


def test_a_log_that_was_emptied_counts_more_than_one_that_ends_before_its_start(world: World) -> None:
    """A leader that ends before the start of another log would give out offsets again that consumers have passed."""
    leader = acknowledged(world)
    stale, follower = others(leader)
    keep_through_power_cut(world, stale)
    world.advance(AWAY_MS)
    assert told(begin_produce(world, leader, b"without the stale one")) == "NONE"
    world.advance(ROUND_MS)
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 4}]}]
    world.ask_at(leader, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=1000)
    world.advance(2 * ROUND_MS)
    keep_through_power_cut(world, leader)
    keep_through_power_cut(world, follower)
    world.advance(AWAY_MS)
    start(world, stale, leader, follower)
    assert image(world, leader).leader in (leader, follower)
    assert ends(world) == [4, 4, 4]


def test_a_replica_that_does_not_answer_is_not_waited_for_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = acknowledged(world)
    mute = others(leader)[0]
    for broker_id in ALL:
        keep_through_power_cut(world, broker_id)
    world.advance(AWAY_MS)
    real = LogEnds._end_of

    def end_of(log_ends: LogEnds, partition: Partition) -> LogEnd | None:
        return None if partition is hosted(world, mute) else real(log_ends, partition)

    monkeypatch.setattr(LogEnds, "_end_of", end_of)
    for broker_id in ALL:
        world.machine_of(broker_id).start()
    world.advance(ANSWERS_WITHIN_MS // 2)
    assert not world.machine_of(leader).node.image.brokers[leader].fenced
    assert image(world, leader).leader == -1
    world.advance(SETTLED_MS)
    assert image(world, leader).leader in ALL
    assert ends(world) == [3, 3, 3]
