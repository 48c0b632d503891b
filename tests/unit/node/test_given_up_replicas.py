"""A replica whose partition went on elsewhere without its records: the broker hears of it while it runs, sets the log
aside, and deletes and serves nothing of it."""

from collections.abc import Iterator

import pytest
from simulation.world.life import DATA_DIRECTORY
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, delete_topic, fetch, fill, only, values_in
from tests.unit.node.two_brokers import ME, OTHER, elect, election, leadership, write

from cordwood.log.directory.set_aside import read_note
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.wire.apis import ApiKey

A_FEW_TURNS_MS = 50
NAME = TopicPartition("orders", 0)
ASIDE = "orders-0.0-stray"


@pytest.fixture
def world() -> Iterator[World]:
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    world = World(seed=1, settings=settings).start()
    yield world
    world.kill()


def lead_with(world: World, *values: bytes) -> None:
    """Has this broker lead `orders` in epoch 2, the only one in sync."""
    create_topic(world)
    elect(world, "orders", ME, isr=(ME,))
    fill(world, "orders", *values)
    elect(world, "orders", ME, isr=(ME,))
    assert leadership(world, "orders").epoch == 2


def give_up(world: World) -> None:
    """Has the partition begin anew on the other broker."""
    write(world, election(world, "orders", OTHER, replicas=(OTHER,), lossy_epoch=3))
    world.advance(A_FEW_TURNS_MS)


def directories(world: World) -> list[str]:
    return [name for name in world.disk.list_directories(DATA_DIRECTORY) if name.startswith("orders")]


def create_here(world: World) -> None:
    topic = {"name": "orders", "assignments": [{"partition_index": 0, "broker_ids": [ME]}]}
    values = {"topics": [{"num_partitions": -1, "replication_factor": -1, "configs": [], **topic}], "timeout_ms": 1000}
    assert world.ask(ApiKey.CREATE_TOPICS, 7, **values).topics[0].error_code == 0


@pytest.mark.parametrize(
    ("lossy_epoch", "left"),
    [(0, []), (1, []), (3, [ASIDE])],
    ids=["no loss", "a loss before this replica led", "a loss of its records"],
)
def test_a_log_is_set_aside_if_its_successors_may_lack_its_records_and_is_deleted_otherwise(
    world: World, lossy_epoch: int, left: list[str]
) -> None:
    lead_with(world, b"one")
    write(world, election(world, "orders", OTHER, replicas=(OTHER,), lossy_epoch=lossy_epoch))
    world.advance(A_FEW_TURNS_MS)
    assert world.node.hosted.get("orders", 0) is None
    assert directories(world) == left


def test_a_replica_that_has_not_heard_from_the_leader_since_the_loss_is_set_aside(world: World) -> None:
    lead_with(world, b"one")
    write(world, election(world, "orders", OTHER, isr=(OTHER,), lossy_epoch=3))
    assert directories(world) == ["orders-0"]
    write(world, election(world, "orders", OTHER, replicas=(OTHER,), lossy_epoch=3))
    world.advance(A_FEW_TURNS_MS)
    assert directories(world) == [ASIDE]


def test_a_log_that_was_set_aside_keeps_its_offsets_in_a_note(world: World, caplog: pytest.LogCaptureFixture) -> None:
    lead_with(world, b"one", b"two", b"three")
    topic_id = world.node.image.topics["orders"].topic_id
    delete = {"name": "orders", "partitions": [{"partition_index": 0, "offset": 2}]}
    world.ask(ApiKey.DELETE_RECORDS, 2, topics=[delete], timeout_ms=1000)
    give_up(world)
    note = read_note(world.disk, f"{DATA_DIRECTORY}/{ASIDE}")
    assert note is not None
    assert (note.partition, note.topic_id, note.log_start_offset) == (NAME, topic_id, 2)
    assert world.node.logs.home.on_disk.set_aside_directories == [f"{DATA_DIRECTORY}/{ASIDE}"]
    assert f"{ASIDE} is set aside: the partition went on elsewhere" in caplog.text


def test_a_later_topic_of_the_same_name_has_nothing_of_the_log(world: World) -> None:
    lead_with(world, b"old-1", b"old-2")
    give_up(world)
    delete_topic(world, "orders")
    world.advance(A_FEW_TURNS_MS)
    create_here(world)
    fill(world, "orders", b"new-1")
    assert values_in(only(fetch(world, ("orders", 0, 0)))) == [b"new-1"]
    world.advance(2_000)
    world.kill()
    world.start()
    world.advance(2_000)
    assert values_in(only(fetch(world, ("orders", 0, 0)))) == [b"new-1"]
    assert directories(world) == ["orders-0", ASIDE]


def test_a_partition_that_moves_back_begins_empty_and_cuts_nothing_of_the_log(world: World) -> None:
    lead_with(world, b"old-1", b"old-2")
    give_up(world)
    write(world, election(world, "orders", OTHER, replicas=(OTHER, ME), isr=(OTHER,), lossy_epoch=3))
    world.advance(A_FEW_TURNS_MS)
    partition = world.node.hosted.get("orders", 0)
    assert partition is not None
    assert (partition.log.offsets.start, partition.log.offsets.end) == (0, 0)
    assert ASIDE in directories(world)


def test_an_open_log_is_not_given_to_another_topic(world: World) -> None:
    lead_with(world, b"one")
    partition = world.node.hosted.leader("orders", 0)
    with pytest.raises(StorageFailure, match="orders-0 is open as the log of topic id"):
        world.node.logs.open_log(NAME, TopicId(int=7), partition.settings, world.node.now)
