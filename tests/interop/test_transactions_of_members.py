"""`send_offsets_to_transaction` by members of groups, in both protocols: in their own name, and in one they had."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.interop.confluent_clients import read_to_end
from tests.interop.group_workers import PARTITIONS, Worker, fill, shared

PROTOCOLS = [{"group.protocol": "classic"}, {"group.protocol": "consumer"}]
REFUSALS = {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID}
TIMEOUT_S = 60

protocols = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each["group.protocol"])


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    made: list[Worker] = []
    yield made
    for worker in made:
        worker.consumer.close()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def transactional(broker: RunningBroker) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-{uuid.uuid4().hex[:8]}"}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    return producer


def committed(worker: Worker, topic: str, partition: int) -> int:
    (position,) = worker.consumer.committed([TopicPartition(topic, partition)], timeout=TIMEOUT_S)
    return int(position.offset)


def move(producer: Producer, position: TopicPartition, author: object) -> None:
    producer.begin_transaction()
    producer.send_offsets_to_transaction([position], author, TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)


def refusal(producer: Producer, position: TopicPartition, author: object) -> int:
    with pytest.raises(KafkaException) as refused:
        move(producer, position, author)
    error = refused.value.args[0]
    assert error.txn_requires_abort(), error
    producer.abort_transaction(TIMEOUT_S)
    return int(error.code())


@protocols
def test_a_member_moves_positions_and_its_former_self_cannot(
    broker: RunningBroker, make_topic: MakeTopic, group: str, workers: list[Worker], protocol: dict[str, str]
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    fill(broker.bootstrap, topic, 40)
    workers.append(Worker(broker.bootstrap, group, topic, **protocol))
    eventually(lambda: shared(workers), what="one member owns everything")
    producer = transactional(broker)
    before = workers[0].consumer.consumer_group_metadata()
    for partition in range(PARTITIONS):
        move(producer, TopicPartition(topic, partition, 3), before)
        assert committed(workers[0], topic, partition) == 3

    workers.append(Worker(broker.bootstrap, group, topic, **protocol))
    eventually(lambda: shared(workers), what="two members share")
    stays, goes = min(workers[0].owned), min(workers[1].owned)
    assert refusal(producer, TopicPartition(topic, goes, 7), before) in REFUSALS
    assert committed(workers[0], topic, goes) == 3
    move(producer, TopicPartition(topic, stays, 5), workers[0].consumer.consumer_group_metadata())
    move(producer, TopicPartition(topic, goes, 6), workers[1].consumer.consumer_group_metadata())
    assert [committed(workers[0], topic, each) for each in (stays, goes)] == [5, 6]

    leaver = workers.pop(0)
    gone = leaver.consumer.consumer_group_metadata()
    leaver.consumer.close()
    eventually(lambda: shared(workers), what="the other has all")
    assert refusal(producer, TopicPartition(topic, stays, 7), gone) in REFUSALS
    assert committed(workers[0], topic, stays) == 5


def start_at_zero(broker: RunningBroker, group: str, topic: str) -> None:
    """So that no member asks where a partition begins.

    librdkafka 2.16 asks again half a second after an answer that came too late, after a rebalance, and then starts anew
    at the beginning, whatever the group has committed meanwhile.
    """
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    positions = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


class Transformer(Worker):
    """A member that writes what it reads to another topic, exactly once, a few records at a time."""

    def __init__(self, broker: RunningBroker, group: str, source: str, target: str, **settings: str) -> None:
        self.producer = transactional(broker)
        self.target = target
        super().__init__(broker.bootstrap, group, source, **settings)

    def step(self) -> None:
        messages = [each for each in self.consumer.consume(5, timeout=0.05) if each.error() is None]
        if not messages:
            return
        self.producer.begin_transaction()
        try:
            for message in messages:
                self.producer.produce(self.target, message.value(), partition=message.partition() or 0)
            after = {(each.topic() or "", each.partition() or 0): (each.offset() or 0) + 1 for each in messages}
            positions = [TopicPartition(topic, index, offset) for (topic, index), offset in after.items()]
            self.producer.send_offsets_to_transaction(positions, self.consumer.consumer_group_metadata(), TIMEOUT_S)
            self.producer.commit_transaction(TIMEOUT_S)
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
            self.producer.abort_transaction(TIMEOUT_S)
            self._rewind()

    def _rewind(self) -> None:
        """To what is committed: what was read since then was not written."""
        for position in self.consumer.committed(self.consumer.assignment(), timeout=TIMEOUT_S):
            self.consumer.seek(TopicPartition(position.topic, position.partition, max(position.offset, 0)))


@protocols
def test_every_record_is_written_once_while_members_come_and_go(
    broker: RunningBroker, make_topic: MakeTopic, group: str, workers: list[Worker], protocol: dict[str, str]
) -> None:
    source, target = make_topic(partitions=PARTITIONS), make_topic(partitions=PARTITIONS)
    records = 400
    fill(broker.bootstrap, source, records)
    start_at_zero(broker, group, source)
    members: list[Transformer] = []

    def steps(count: int) -> None:
        for _ in range(count):
            for member in members:
                member.step()

    def join() -> None:
        members.append(Transformer(broker, group, source, target, **protocol))
        workers.append(members[-1])

    def leave() -> None:
        goes = members.pop(0)
        workers.remove(goes)
        goes.consumer.close()

    def position() -> int:
        """How much is written, after everybody has taken another step."""
        steps(1)
        asked = [TopicPartition(source, index) for index in range(PARTITIONS)]
        found = members[0].consumer.committed(asked, timeout=TIMEOUT_S)
        return sum(max(each.offset, 0) for each in found)

    join()
    eventually(lambda: position() > 0, what="the first writes")
    join()
    steps(10)
    join()
    steps(10)
    leave()
    steps(10)
    leave()
    eventually(lambda: position() == records, what="all is written")
    for index in range(PARTITIONS):
        wanted = [f"v{n}".encode() for n in range(index, records, PARTITIONS)]
        config = {"isolation.level": "read_committed"}
        found = read_to_end(broker.bootstrap, target, [index], at_least=len(wanted), config=config)
        assert [message.value() for message in found] == wanted
