"""A broker that starts sweeps half-made topics. Others may be making them: every committed topic has all partitions.

Each broker has its own connection to one store, and the tests decide whose transaction is next.
"""

import random
from collections.abc import Coroutine
from itertools import combinations_with_replacement
from typing import Any

import pytest
from simulation.world.clock import Clock
from simulation.world.slow_store import SlowStore
from simulation.world.turn_loop import TurnLoop

from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.cluster.metadata.strays import Strays
from cordwood.cluster.metadata_writer import CreatedTopic, MetadataWriter
from cordwood.cluster.planner.topics import MorePartitions, NewTopic, PartitionAddition
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.settings.broker_settings import BrokerSettings

TRANSACTIONS_BEFORE_A_SWEEP = 2
"""A start names the cluster and registers the broker, then it lists the store and sweeps."""
PARTITIONS = 260
"""Three transactions of partitions."""


class Cluster:
    def __init__(self) -> None:
        self.loop = TurnLoop(Clock())
        self.store = MemoryStore(retained_revisions=10_000)

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        task = self.loop.create_task(coroutine)
        self.loop.run_until_idle()
        return task

    def now(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine that waits for no transaction of a broker."""
        return self.begin(coroutine).result()

    def listed(self) -> ClusterImage:
        """The image that a broker which starts now loads. Raises DamagedMetadata if a topic lacks partitions."""
        image = ClusterImage(9, BrokerSettings.from_texts({}))
        image.load(self.now(self.store.list("")))
        return image


class Broker:
    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.connection = SlowStore(cluster.store)
        self.cluster = cluster
        self.starting = cluster.begin(self._start(node_id))

    async def _start(self, node_id: int) -> None:
        texts = {"node.id": str(node_id), "default.replication.factor": "1"}
        image = ClusterImage(node_id, BrokerSettings.from_texts(texts))
        self.writer = MetadataWriter(self.connection, ImageFollower(self.connection, image))
        await self.writer.start([Endpoint("PLAINTEXT", "host", 9092)])

    def step(self) -> bool:
        """Ends the broker's next transaction. False if the broker waits for none."""
        if not self.connection.calls:
            return False
        self.connection.end_next_call()
        self.cluster.loop.run_until_idle()
        return True

    def rest(self) -> None:
        while self.step():
            pass


def started(cluster: Cluster, node_id: int) -> Broker:
    broker = Broker(cluster, node_id)
    broker.rest()
    broker.starting.result()
    return broker


class Changes:
    """Broker 1 creates a topic while broker 2 creates one of the same name and makes another one grow."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.writers = [started(self.cluster, 1), started(self.cluster, 2)]
        first, second = (writer.writer for writer in self.writers)
        growing = self.cluster.begin(first.create_topics([NewTopic("grows", 2)]))
        self.rest()
        assert isinstance(growing.result()["grows"], CreatedTopic)
        self.creations = [
            self.cluster.begin(first.create_topics([NewTopic("new", PARTITIONS)])),
            self.cluster.begin(second.create_topics([NewTopic("new", PARTITIONS + 1)])),
        ]
        self.addition = self.cluster.begin(second.create_partitions([MorePartitions("grows", PARTITIONS)]))

    def step(self) -> bool:
        """One transaction of each writer. False if all changes are made."""
        stepped = [writer.step() for writer in self.writers]
        return any(stepped)

    def rest(self) -> None:
        while self.step():
            pass

    def check(self) -> None:
        image = self.cluster.listed()
        (created,) = (
            outcome for creation in self.creations if isinstance(outcome := creation.result()["new"], CreatedTopic)
        )
        topic = image.topics["new"]
        assert (topic.topic_id, len(topic.partitions)) == (created.topic_id, created.partition_count)
        assert isinstance(self.addition.result()["grows"], PartitionAddition)
        assert len(image.topics["grows"].partitions) == PARTITIONS
        started(self.cluster, 99)
        image = self.cluster.listed()
        assert image.strays() == Strays()
        assert image.topics["new"].partitions == topic.partitions


def boundaries() -> int:
    """The number of steps that the changes take if nobody sweeps."""
    changes, count = Changes(), 0
    while changes.step():
        count += 1
    changes.check()
    return count


def test_a_sweep_between_any_two_transactions_of_two_writers_leaves_whole_topics() -> None:
    count = boundaries()
    for listed_at, swept_at in combinations_with_replacement(range(count + 1), 2):
        changes = Changes()
        for _ in range(listed_at):
            changes.step()
        sweeper = Broker(changes.cluster, 3)
        for _ in range(TRANSACTIONS_BEFORE_A_SWEEP):
            sweeper.step()
        for _ in range(swept_at - listed_at):
            changes.step()
        sweeper.rest()
        sweeper.starting.result()
        changes.rest()
        changes.check()


@pytest.mark.parametrize("seed", range(20))
def test_sweeps_and_writers_in_any_order_leave_whole_topics(seed: int) -> None:
    chance = random.Random(seed)
    changes = Changes()
    starts = sorted(chance.randrange(12) for _ in range(2))
    brokers = list(changes.writers)
    step = 0
    while starts or any(broker.connection.calls for broker in brokers):
        if starts and starts[0] <= step:
            brokers.append(Broker(changes.cluster, 10 * len(brokers) + starts.pop(0)))
        chance.choice(brokers).step()
        step += 1
    for broker in brokers:
        broker.starting.result()
    changes.check()
