"""Three brokers with a controller; the whole log of a replica vanishes from its disk while the broker is down."""

import logging
from collections.abc import Iterator

import pytest
from simulation.world.life import DATA_DIRECTORY
from simulation.world.links import STORE
from simulation.world.world import World
from tests.simulation.test_repair_on_machines import damage
from tests.simulation.test_replication_on_machines import (
    ALL,
    ROUND_MS,
    TOPIC,
    begin_produce,
    content,
    create,
    image,
    log,
    others,
    read,
    told,
)

from cordwood.wire.apis import ApiKey

BATCHES = 6
SETTLED_MS = 15_000


@pytest.fixture
def world() -> Iterator[World]:
    settings = {"log.flush.offset.checkpoint.interval.ms": "1000", "auto.leader.rebalance.enable": "false"}
    world = World(seed=1, settings=settings, machines=3, scrubbed=True, clustered=True).start()
    world.advance(3_000)
    yield world
    world.kill()


def fill(world: World, leader: int, first: int = 0, count: int = BATCHES) -> None:
    for number in range(first, first + count):
        sent = begin_produce(world, leader, b"%03d" % number)
        world.advance(600)
        assert told(sent) == "NONE"
    world.advance(2 * ROUND_MS)


def lose_log(world: World, broker_id: int, *, clean: bool) -> None:
    """Stops the broker, removes the directory of the partition, and starts the broker again at once."""
    machine = world.machine_of(broker_id)
    if clean:
        machine.stop()
    else:
        machine.kill()
    machine.disk.platter.remove_tree(f"{DATA_DIRECTORY}/{TOPIC}-0")
    machine.start()


def contents(world: World) -> set[bytes]:
    return {content(log(world, broker_id)) for broker_id in ALL}


