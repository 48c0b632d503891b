"""Transactions whose coordinator, partitions and positions are led by different brokers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from simulation.world.exchange import Exchange
from simulation.world.links import STORE
from simulation.world.machine import Machine
from simulation.world.world import World
from tests.unit.node.speaking import error, only
from tests.unit.node.two_brokers import run

from cordwood.cluster.metadata.rows import PartitionRow, broker_key, encode_partition, partition_key
from cordwood.cluster.stores.interface import Delete, Put
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.node.coordinators.marker_sender import MOST_UNDER_WAY
from cordwood.node.coordinators.transaction_completion import LONGEST_RETRY_MS
from cordwood.node.node import Node
from cordwood.node.requests.catching_up import PATIENCE_MS
from cordwood.records.batch import batches_in
from cordwood.records.build import build_batch
from cordwood.records.records import records_in
from cordwood.wire.apis import ApiKey

HOME, AWAY, NOBODY = 1, 2, -1
"""The brokers of the transaction's coordinator and of the partition, and none."""

TOPIC, NAME, GROUP = "events", "writer", "group"
LATE_CLIENT, CLIENT = 9, 12
"""Produce of clients that add partitions themselves, and of clients for which the leader adds them."""

LONG_MS = 60_000
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def world() -> Iterator[World]:
    """The coordinator is at HOME; of the topic's partitions, 0 is AWAY and 1 at HOME; positions are AWAY."""
    world = World(seed=1, settings=SETTINGS, machines=2).start()
    world.settle()
    create(world)
    for key_type in (0, 1):
        world.ask_at(HOME, ApiKey.FIND_COORDINATOR, 2, key=NAME, key_type=key_type)
    for topic, index, leader in (
        (TRANSACTION_STATE_TOPIC, 0, HOME),
        (CONSUMER_OFFSETS_TOPIC, 0, AWAY),
        (TOPIC, 0, AWAY),
        (TOPIC, 1, HOME),
    ):
        elect(world, topic, leader, index)
    yield world
    world.kill()


def create(world: World, name: str = TOPIC) -> None:
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
    assert world.ask_at(HOME, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000).topics[0].error_code == 0


def delete(world: World) -> None:
    answer = world.ask_at(HOME, ApiKey.DELETE_TOPICS, 5, topic_names=[TOPIC], timeout_ms=1000)
    assert answer.responses[0].error_code == 0


def elect(world: World, topic: str, leader: int, index: int = 0) -> None:
    """Writes a new leader as a controller does, which is the only replica."""
    image = node(world, HOME).image
    found = image.topics[topic]
    before = found.partitions[index]
    row = PartitionRow(
        leader,
        image.broker_epochs.get(leader, 0),
        image.leadership(before).epoch + 1,
        before.replicas if leader == NOBODY else (leader,),
        before.replicas if leader == NOBODY else (leader,),
        partition_epoch=before.partition_epoch + 1,
    )
    put = Put(partition_key(found.topic_id, index), encode_partition(row))
    assert run(world.store.txn((), [put])).succeeded
    world.settle()


def node(world: World, broker_id: int) -> Node:
    return world.machine_of(broker_id).node


def visible(world: World, index: int, broker_id: int) -> list[bytes | None]:
    asked = {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    values: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1}
    answer = world.ask_at(broker_id, ApiKey.FETCH, 12, **values, topics=[{"topic": TOPIC, "partitions": [asked]}])
    part = only(answer)
    aborted = {each.producer_id: each.first_offset for each in reversed(part.aborted_transactions or ())}
    data = part.records or b""
    return [
        record.value
        for at, header in batches_in(data)
        if not header.control and header.base_offset < aborted.get(header.producer_id, header.base_offset + 1)
        for record in records_in(data[at : at + header.size])
    ]


def begin(world: World, broker_id: int, key: ApiKey, version: int, **values: Any) -> Exchange:
    return world.connect(broker_id).request(key, version, values)


