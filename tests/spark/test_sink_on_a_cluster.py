"""The sink on three brokers, without Spark around it: each broker in turn is killed at each step of a micro-batch."""

from collections.abc import Iterator
from enum import Enum

import pytest
from tests.spark.sink_query import Query
from tests.spark.sink_stories import committed, families, values

from cordwood.client.cluster import Cluster as Client
from cordwood.client.settings import ClientSettings
from cordwood.embedded import Cluster
from cordwood.spark.sink.steps import Step, watch

PARTITIONS = 2
STEPS = [
    Step.TASK_STARTED,
    Step.TASK_JOINED,
    Step.TASK_PRODUCED,
    Step.TASK_FLUSHED,
    Step.TASK_COMPLETED,
    Step.DRIVER_DECIDING,
    Step.DRIVER_DECIDED,
    Step.DRIVER_ABORTING,
]


class Killer:
    """Kills a broker when a step is reached, once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.order: tuple[Step, int] | None = None
        watch(self._reached)

    def _reached(self, step: Enum) -> None:
        if self.order is not None and self.order[0] is step:
            _, node_id = self.order
            self.order = None
            self._cluster.brokers[node_id].kill()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"num.partitions": PARTITIONS, "transaction.state.log.num.partitions": 3}
    with Cluster(nodes=3, settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def killer(cluster: Cluster) -> Iterator[Killer]:
    made = Killer(cluster)
    yield made
    made.order = None


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.value)
def test_a_batch_is_there_once_whichever_broker_is_killed_at_a_step(
    cluster: Cluster, killer: Killer, step: Step
) -> None:
    servers = f"127.0.0.1:1,{cluster.bootstrap_servers}"
    topic = step.value
    with Client(ClientSettings(servers)) as client:
        client.topics([topic], create=True)
    query = Query(servers, topic)
    expected: list[str] = []
    for batch_id, node_id in enumerate(cluster.brokers):
        rows = [[f"{batch_id}-{task}-{row}" for row in range(50)] for task in range(2)]
        killer.order = step, node_id
        if step is Step.DRIVER_ABORTING:
            query.abort(batch_id, query.task(batch_id, 0, rows[0]))
        query.commit(batch_id, *(query.task(batch_id, task, rows[task], attempt=1) for task in range(2)))
        assert killer.order is None, f"{step} was not reached"
        expected += rows[0] + rows[1]
        cluster.brokers[node_id].start()
    assert values(committed(cluster.bootstrap_servers, topic, PARTITIONS)) == sorted(expected)
    family = families(cluster.bootstrap_servers)[query.family]
    assert (family.last_batch_id, family.joined_slots) == (2, 0)
