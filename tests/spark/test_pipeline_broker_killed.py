"""A pipeline on three brokers, one of which is killed: its topics are kept as safely as the topic that it reads."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import CORDWOOD, LocalCluster
from tests.deadline import eventually
from tests.spark.conftest import Record, produce
from tests.spark.test_pipeline_topics import setting

WITHIN_S = 600
FILE = """
from cordwood.pipelines import budget, json, pipeline, topic

@pipeline("priced", version=1, quarantine=budget(rows=5), trigger="100 milliseconds",
          inputs=topic("orders", value=json("id string not null")),
          outputs=topic("orders.priced", key="id"),
          spark={"spark.master": "local[2]", "spark.ui.enabled": "false"})
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


def put(cluster: LocalCluster, begin: int, end: int) -> None:
    values = [json.dumps({"id": f"o{number}"}).encode() for number in range(begin, end)] + [b"poison"]
    records = [Record(value, partition=number % 3) for number, value in enumerate(values)]
    produce(cluster.bootstrap, "orders", records)


def read(cluster: LocalCluster, topic: str) -> list[str]:
    """The values of the topic's committed records, sorted."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    found: list[str] = []
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        at_end: set[int] = set()
        while len(at_end) < len(partitions):
            message = consumer.poll(60)
            assert message is not None, f"{topic}: its end is not reached"
            error, value, partition = message.error(), message.value(), message.partition()
            if error is None:
                assert value is not None
                found.append(value.decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                assert partition is not None
                at_end.add(partition)
    finally:
        consumer.close()
    return sorted(found)


def test_the_death_of_a_broker_does_not_stop_a_pipeline(cluster: LocalCluster, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = NewTopic("orders", num_partitions=3, replication_factor=3, config={"min.insync.replicas": "2"})
    admin.create_topics([asked])["orders"].result(60)
    put(cluster, 0, 30)
    (tmp_path / "pipeline.py").write_text(FILE)
    output = tmp_path / "output"
    with open(output, "wb") as out:
        process = subprocess.Popen(
            [*CORDWOOD, "pipeline", "run", "pipeline.py", "--max-restarts", "100"],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, "CORDWOOD_BOOTSTRAP": cluster.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"},
            start_new_session=True,
        )

    def written() -> int:
        assert process.poll() is None, output.read_text()[-4000:]
        there = admin.list_topics(timeout=60).topics
        return len(read(cluster, "orders.priced")) if "orders.priced" in there else 0

    try:
        eventually(written, to_be=30, within_s=WITHIN_S, what="the first batch")
        for topic in ("orders.priced", "priced.quarantine"):
            assert replicas(admin, topic) == {3}
            assert setting(admin, topic, "min.insync.replicas") == "2"
        cluster.kill(admin.list_topics(timeout=60).topics["priced.quarantine"].partitions[0].leader)
        put(cluster, 30, 60)
        eventually(written, to_be=60, within_s=WITHIN_S, what="a batch after the kill")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0, output.read_text()[-4000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert read(cluster, "orders.priced") == sorted(f'{{"id":"o{number}"}}' for number in range(60))
    assert read(cluster, "priced.quarantine") == ["poison"] * 2