@pytest.mark.parametrize("clean", [True, False])
def test_a_follower_without_its_log_leaves_the_in_sync_set_and_fetches_everything_anew(
    world: World, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    leader = create(world, min_insync_replicas="2")
    fill(world, leader)
    whole = content(log(world, leader))
    follower = others(leader)[0]
    lose_log(world, follower, clean=clean)
    world.advance(SETTLED_MS)
    assert contents(world) == {whole}
    assert set(image(world).isr) == set(ALL)
    assert damage(world, follower) == []
    fill(world, leader, BATCHES, 2)
    assert len(contents(world)) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_leader_without_its_log_is_followed_by_a_replica_that_has_it(world: World, clean: bool) -> None:
    leader = create(world, min_insync_replicas="2")
    fill(world, leader)
    whole = content(log(world, leader))
    lose_log(world, leader, clean=clean)
    world.advance(SETTLED_MS)
    assert contents(world) == {whole}
    assert set(image(world).isr) == set(ALL)
    fill(world, image(world).leader, BATCHES, 2)
    assert len(contents(world)) == 1


def test_the_last_replica_in_sync_leads_no_more_without_its_log_until_an_operator_accepts_the_loss(
    world: World,
) -> None:
    leader = create(world, min_insync_replicas="1")
    fill(world, leader)
    whole = content(log(world, leader))
    for other in others(leader):
        world.machine_of(other).kill()
    world.advance(SETTLED_MS)
    assert image(world, leader).isr == (leader,)
    lose_log(world, leader, clean=False)
    world.advance(SETTLED_MS)
    assert told(begin_produce(world, leader, b"refused")) in ("KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER")
    for other in others(leader):
        world.machine_of(other).start()
    world.advance(SETTLED_MS)
    assert (image(world).leader, image(world).isr, image(world).elr) == (-1, (), ())
    operator = world.machine_of(others(leader)[0]).life
    assert operator is not None
    operator.loop.create_task(operator.metadata_writer.accept_loss(TOPIC, 0, others(leader)[0]))
    world.advance(SETTLED_MS)
    assert contents(world) == {whole}
    assert set(image(world).isr) == set(ALL)


def test_no_replica_follows_the_start_of_a_log_that_lost_its_beginning(world: World) -> None:
    leader = create(world, min_insync_replicas="1")
    fill(world, leader)
    whole = content(log(world, leader))
    follower, _ = others(leader)
    lose_log(world, follower, clean=False)
    begin_produce(world, leader, b"more")
    world.advance(50)
    for broker_id in (follower, leader):
        world.machine_of(broker_id).kill()
    world.machine_of(follower).start()
    world.advance(SETTLED_MS)
    world.machine_of(leader).start()
    world.advance(2 * SETTLED_MS)
    assert [content(log(world, broker_id)).startswith(whole) for broker_id in ALL] == [True] * 3
    assert read(world, image(world).leader).error_code == 0


def create_on(world: World, *broker_ids: int) -> None:
    topic = {"name": TOPIC, "assignments": [{"partition_index": 0, "broker_ids": broker_ids}]}
    values = {"topics": [{"num_partitions": -1, "replication_factor": -1, "configs": [], **topic}], "timeout_ms": 1000}
    assert world.ask_at(broker_ids[0], ApiKey.CREATE_TOPICS, 5, **values).topics[0].error_code == 0
    world.advance(ROUND_MS)


def begin_anew(world: World, on: int) -> None:
    operator = world.machine_of(on).life
    assert operator is not None
    operator.loop.create_task(operator.metadata_writer.begin_anew([(TOPIC, 0)], on))
    world.advance(SETTLED_MS)


def directories(world: World, broker_id: int) -> list[str]:
    """Directories on the broker's disk that have to do with the partition."""
    names = world.machine_of(broker_id).disk.list_directories(DATA_DIRECTORY)
    return [name for name in names if name.startswith(TOPIC)]


def test_a_partition_whose_only_replica_is_away_begins_anew_and_the_old_log_is_set_aside(world: World) -> None:
    old, new, _ = ALL
    create_on(world, old)
    fill(world, old)
    world.machine_of(old).kill()
    world.advance(SETTLED_MS)
    assert image(world, new).leader == -1
    begin_anew(world, new)
    assert (image(world, new).leader, image(world, new).replicas) == (new, (new,))
    assert told(begin_produce(world, new, b"anew")) == "NONE"
    after = content(log(world, new))
    world.machine_of(old).start()
    world.advance(SETTLED_MS)
    assert world.machine_of(old).node.hosted.get(TOPIC, 0) is None
    (aside,) = directories(world, old)
    assert aside != f"{TOPIC}-0", "the old log is set aside"
    assert content(log(world, new)) == after
    assert (image(world, new).leader, image(world, new).recovering) == (new, False)


def cut_off(world: World, broker_id: int, *, cut: bool) -> None:
    """Cuts or heals all links of a broker but those to clients."""
    change = world.links.cut if cut else world.links.heal
    for other in (STORE, *others(broker_id)):
        change(broker_id, other)
        change(other, broker_id)


def move(world: World, *broker_ids: int) -> None:
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": broker_ids}]}]
    moves = world.ask_at(broker_ids[0], ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, timeout_ms=1000, topics=topics)
    assert moves.responses[0].partitions[0].error_code == 0
    world.advance(SETTLED_MS)
    assert image(world, broker_ids[0]).replicas == broker_ids


@pytest.mark.parametrize("is_unclean", [False, True], ids=["accepted loss", "unclean election"])
def test_a_complete_log_is_set_aside_if_its_broker_was_cut_off_while_the_partition_went_on_without_it(
    world: World, is_unclean: bool
) -> None:
    complete, lagging, third = ALL
    create_on(world, complete, lagging)
    world.machine_of(lagging).kill()
    world.advance(SETTLED_MS)
    fill(world, complete)
    whole = content(log(world, complete))
    cut_off(world, complete, cut=True)
    world.machine_of(lagging).start()
    world.advance(2 * SETTLED_MS)
    assert image(world, lagging).leader == -1
    if is_unclean:
        change = {"name": "unclean.leader.election.enable", "config_operation": 0, "value": "true"}
        resources = [{"resource_type": 2, "resource_name": TOPIC, "configs": [change]}]
        world.ask_at(lagging, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    else:
        operator = world.machine_of(lagging).life
        assert operator is not None
        operator.loop.create_task(operator.metadata_writer.accept_loss(TOPIC, 0))
    world.advance(SETTLED_MS)
    assert image(world, lagging).leader == lagging
    move(world, lagging, third)
    cut_off(world, complete, cut=False)
    world.advance(SETTLED_MS)
    assert world.machine_of(complete).node.hosted.get(TOPIC, 0) is None
    (aside,) = directories(world, complete)
    assert aside == f"{TOPIC}-0.0-stray"
    path = f"{DATA_DIRECTORY}/{aside}/{0:020}.log"
    assert world.machine_of(complete).disk.read_bytes(path) == whole


def test_a_replica_that_followed_the_leader_after_a_loss_leaves_nothing_behind(world: World) -> None:
    complete, lagging, third = ALL
    create_on(world, complete)
    fill(world, complete)
    cut_off(world, complete, cut=True)
    world.advance(SETTLED_MS)
    begin_anew(world, lagging)
    move(world, lagging, third)
    assert told(begin_produce(world, lagging, b"anew")) == "NONE"
    cut_off(world, complete, cut=False)
    world.advance(SETTLED_MS)
    move(world, lagging, complete)
    assert (directories(world, third), directories(world, complete)) == ([], [f"{TOPIC}-0", f"{TOPIC}-0.0-stray"])
    assert content(log(world, complete)) == content(log(world, lagging))
