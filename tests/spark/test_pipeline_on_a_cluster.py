"""A pipeline on three brokers, one of which is killed: its topics are kept as safely as the topic that it reads."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import CORDWOOD, LocalCluster
from tests.spark.sink_query import Query
from tests.spark.sink_stories import committed, values
from tests.spark.test_pipeline_topics import setting

from cordwood.client.bootstrap import Bootstrap
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.definition.replication import Replication
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.topics import Written, ensure_topics, prepare_topics

FILE = """
from cordwood.pipelines import budget, json, pipeline, topic

@pipeline("priced", version=1, quarantine=budget(rows=5),
          inputs=topic("orders", value=json("id string not null")),
          outputs=topic("orders.priced", key="id"))
def priced(orders):
    return orders
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    # One replica by default, as in the configuration of many clusters: what a pipeline makes must not follow that.
    with LocalCluster(tmp_path_factory.mktemp("cluster") / "c", "--set", "default.replication.factor=1") as started:
        yield started


def replicas(admin: AdminClient, topic: str) -> set[int]:
    found = admin.list_topics(timeout=60).topics
    return {len(each.replicas) for each in found[topic].partitions.values()}


def test_the_death_of_a_broker_does_not_stop_the_writing_of_a_pipeline(cluster: LocalCluster, tmp_path: Path) -> None:
    """Tasks and commits of the sink, without Spark around them, on the topics that the pipeline makes."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    orders = NewTopic("orders", num_partitions=3, replication_factor=3, config={"min.insync.replicas": "2"})
    admin.create_topics([orders])["orders"].result(60)
    (tmp_path / "pipeline.py").write_text(FILE)
    pipeline = load_pipeline(tmp_path / "pipeline.py")
    state = Project(tmp_path / "project").state("priced")
    edition = state.begin(pipeline, starting="earliest", now_ms=1)
    made = prepare_topics(pipeline, state, edition, Bootstrap(cluster.bootstrap))
    assert made == ["orders.priced", "priced.quarantine"]
    queries = {topic: Query(cluster.bootstrap, topic) for topic in made}

    def write(batch_id: int) -> None:
        for query in queries.values():
            query.commit(batch_id, *(query.task(batch_id, task, [f"{batch_id}-{task}"]) for task in range(2)))

    for topic in made:
        assert replicas(admin, topic) == {3}
        assert setting(admin, topic, "min.insync.replicas") == "2"
    write(0)
    cluster.kill(admin.list_topics(timeout=60).topics["priced.quarantine"].partitions[0].leader)
    write(1)
    for topic, partitions in (("orders.priced", 3), ("priced.quarantine", 1)):
        assert values(committed(cluster.bootstrap, topic, partitions)) == ["0-0", "0-1", "1-0", "1-1"]


def test_topics_with_fewer_replicas_than_their_input_are_told_with_the_command_that_adds_some(
    cluster: LocalCluster,
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = [NewTopic("wide", 2, 3), NewTopic("narrow.v1", 4, 1), NewTopic("narrow.aside", 1, 1)]
    for answer in admin.create_topics(made).values():
        answer.result(60)
    told: list[str] = []
    written = [
        Written("narrow.v1"),
        Written("narrow.v2", "narrow.v1"),
        Written("narrow.aside", is_quarantine=True),
        Written("alone", replication=Replication(replicas=1)),
    ]
    assert ensure_topics(Bootstrap(cluster.bootstrap), written, ["wide"], told.append) == ["narrow.v2", "alone"]
    assert replicas(admin, "narrow.v2") == {3}, "at least those of the input"
    assert len(admin.list_topics(timeout=60).topics["narrow.v2"].partitions) == 4
    assert replicas(admin, "alone") == {1}, "as it was said"
    (line,) = told
    assert line.startswith("narrow.aside, narrow.v1: fewer replicas than what the pipeline reads")
    assert "`cordwood cluster reassign narrow.aside --replication-factor 3`" in line
    status = subprocess.run(
        [*CORDWOOD, "cluster", "status", "--bootstrap-server", cluster.bootstrap], capture_output=True, text=True
    )
    assert "3 topics have one replica where 3 brokers could have one: alone, narrow.aside, narrow.v1." in status.stdout
    assert "`cordwood cluster reassign --all --replication-factor 3` adds replicas." in status.stdout
