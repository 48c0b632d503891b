"""Leaders that change all the time under producers on librdkafka, each with several batches in flight.

A leader that is replaced loses what it has appended and not replicated, and the producer repeats it at the next one.
What it sent behind that may be at the next leader already.
"""

import itertools
import time
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Message
from tests.cluster.confluent_load import TransactionalWriter, Writer, at_work
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_leader_killed import create
from tests.interop.confluent_clients import read_to_end

from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.electing import PREFERRED, elect
from cordwood.administration.cluster.mover import begin
from cordwood.administration.connection import Connection

pytestmark = pytest.mark.timeout(300)
PARTITIONS = 6
FOR_S = 30.0
PAUSE_S = 0.5
TIMEOUT_S = 30.0
WRITE_EVERY_S = 0.001


def move_leaders(cluster: LocalCluster, topics: list[str]) -> int:
    """Gives partitions other leaders, again and again. Returns how many changes there were."""
    random = Random(1)
    orders = list(itertools.permutations((1, 2, 3)))
    partitions = [(topic, index) for topic in topics for index in range(PARTITIONS)]
    address = brokers(Connection(cluster.bootstrap, timeout_s=TIMEOUT_S))[0]
    changes = 0
    end_s = time.monotonic() + FOR_S
    while time.monotonic() < end_s:
        moves = [(topic, index, random.choice(orders)) for topic, index in partitions]
        assert begin(address, moves, TIMEOUT_S) == []
        changes += [each.error for each in elect(address, PREFERRED, partitions, TIMEOUT_S)].count("")
        time.sleep(PAUSE_S)
    return changes


def order_of(messages: list[Message]) -> dict[tuple[int, bytes], list[bytes]]:
    """The values of each writer in each partition, as they are in the log."""
    found: dict[tuple[int, bytes], list[bytes]] = {}
    for message in sorted(messages, key=lambda each: (each.partition(), each.offset())):
        value = message.value() or b""
        found.setdefault((message.partition() or 0, value.rsplit(b"-", 1)[0]), []).append(value)
    return found


def test_no_record_is_doubled_or_reordered_while_leaders_change(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        idempotent, transactional = topics = [create(cluster, PARTITIONS, 3) for _ in range(2)]
        common = {"linger.ms": 0, "enable.idempotence": True}
        writers = [
            *(Writer(f"exact-{number}", cluster.bootstrap, idempotent, **common) for number in range(4)),
            *(TransactionalWriter(f"copy-{number}", cluster.bootstrap, transactional, **common) for number in range(2)),
        ]
        for writer in writers:
            writer.pause_s = WRITE_EVERY_S
        with at_work(writers):
            changes = move_leaders(cluster, topics)
        print(f"{changes} changes of leaders, {[len(writer.acknowledged) for writer in writers]} records")
        assert [error for writer in writers for error in writer.errors] == []
        assert changes > PARTITIONS
        for topic in topics:
            config = {"isolation.level": "read_committed"}
            messages = read_to_end(cluster.bootstrap, topic, range(PARTITIONS), config=config)
            written = [value for writer in writers if writer.topic == topic for value in writer.acknowledged]
            assert sorted((message.value() or b"").decode() for message in messages) == sorted(written)
            for values in order_of(messages).values():
                assert values == sorted(values)
