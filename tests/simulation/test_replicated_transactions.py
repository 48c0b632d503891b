"""Transactions whose coordinator and partitions are replicated: no answer rests on records that a failover may lose."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.exchange import Exchange
from simulation.world.world import World
from tests.simulation.test_replication_on_machines import ONE, ROUND_MS, TOPIC, create, elect, log, others

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC
from cordwood.node.coordinators.transactional_appends import ADDS_FROM_VERSION
from cordwood.node.partitions.early_batches import FIRST_BATCH_WITHIN_MS
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

NAME = "writer"
A_WHILE_MS = 500
"""Shorter than the lag after which a follower leaves the in-sync set."""
SETTINGS = {
    "replica.lag.time.max.ms": "5000",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1, settings=SETTINGS, machines=3).start()
    world.settle()
    yield world
    world.kill()


class Story:
    """A transaction with one record, whose coordinator and partition are led by different brokers."""

    def __init__(self, world: World, **configs: str) -> None:
        self.world = world
        create(world, **configs)
        world.ask_at(ONE, ApiKey.FIND_COORDINATOR, 2, key=NAME, key_type=1)
        world.advance(ROUND_MS)
        image = world.machine_of(ONE).node.image
        (state,) = image.topics[TRANSACTION_STATE_TOPIC].partitions
        assert len(state.isr) == 3
        self.coordinator = state.leader
        self.leader, self.third = others(self.coordinator)
        elect(world, self.leader)
        world.advance(ROUND_MS)
        nobody = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        begun = self.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=NAME, **nobody)
        self.who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        topics = [{"name": TOPIC, "partitions": [0]}]
        who = {f"v3_and_below_{name}": value for name, value in {"transactional_id": NAME, **self.who}.items()}
        added = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_topics=topics, **who)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        batch = build_batch([(world.clock.wall_ms, None, b"v", [])], **self.who, base_sequence=0, transactional=True)
        entry = {"name": TOPIC, "partition_data": [{"index": 0, "records": bytes(batch)}]}
        values = {"transactional_id": NAME, "acks": -1, "timeout_ms": 30_000, "topic_data": [entry]}
        written = world.ask_at(self.leader, ApiKey.PRODUCE, 8, **values)
        assert written.responses[0].partition_responses[0].error_code == 0

    def ask(self, key: ApiKey, version: int, **values: Any) -> Any:
        return self.world.ask_at(self.coordinator, key, version, **values)

    def begin_end(self) -> Exchange:
        values = {"transactional_id": NAME, **self.who, "committed": True}
        exchange = self.world.connect(self.coordinator).request(ApiKey.END_TXN, 4, values)
        self.world.settle()
        return exchange

    @property
    def state(self) -> str:
        (found,) = self.world.ask_at(
            self.coordinator, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[NAME]
        ).transaction_states
        return str(found.transaction_state)


def told(exchange: Exchange) -> str:
    assert exchange.answered, exchange.state
    return ErrorCode(exchange.answer.error_code).name


def test_the_end_is_answered_and_marked_only_when_the_in_sync_replicas_have_the_decision(world: World) -> None:
    story = Story(world)
    end = log(world, story.leader).offsets.end
    world.links.cut(story.third, story.coordinator)
    ending = story.begin_end()
    world.advance(A_WHILE_MS)
    assert not ending.ended
    assert log(world, story.leader).offsets.end == end, "no marker before the decision is committed"
    world.links.heal(story.third, story.coordinator)
    world.advance(ROUND_MS)
    assert told(ending) == "NONE"
    assert story.state == "CompleteCommit"
    assert log(world, story.leader).offsets.end == end + 1


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_transaction_is_complete_only_when_the_in_sync_replicas_have_its_markers(
    world: World, durability: str
) -> None:
    story = Story(world, ack_durability=durability)
    end = log(world, story.leader).offsets.end
    world.links.cut(story.third, story.leader)
    ending = story.begin_end()
    world.advance(A_WHILE_MS)
    assert told(ending) == "NONE"
    assert log(world, story.leader).offsets.end == end + 1
    assert story.state == "PrepareCommit"
    world.links.heal(story.third, story.leader)
    world.advance(ROUND_MS)
    assert story.state == "CompleteCommit"
    assert log(world, story.leader).offsets.end == end + 1, "one marker"


def test_a_marker_is_on_the_disk_of_its_leader_before_the_completion_is_whatever_the_acks_of_the_topic_mean(
    world: World,
) -> None:
    """__transaction_state counts by the disk: after the completion nobody would write the marker again."""
    story = Story(world, ack_durability="os")
    assert told(story.begin_end()) == "NONE"
    world.advance(ROUND_MS)
    assert story.state == "CompleteCommit"
    offsets = log(world, story.leader).offsets
    assert offsets.durable_end == offsets.end


def test_a_decision_is_completed_by_the_next_coordinator(world: World) -> None:
    story = Story(world)
    world.links.cut(story.third, story.leader)
    ending = story.begin_end()
    world.advance(A_WHILE_MS)
    assert told(ending) == "NONE"
    assert story.state == "PrepareCommit"
    world.links.heal_all()
    world.machine_of(story.coordinator).kill()
    elect(world, story.leader, isr=(story.leader, story.third), topic=TRANSACTION_STATE_TOPIC)
    elect(world, story.leader, isr=(story.leader, story.third))
    world.advance(ROUND_MS)
    story.coordinator = story.leader
    assert story.state == "CompleteCommit"


def test_the_first_batch_of_a_transaction_is_waited_for_after_an_election(world: World) -> None:
    story = Story(world)
    early, late = (Newcomer(story, name) for name in ("early", "late"))
    for leader in (story.third, story.leader):
        elect(world, leader)
        world.advance(ROUND_MS)
    assert early.told(sequence=1) == "NOT_ENOUGH_REPLICAS"
    assert [early.told(sequence=0), early.told(sequence=1)] == ["NONE", "NONE"]
    world.advance(FIRST_BATCH_WITHIN_MS)
    assert late.told(sequence=1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


class Newcomer:
    """A transactional producer that has written nothing yet. Its first batch begins its transaction."""

    def __init__(self, story: Story, name: str) -> None:
        self._story = story
        self._name = name
        nobody = {"transaction_timeout_ms": 600_000, "producer_id": -1, "producer_epoch": -1}
        begun = story.ask(ApiKey.INIT_PRODUCER_ID, 5, transactional_id=name, **nobody)
        self._who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}

    def told(self, *, sequence: int) -> str:
        world = self._story.world
        rows = [(world.clock.wall_ms, None, b"v", ())]
        batch = build_batch(rows, **self._who, base_sequence=sequence, transactional=True)
        entry = {"name": TOPIC, "partition_data": [{"index": 0, "records": bytes(batch)}]}
        values = {"transactional_id": self._name, "acks": -1, "timeout_ms": 30_000, "topic_data": [entry]}
        answer = world.ask_at(self._story.leader, ApiKey.PRODUCE, ADDS_FROM_VERSION, **values)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code).name