class Producer:
    def __init__(self, world: World, name: str = NAME) -> None:
        self.world = world
        self.name = name
        values = {"transactional_id": name, "transaction_timeout_ms": LONG_MS, "producer_id": -1, "producer_epoch": -1}
        answer = world.ask_at(HOME, ApiKey.INIT_PRODUCER_ID, 5, **values)
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def who(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add(self, index: int, topic: str = TOPIC) -> str:
        who = {f"v3_and_below_{name}": value for name, value in self.who.items()}
        topics = [{"name": topic, "partitions": [index]}]
        answer = self.world.ask_at(HOME, ApiKey.ADD_PARTITIONS_TO_TXN, 3, **who, v3_and_below_topics=topics)
        return error(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def begin_write(
        self, value: bytes, index: int, broker_id: int, version: int = CLIENT, sequence: int = 0
    ) -> Exchange:
        batch = build_batch(
            [(self.world.clock.wall_ms, None, value, ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        entry = {"name": TOPIC, "partition_data": [{"index": index, "records": bytes(batch)}]}
        values = {"transactional_id": self.name, "acks": -1, "timeout_ms": 1000, "topic_data": [entry]}
        return begin(self.world, broker_id, ApiKey.PRODUCE, version, **values)

    def write(self, value: bytes, index: int, broker_id: int, version: int = CLIENT) -> str:
        exchange = self.begin_write(value, index, broker_id, version)
        self.world.settle()
        return produced(exchange)

    def move(self, offset: int, version: int = 5) -> str:
        position = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        answer = self.world.ask_at(
            AWAY,
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            **self.who,
            group_id=GROUP,
            topics=[{"name": TOPIC, "partitions": [position]}],
        )
        return error(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool = True, version: int = 5) -> str:
        answer = self.world.ask_at(HOME, ApiKey.END_TXN, version, **self.who, committed=commit)
        if version >= 5 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return error(answer.error_code)


def produced(exchange: Exchange) -> str:
    assert exchange.answered, exchange.state
    return error(exchange.answer.responses[0].partition_responses[0].error_code)


def state(world: World) -> str:
    answer = world.ask_at(HOME, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[NAME])
    return str(answer.transaction_states[0].transaction_state)


def open_producers(world: World, broker_id: int, index: int) -> list[int]:
    """The producers with an open transaction in a partition."""
    producers = node(world, broker_id).hosted.leader(TOPIC, index).log.replayed.producers.describe()
    return [each.producer_id for each in producers if each.transaction_start_offset >= 0]


def position(world: World) -> int:
    asked = [{"name": TOPIC, "partition_indexes": [0]}]
    answer = world.ask_at(AWAY, ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=asked, require_stable=True)
    return int(answer.topics[0].partitions[0].committed_offset)


def step_until(world: World, done: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if done():
            return
        world.do(world.steps()[0][1])
    raise AssertionError("it does not come to that")


def hold_answer(world: World, machine: Machine, key: ApiKey) -> Exchange:
    """Takes all steps until the broker answers such a request, and keeps the answer on its way."""

    def found() -> list[Exchange]:
        return [each for each in machine.network.answers if each.key == key]

    step_until(world, lambda: bool(found()))
    (held,) = found()
    machine.network.answers.remove(held)
    return held


# The whole way


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_over_two_brokers_ends_on_both(world: World, commit: bool) -> None:
    producer = Producer(world)
    for _ in range(2):
        assert producer.write(b"v0", 0, AWAY) == "NONE"
        assert producer.write(b"v1", 1, HOME) == "NONE"
        assert producer.end(commit=commit) == "NONE"
    assert visible(world, 0, AWAY) == ([b"v0", b"v0"] if commit else [])
    assert visible(world, 1, HOME) == ([b"v1", b"v1"] if commit else [])
    assert state(world) == ("CompleteCommit" if commit else "CompleteAbort")


def test_a_client_that_adds_partitions_itself_is_verified_by_the_leader_elsewhere(world: World) -> None:
    producer = Producer(world)
    assert producer.write(b"v0", 0, AWAY, LATE_CLIENT) == "INVALID_TXN_STATE"
    assert producer.add(0) == "NONE"
    assert producer.write(b"v0", 0, AWAY, LATE_CLIENT) == "NONE"
    assert producer.end(version=4) == "NONE"
    assert visible(world, 0, AWAY) == [b"v0"]


def test_a_fenced_producer_hears_so_from_a_leader_elsewhere(world: World) -> None:
    old = Producer(world)
    Producer(world)
    assert old.write(b"v0", 0, AWAY) == "INVALID_PRODUCER_EPOCH"


@pytest.mark.parametrize("commit", [True, False])
def test_positions_at_another_broker_move_with_the_transaction(world: World, commit: bool) -> None:
    producer = Producer(world)
    assert producer.write(b"v1", 1, HOME) == "NONE"
    assert producer.move(7) == "NONE"
    assert producer.end(commit=commit) == "NONE"
    assert position(world) == (7 if commit else -1)


def test_positions_of_no_transaction_are_refused(world: World) -> None:
    producer = Producer(world)
    assert producer.move(7, version=3) == "INVALID_TXN_STATE"


# Answers that come late


def test_a_verification_is_void_if_the_marker_came_first(world: World) -> None:
    producer = Producer(world)
    producer.add(0)
    late = producer.begin_write(b"v0", 0, AWAY, LATE_CLIENT)
    held = hold_answer(world, world.machine_of(HOME), ApiKey.ADD_PARTITIONS_TO_TXN)
    assert producer.end(commit=False, version=4) == "NONE"
    assert state(world) == "CompleteAbort"
    world.machine_of(HOME).network.answers.append(held)
    world.settle()
    assert produced(late) == "NOT_ENOUGH_REPLICAS"
    assert open_producers(world, AWAY, 0) == []
    assert producer.write(b"v0", 0, AWAY, LATE_CLIENT) == "INVALID_TXN_STATE"


def test_positions_are_not_moved_by_a_verification_that_a_marker_overtook(world: World) -> None:
    producer = Producer(world)
    values = {**producer.who, "group_id": GROUP}
    assert error(world.ask_at(HOME, ApiKey.ADD_OFFSETS_TO_TXN, 3, **values).error_code) == "NONE"
    each = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    topics = [{"name": TOPIC, "partitions": [each]}]
    late = begin(world, AWAY, ApiKey.TXN_OFFSET_COMMIT, 3, **values, topics=topics)
    held = hold_answer(world, world.machine_of(HOME), ApiKey.ADD_PARTITIONS_TO_TXN)
    assert producer.end(commit=False, version=4) == "NONE"
    world.machine_of(HOME).network.answers.append(held)
    world.settle()
    assert error(late.answer.topics[0].partitions[0].error_code) == "COORDINATOR_NOT_AVAILABLE"
    assert position(world) == -1


def test_the_next_transaction_may_be_asked_about_before_the_markers_of_the_last_one(world: World) -> None:
    producer = Producer(world)
    producer.write(b"v0", 0, AWAY)
    world.links.cut(HOME, AWAY)
    assert producer.end() == "NONE"
    following = producer.begin_write(b"v9", 0, AWAY)
    world.advance(10)
    assert not following.answered
    world.links.heal(HOME, AWAY)
    world.advance(10)
    assert produced(following) == "NONE"


def test_a_verification_is_void_after_the_leadership_in_which_it_was_asked(world: World) -> None:
    producer = Producer(world)
    producer.add(0)
    late = producer.begin_write(b"v0", 0, AWAY, LATE_CLIENT)
    held = hold_answer(world, world.machine_of(HOME), ApiKey.ADD_PARTITIONS_TO_TXN)
    elect(world, TOPIC, AWAY)
    world.machine_of(HOME).network.answers.append(held)
    world.settle()
    assert produced(late) == "NOT_ENOUGH_REPLICAS"
    assert producer.write(b"v0", 0, AWAY, LATE_CLIENT) == "NONE"


def test_a_coordinator_that_does_not_know_of_its_end_vouches_for_nothing(world: World) -> None:
    producer = Producer(world)
    producer.add(0)
    assert producer.write(b"v0", 0, AWAY, LATE_CLIENT) == "NONE"
    world.links.cut(STORE, HOME)
    elect(world, TRANSACTION_STATE_TOPIC, HOME)
    away = node(world, AWAY)
    epoch = away.image.leadership(away.image.topics[TRANSACTION_STATE_TOPIC].partitions[0]).epoch
    # The next coordinator has aborted the transaction.
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "coordinator_epoch": epoch,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
    }
    answer = world.ask_at(AWAY, ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    asking = producer.begin_write(b"v0", 0, AWAY, LATE_CLIENT)
    world.advance(PATIENCE_MS)
    assert produced(asking) == "NOT_ENOUGH_REPLICAS"
    assert open_producers(world, AWAY, 0) == []


def test_a_batch_that_waited_behind_another_is_not_appended_to_a_transaction_that_ended_meanwhile(world: World) -> None:
    elect(world, TOPIC, AWAY, index=1)
    producer = Producer(world)
    for index in range(2):
        producer.add(index)
    assert producer.write(b"v0", 0, AWAY, LATE_CLIENT) == "NONE"
    first = producer.begin_write(b"v1", 1, AWAY, LATE_CLIENT)
    held = hold_answer(world, world.machine_of(HOME), ApiKey.ADD_PARTITIONS_TO_TXN)
    behind = producer.begin_write(b"v2", 0, AWAY, LATE_CLIENT, sequence=1)
    world.settle()
    assert producer.end(commit=False, version=4) == "NONE"
    world.machine_of(HOME).network.answers.append(held)
    world.settle()
    assert (produced(first), produced(behind)) == ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS")
    assert open_producers(world, AWAY, 0) == open_producers(world, AWAY, 1) == []


# Brokers that are away


def test_markers_wait_for_a_leader_that_is_away(world: World) -> None:
    producer = Producer(world)
    producer.write(b"v0", 0, AWAY)
    producer.write(b"v1", 1, HOME)
    world.machine_of(AWAY).kill()
    assert producer.end() == "NONE"
    world.advance(5000)
    assert state(world) == "PrepareCommit"
    assert visible(world, 1, HOME) == [b"v1"]
    world.machine_of(AWAY).start()
    world.advance(LONG_MS)
    assert state(world) == "CompleteCommit"
    assert visible(world, 0, AWAY) == [b"v0"]
    ends = [each.log.offsets.end for each in node(world, HOME).hosted.led(TOPIC)]
    assert ends == [2], "a partition that has its marker gets no other"


def test_markers_go_to_the_next_leader_as_soon_as_a_broker_that_hangs_is_gone(world: World) -> None:
    producer = Producer(world)
    producer.add(0)
    assert producer.write(b"v0", 0, AWAY, LATE_CLIENT) == "NONE"
    world.links.cut(HOME, AWAY)
    assert producer.end(version=4) == "NONE"
    world.links.cut(AWAY, STORE)
    assert run(world.store.txn((), [Delete(broker_key(AWAY))])).succeeded
    elect(world, TOPIC, HOME, 0)
    world.advance(1500)
    assert state(world) == "CompleteCommit"


def test_markers_go_to_a_new_leader_without_the_pause_that_grew_while_nobody_led(world: World) -> None:
    producer = Producer(world)
    producer.write(b"v0", 0, AWAY)
    elect(world, TOPIC, NOBODY)
    assert producer.end() == "NONE"
    world.advance(LONGEST_RETRY_MS * 3)
    assert state(world) == "PrepareCommit"
    elect(world, TOPIC, HOME)
    world.advance(2)
    assert state(world) == "CompleteCommit"


def test_markers_that_a_leader_refused_after_it_was_deposed_are_sent_again_at_once(world: World) -> None:
    producer = Producer(world)
    producer.write(b"v0", 0, AWAY)
    world.links.cut(HOME, AWAY)
    assert producer.end() == "NONE"
    elect(world, TOPIC, HOME)
    world.links.heal(HOME, AWAY)
    world.advance(2)
    assert state(world) == "CompleteCommit"


def test_a_verification_does_not_wait_for_a_coordinator_whose_registration_ended(world: World) -> None:
    producer = Producer(world)
    producer.add(0)
    world.links.cut(AWAY, HOME)
    asking = producer.begin_write(b"v0", 0, AWAY, LATE_CLIENT)
    world.advance(100)
    assert not asking.ended
    world.links.cut(HOME, STORE)
    assert run(world.store.txn((), [Delete(broker_key(HOME))])).succeeded
    world.settle()
    assert produced(asking) == "NOT_ENOUGH_REPLICAS"


def test_a_request_carries_the_markers_of_many_transactions(world: World) -> None:
    producers = [Producer(world, f"writer-{number}") for number in range(40)]
    for producer in producers:
        assert producer.write(b"v", 0, AWAY) == "NONE"
    world.links.cut(HOME, AWAY)
    requests: list[int] = []

    def note(exchange: Exchange) -> None:
        if exchange.key is ApiKey.WRITE_TXN_MARKERS:
            requests.append(len(exchange.values["markers"]))

    world.machine_of(AWAY).network.on_request = note
    for producer in producers:
        assert producer.end() == "NONE"
    world.links.heal(HOME, AWAY)
    world.settle()
    assert requests[:MOST_UNDER_WAY] == [1] * MOST_UNDER_WAY
    assert requests[MOST_UNDER_WAY:] == [len(producers) - MOST_UNDER_WAY]
    assert visible(world, 0, AWAY) == [b"v"] * len(producers)


def test_markers_wait_for_a_leader_that_does_not_answer(world: World) -> None:
    producer = Producer(world)
    producer.write(b"v0", 0, AWAY)
    world.links.cut(AWAY, HOME)
    assert producer.end() == "NONE"
    world.advance(2 * LONG_MS)
    assert state(world) == "PrepareCommit"
    world.links.heal(AWAY, HOME)
    world.advance(LONG_MS)
    assert state(world) == "CompleteCommit"
    assert visible(world, 0, AWAY) == [b"v0"]


def test_a_batch_whose_coordinator_is_away_may_be_sent_again(world: World) -> None:
    producer = Producer(world)
    world.machine_of(HOME).kill()
    assert producer.write(b"v0", 0, AWAY) == "NOT_ENOUGH_REPLICAS"
    world.machine_of(HOME).start()
    world.advance(1000)
    assert producer.write(b"v0", 0, AWAY) == "NONE"


def test_a_coordinator_that_starts_again_completes_what_it_has_decided(world: World) -> None:
    producer = Producer(world)
    producer.write(b"v0", 0, AWAY)
    world.links.cut(HOME, AWAY)
    assert producer.end() == "NONE"
    world.machine_of(HOME).kill()
    world.links.heal(HOME, AWAY)
    world.machine_of(HOME).start()
    world.advance(1000)
    assert state(world) == "CompleteCommit"
    assert visible(world, 0, AWAY) == [b"v0"]


def test_a_coordinator_that_loses_its_leadership_leaves_the_completion_to_the_next(world: World) -> None:
    producer = Producer(world)
    producer.write(b"v0", 0, AWAY)
    end_before = node(world, AWAY).hosted.leader(TOPIC, 0).log.offsets.end
    ending = begin(world, HOME, ApiKey.END_TXN, 5, **producer.who, committed=True)
    held = hold_answer(world, world.machine_of(AWAY), ApiKey.WRITE_TXN_MARKERS)
    elect(world, TRANSACTION_STATE_TOPIC, NOBODY)
    world.machine_of(AWAY).network.answers.append(held)
    world.advance(1000)
    assert error(ending.answer.error_code) == "NONE"
    elect(world, TRANSACTION_STATE_TOPIC, HOME)
    world.advance(1000)
    assert state(world) == "CompleteCommit"
    assert node(world, AWAY).hosted.leader(TOPIC, 0).log.offsets.end == end_before + 2, "both epochs wrote a marker"
    assert visible(world, 0, AWAY) == [b"v0"]


# Topics that are gone


def test_a_transaction_is_complete_without_a_topic_that_was_deleted(world: World) -> None:
    producer = Producer(world)
    producer.write(b"v0", 0, AWAY)
    world.machine_of(AWAY).kill()
    assert producer.end() == "NONE"
    world.advance(1000)
    assert state(world) == "PrepareCommit"
    delete(world)
    world.advance(LONG_MS)
    assert state(world) == "CompleteCommit"


def test_a_topic_of_the_same_name_gets_no_marker_of_the_deleted_one(world: World) -> None:
    producer = Producer(world)
    producer.write(b"v0", 0, AWAY)
    world.links.cut(HOME, AWAY)
    assert producer.end() == "NONE"
    delete(world)
    create(world)
    world.links.heal(HOME, AWAY)
    world.advance(LONG_MS)
    assert state(world) == "CompleteCommit"
    for broker_id in (HOME, AWAY):
        for partition in node(world, broker_id).hosted.led(TOPIC):
            assert partition.log.offsets.end == 0


def test_a_batch_for_a_topic_that_was_created_anew_is_not_of_the_old_topics_transaction(world: World) -> None:
    producer = Producer(world)
    producer.add(0)
    delete(world)
    create(world)
    leader = node(world, HOME).image.leadership(node(world, HOME).image.topics[TOPIC].partitions[0]).leader
    assert producer.write(b"v0", 0, leader, LATE_CLIENT) == "INVALID_TXN_STATE"
    assert producer.write(b"v0", 0, leader) == "NONE", "the leader adds the new topic"
    assert producer.end() == "NONE"
    assert visible(world, 0, leader) == [b"v0"]


def test_a_leader_that_does_not_know_the_topic_yet_is_asked_again(world: World) -> None:
    world.links.cut(STORE, AWAY)
    create(world, "young")
    producer = Producer(world)
    for index in range(2):
        assert producer.add(index, "young") == "NONE"
    assert producer.end(version=4) == "NONE"
    world.advance(1500)
    assert state(world) == "PrepareCommit"
    world.links.heal(STORE, AWAY)
    world.advance(LONG_MS)
    assert state(world) == "CompleteCommit"


# Families


def join(world: World, batch_id: int) -> Producer:
    values = {"family": "query", "batch_id": batch_id, "timeout_ms": LONG_MS}
    answer = world.ask_at(HOME, ApiKey.FAMILY_JOIN, 0, **values)
    assert answer.error_code == 0
    assert answer.transactional_id is not None
    task = Producer.__new__(Producer)
    task.world, task.name = world, answer.transactional_id
    task.producer_id, task.epoch = answer.producer_id, answer.producer_epoch
    return task


def begin_decision(world: World, batch_id: int, *winners: Producer) -> Exchange:
    values = {"family": "query", "batch_id": batch_id, "commit": True, "timeout_ms": 2000}
    return begin(world, HOME, ApiKey.FAMILY_DECIDE, 1, **values, winners=[task.who for task in winners])


def test_a_family_decides_over_two_brokers(world: World) -> None:
    winner, loser = join(world, 0), join(world, 0)
    for index, broker_id in ((0, AWAY), (1, HOME)):
        assert winner.write(b"v%d" % index, index, broker_id) == "NONE"
        assert loser.write(b"vlost", index, broker_id) == "NONE"
    decision = begin_decision(world, 0, winner)
    world.settle()
    assert error(decision.answer.error_code) == "NONE"
    assert (visible(world, 0, AWAY), visible(world, 1, HOME)) == ([b"v0"], [b"v1"])
    assert loser.write(b"vlate", 0, AWAY) == "INVALID_PRODUCER_EPOCH"


def test_a_decision_of_a_family_is_answered_when_the_leader_elsewhere_is_back(world: World) -> None:
    winner = join(world, 0)
    assert winner.write(b"v0", 0, AWAY) == "NONE"
    world.machine_of(AWAY).kill()
    decision = begin_decision(world, 0, winner)
    world.advance(3000)
    assert error(decision.answer.error_code) == "REQUEST_TIMED_OUT"
    world.machine_of(AWAY).start()
    world.advance(LONG_MS)
    again = begin_decision(world, 0, winner)
    world.settle()
    assert (error(again.answer.error_code), again.answer.already_decided) == ("NONE", True)
    assert visible(world, 0, AWAY) == [b"v0"]


def test_a_family_goes_on_with_its_coordinator_after_a_decision_that_was_interrupted(world: World) -> None:
    winner = join(world, 0)
    assert winner.write(b"v0", 0, AWAY) == "NONE"
    world.links.cut(HOME, AWAY)
    decision = begin_decision(world, 0, winner)
    world.settle()
    assert not decision.answered
    elect(world, TRANSACTION_STATE_TOPIC, NOBODY)
    assert error(decision.answer.error_code) == "NOT_COORDINATOR"
    elect(world, TRANSACTION_STATE_TOPIC, HOME)
    world.links.heal(HOME, AWAY)
    world.advance(LONG_MS)
    assert visible(world, 0, AWAY) == [b"v0"]
    again = begin_decision(world, 0, winner)
    world.settle()
    assert (error(again.answer.error_code), again.answer.already_decided) == ("NONE", True)
