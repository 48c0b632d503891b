"""The coordinator of a transaction is killed between any two calls of its program, and during the last one.

Three real brokers and a program on confluent-kafka, which goes on as its errors say. Steps inside a request are played
in tests/simulation/test_coordinators_killed.py.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_leader_killed import create
from tests.deadline import eventually

from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC

WITHIN_S = 60.0
PARTITIONS = 2
ONE_COORDINATOR = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
DURING_S = 0.005
"""How long after its beginning a call is under way."""
pytestmark = pytest.mark.timeout(300)

Kill = Callable[[], None]


class Program:
    """Writes one transaction after the other to all partitions, and moves the position of a group with each."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._name = uuid.uuid4().hex
        self.group = f"group-{self._name}"
        self._positions = Consumer({"bootstrap.servers": bootstrap, "group.id": self.group})
        self._attempts = 0
        self.committed: list[int] = []
        self.unknown: list[int] = []
        """Attempts whose end the program does not know: its producer failed for good."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._name,
                "socket.timeout.ms": 5_000,
                # docs/operations/librdkafka.md: librdkafka may else wait for ever for a coordinator that was away.
                "metadata.recovery.strategy": "none",
            }
        )
        assert self._done(lambda: self._producer.init_transactions(WITHIN_S))

    def _done(self, call: Callable[[], object]) -> bool:
        """Repeats the call while its error says so. False: the transaction has to be aborted."""
        while True:
            try:
                call()
                return True
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    return False
                if not error.retriable():
                    raise

    def transaction(self, kill_after: str, kill: Kill, *, commit: bool) -> None:
        """Tries until the transaction has ended as it should. The coordinator is killed in the first attempt."""
        while not self._attempt(kill_after, kill, commit=commit):
            kill_after = ""

    def _attempt(self, kill_after: str, kill: Kill, *, commit: bool) -> bool:
        self._attempts += 1
        number, producer = self._attempts, self._producer
        try:
            producer.begin_transaction()
            for step, call in self._steps(number):
                if not self._done(call):
                    self._done(lambda: producer.abort_transaction(WITHIN_S))
                    return False
                if step == kill_after:
                    kill()
            end = producer.commit_transaction if commit else producer.abort_transaction
            with _after(DURING_S, kill if kill_after == "the end is asked for" else None):
                if not self._done(lambda: end(WITHIN_S)):
                    self._done(lambda: producer.abort_transaction(WITHIN_S))
                    return False
        except KafkaException as failure:
            if not failure.args[0].fatal():
                raise
            self.unknown.append(number)
            self._begin_anew()
            return False
        if commit:
            self.committed.append(number)
        if kill_after == "the end":
            kill()
        return True

    def _steps(self, number: int) -> Iterator[tuple[str, Callable[[], object]]]:
        producer = self._producer
        yield "the beginning", lambda: None
        for partition in range(PARTITIONS):
            producer.produce(self._topic, value=f"{number}", partition=partition)
            yield f"partition {partition}", lambda: producer.flush(WITHIN_S)
        position = [TopicPartition(self._topic, 0, number)]
        of = self._positions.consumer_group_metadata()
        yield "the position", lambda: producer.send_offsets_to_transaction(position, of, WITHIN_S)

    def position(self) -> int:
        (found,) = self._positions.committed([TopicPartition(self._topic, 0)], WITHIN_S)
        return int(found.offset)


@contextmanager
def _after(delay_s: float, kill: Kill | None) -> Iterator[None]:
    """Kills in another thread while the block runs."""
    timer = None if kill is None else threading.Timer(delay_s, kill)
    if timer is not None:
        timer.start()
    yield
    if timer is not None:
        timer.join()


def seen(bootstrap: str, topic: str) -> dict[int, Counter[int]]:
    """How often a reader of what is committed sees each transaction, by partition; all there is."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, Counter[int]] = {partition: Counter() for partition in range(PARTITIONS)}
    ended: set[int] = set()

    def whole() -> bool:
        for message in reader.consume(1000, timeout=0.2):
            partition = message.partition()
            assert partition is not None
            if message.error() is None:
                found[partition][int(message.value() or b"")] += 1
            else:
                ended.add(partition)
        return len(ended) == PARTITIONS

    try:
        eventually(whole, what="the end of both partitions")
    finally:
        reader.close()
    return found


def test_transactions_are_whole_whichever_call_their_coordinator_is_killed_after(tmp_path: Path) -> None:
    options = [word for setting in ONE_COORDINATOR for word in ("--set", setting)]
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor", *options) as cluster:
        topic = create(cluster, PARTITIONS, 3)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        program = Program(cluster.bootstrap, topic)
        dead: list[int] = []

        def coordinator() -> int:
            """The broker that leads the only partition of the transactions' topic, once all replicas are in sync."""
            state = admin.list_topics(TRANSACTION_STATE_TOPIC, timeout=30).topics[TRANSACTION_STATE_TOPIC].partitions[0]
            return int(state.leader) if len(state.isrs) == 3 and state.leader > 0 else 0

        def kill() -> None:
            dead.append(coordinators[-1])
            cluster.kill(coordinators[-1])

        coordinators: list[int] = []
        before_end = ("the beginning", "partition 0", "partition 1", "the position", "the end is asked for")
        kills = [(step, True) for step in (*before_end, "the end")] + [(step, False) for step in before_end[-2:]]
        for step, commit in kills:
            coordinators.append(eventually(coordinator, what="a coordinator with two followers"))
            program.transaction(step, kill, commit=commit)
            cluster.restart(dead.pop())
        assert len(set(coordinators)) > 1
        first, second = seen(cluster.bootstrap, topic).values()
        assert first == second
        kept = [number for number in program.unknown if first[number]]
        assert first == Counter(sorted([*program.committed, *kept]))
        assert program.position() == max(first)
