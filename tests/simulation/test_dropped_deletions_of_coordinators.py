"""Coordinators that load from a replica which was away while compaction dropped markers and tombstones."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.checkers.compacted import check_compacted
from simulation.workloads.transactional_writers import TOPIC
from simulation.world.world import World
from tests.simulation.test_dropped_deletions import LAG_MS, SETTINGS
from tests.simulation.test_replication_on_machines import ALL, ONE, ROUND_MS, content, cut_off, elect, heal, others

from cordwood.log.log import Log
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

NAME = "writer"
INTERNAL = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "transactional.id.expiration.ms": "20000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
}
EXPIRED_MS = 26_000


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, settings={**SETTINGS, **INTERNAL}, machines=3).start()
    world.settle()
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 3}
    assert ask(world, ApiKey.CREATE_TOPICS, 4, topics=[topic], timeout_ms=1000).topics[0].error_code == 0
    for key_type, key in ((1, NAME), (0, "group")):
        ask(world, ApiKey.FIND_COORDINATOR, 2, key=key, key_type=key_type)
        world.advance(2 * ROUND_MS)
    for name in (TOPIC, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
        elect(world, ONE, topic=name)
    world.advance(ROUND_MS)
    yield world
    world.kill()


def ask(world: World, api: Any, version: int, /, **values: Any) -> Any:
    """The first broker's answer, which may wait for the others."""
    exchange = world.connect(ONE).request(api, version, values)
    for _ in range(100):
        world.advance(20)
        if exchange.answered:
            return exchange.answer
    raise AssertionError(f"{exchange}: {exchange.state}")


class Producer:
    """A transactional producer that moves positions of groups."""

    def __init__(self, world: World) -> None:
        self.world = world
        nobody = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        begun = ask(world, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=NAME, **nobody)
        assert begun.error_code == 0
        self.who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}

    def move(self, group: str, offset: int) -> None:
        who = {"transactional_id": NAME, **self.who}
        added = ask(self.world, ApiKey.ADD_OFFSETS_TO_TXN, 3, group_id=group, **who)
        assert added.error_code == 0
        entry = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": TOPIC, "partitions": [entry]}]
        moved = ask(self.world, ApiKey.TXN_OFFSET_COMMIT, 3, group_id=group, topics=topics, **who)
        assert moved.topics[0].partitions[0].error_code == 0

    def end(self, *, commit: bool) -> None:
        ended = ask(self.world, ApiKey.END_TXN, 3, transactional_id=NAME, **self.who, committed=commit)
        assert ended.error_code == 0
        self.world.advance(200)


def log_of(world: World, broker_id: int, topic: str) -> Log:
    partition = world.machine_of(broker_id).node.hosted.get(topic, 0)
    assert partition is not None
    return partition.log


def isr(world: World, topic: str) -> set[int]:
    return set(world.machine_of(ONE).node.image.topics[topic].partitions[0].isr)


def append(world: World, topic: str, key: bytes, value: bytes | None) -> None:
    """Appends a record that no coordinator takes notice of, so that compaction has something to do."""
    node = world.machine_of(ONE).node
    partition = node.hosted.get(topic, 0)
    assert partition is not None
    node.appends.append_internal(partition, build_batch([(world.clock.wall_ms, key, value, ())]), node.loop.now)
    world.advance(50)


def ids_at(world: World, broker_id: int) -> list[str]:
    """The transactional ids that the coordinator there knows."""
    listed = world.ask_at(broker_id, ApiKey.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[])
    assert listed.error_code == 0
    return [each.transactional_id for each in listed.transaction_states]


def compact(world: World, topic: str) -> None:
    """Goes on until compaction has come some rounds further."""
    for number in range(6):
        append(world, topic, UNKNOWN_KEY + b"other", b"%d" % number)
        for broker_id in ALL:
            if log_of(world, broker_id, topic).segments.active is not None:
                log_of(world, broker_id, topic).roll()
        world.advance(2_000)


UNKNOWN_KEY = (9_999).to_bytes(2, "big")
"""The type of records that coordinators pass over."""


def test_a_position_that_was_aborted_while_a_replica_was_away_is_not_committed_there(world: World) -> None:
    producer = Producer(world)
    producer.move("group", 5)
    producer.end(commit=True)
    producer.move("group", 1000)
    world.advance(ROUND_MS)
    late = others(ONE)[0]
    cut_off(world, late)
    world.advance(3 * LAG_MS)
    producer.end(commit=False)
    producer.move("another group", 6)
    producer.end(commit=True)
    compact(world, CONSUMER_OFFSETS_TOPIC)
    dropped = log_of(world, ONE, CONSUMER_OFFSETS_TOPIC).segments.dropped
    assert dropped is not None
    assert dropped.highest > log_of(world, late, CONSUMER_OFFSETS_TOPIC).offsets.end - 1, "the abort marker is gone"
    heal(world, late)
    world.advance(15_000)
    assert isr(world, CONSUMER_OFFSETS_TOPIC) == set(ALL)
    check_compacted(world, CONSUMER_OFFSETS_TOPIC)
    elect(world, late, topic=CONSUMER_OFFSETS_TOPIC)
    world.advance(ROUND_MS)
    asked = {"group_id": "group", "topics": [{"name": TOPIC, "partition_indexes": [0]}], "require_stable": True}
    (found,) = world.ask_at(late, ApiKey.OFFSET_FETCH, 7, **asked).topics[0].partitions
    assert (found.error_code, found.committed_offset) == (0, 5)


def test_an_expired_transactional_id_does_not_return_with_its_old_epoch(world: World) -> None:
    """With the id its producer would be back: an old epoch that fences nobody, and a producer id that is given out."""
    first = Producer(world)
    first.move("group", 5)
    first.end(commit=True)
    world.advance(ROUND_MS)
    late = others(ONE)[0]
    cut_off(world, late)
    world.advance(3 * LAG_MS)
    assert ids_at(world, ONE) == [NAME]
    world.advance(EXPIRED_MS)
    assert ids_at(world, ONE) == []
    compact(world, TRANSACTION_STATE_TOPIC)
    has_id = [NAME.encode() in content(log_of(world, each, TRANSACTION_STATE_TOPIC)) for each in (ONE, late)]
    assert has_id == [False, True], "compaction dropped the tombstone, and the replica that is away never had it"
    heal(world, late)
    world.advance(15_000)
    assert isr(world, TRANSACTION_STATE_TOPIC) == set(ALL)
    check_compacted(world, TRANSACTION_STATE_TOPIC)
    elect(world, late, topic=TRANSACTION_STATE_TOPIC)
    world.advance(ROUND_MS)
    assert ids_at(world, late) == []
