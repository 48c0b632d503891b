"""Spark and pipelines on three brokers: leaders move and die in the middle of queries; nothing is lost or doubled."""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks.maven import PeerUnavailable
from benchmarks.spark_connector import install_connector
from pyspark.sql import SparkSession
from tests.cluster.confluent_load import at_work
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.rolling import in_sync, rolling_restart
from tests.cluster.test_leader_killed import create, leader_of
from tests.deadline import eventually
from tests.spark.conftest import numbered, numbers, produce
from tests.spark.copying import KEYS, WITHIN_S, Orders, copies, reader
from tests.spark.pipeline_workshop import Workshop
from tests.spark.sink_stories import committed, run_to_end, values, wait_for_a_commit, write, write_stream
from tests.spark.streams import begun

from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.execution.running import start

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster") / "data", "--metadata", "supervisor") as started:
        yield started


def with_a_dead_server(cluster: LocalCluster) -> str:
    """Bootstrap servers, the first of which never answers."""
    return f"127.0.0.1:1,{cluster.bootstrap}"


def test_queries_and_a_pipeline_go_on_while_every_broker_is_restarted_and_then_killed(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    servers = cluster.bootstrap
    topic, sink = create(cluster, PARTITIONS, 3), create(cluster, PARTITIONS, 3)
    workshop = Workshop(tmp_path, spark, servers)
    workshop.write(
        f"""
        @pipeline("shop", version=1, trigger="100 milliseconds", inputs=topic("{topic}", value=json("id int, n int")),
                  outputs={{"all": table("shop-all"), "latest": table("shop-latest", key="id")}})
        def shop(orders):
            return {{"all": orders, "latest": orders}}
        """
    )
    orders = Orders(servers, topic)
    query = begun(
        reader(spark.readStream, servers, topic)
        .load()
        .select("key", "value")
        .writeStream.format("cordwood")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    pipeline = start(
        load_pipeline(workshop.file), spark, bootstrap_servers=servers, directory=workshop.project.directory
    )
    batch_reads: list[int] = []

    def read_batches() -> None:
        while not orders.stopping.is_set():
            batch_reads.append(reader(spark.read, servers, topic).load().select("offset").count())

    reading = threading.Thread(target=read_batches, daemon=True)
    try:
        with at_work([orders]):
            wait_for_a_commit(servers, sink, PARTITIONS, WITHIN_S)
            reading.start()
            print(*rolling_restart(cluster), sep="\n")
            print(*rolling_restart(cluster, kill=True), sep="\n")
        reading.join(WITHIN_S)

        def done() -> bool:
            assert query.exception() is None, query.exception()
            assert pipeline.query.exception() is None, pipeline.query.exception()
            copied = len(committed(servers, sink, PARTITIONS))
            return copied >= orders.sent and len(workshop.rows("shop-all")) >= orders.sent

        eventually(done, within_s=WITHIN_S, what="all rows")
    finally:
        query.stop()
        pipeline.stop()
    print(
        f"{orders.sent} records, {len(batch_reads)} batch reads, slowest acknowledgement {orders.longest_wait_s:.2f} s"
    )
    assert orders.errors == []
    assert batch_reads
    assert batch_reads == sorted(batch_reads)
    assert not reading.is_alive()
    copied = Counter(json.loads(text)["n"] for text in values(committed(servers, sink, PARTITIONS)))
    assert copied == dict.fromkeys(range(orders.sent), 1)
    assert Counter(n for _, n in workshop.rows("shop-all")) == dict.fromkeys(range(orders.sent), 1)
    last = {number % KEYS: number for number in range(orders.sent)}
    assert workshop.rows("shop-latest") == sorted(last.items())


@pytest.mark.parametrize("victim", ["source", "sink"])
def test_a_leader_that_is_killed_in_the_middle_of_a_micro_batch_loses_and_doubles_nothing(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path, victim: str
) -> None:
    eventually(lambda: in_sync(cluster), what="all replicas in sync")
    servers = with_a_dead_server(cluster)
    topics = {"source": create(cluster, 1, 3), "sink": create(cluster, 1, 3)}
    produce(cluster.bootstrap, topics["source"], numbered(0, 20_000))
    leader = leader_of(cluster, topics[victim])
    pid, killed = cluster.pids[leader], tmp_path / "killed"

    def kill_after_some_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 1 and not killed.exists():
                killed.touch()
                os.kill(pid, signal.SIGKILL)
            yield batch

    rows = reader(spark.readStream, servers, topics["source"]).load().select("value")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
    try:
        through = rows.mapInArrow(kill_after_some_rows, "value binary")
        run_to_end(write_stream(through, servers, topics["sink"], tmp_path / "checkpoint"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert killed.exists()
    found = values(committed(cluster.bootstrap, topics["sink"]))
    assert sorted(map(int, found)) == list(range(20_000))
    cluster.restart(leader)


def test_a_batch_write_and_its_read_survive_the_death_of_leaders(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    eventually(lambda: in_sync(cluster), what="all replicas in sync")
    servers, topic = with_a_dead_server(cluster), create(cluster, PARTITIONS, 3)
    write(spark.range(5000).selectExpr("CAST(id AS STRING) AS value"), servers, topic)
    leader = leader_of(cluster, topic)
    frame = reader(spark.read, servers, topic).load()
    cluster.kill(leader)
    assert numbers(frame) == list(range(5000))
    write(spark.range(5000, 10_000).selectExpr("CAST(id AS STRING) AS value"), servers, topic)
    assert numbers(reader(spark.read, servers, topic).load()) == list(range(10_000))
    cluster.restart(leader)
    eventually(lambda: in_sync(cluster), what="all replicas in sync")


def test_sparks_own_kafka_connector_goes_on_while_every_broker_is_restarted_and_then_killed(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    try:
        install_connector()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    eventually(lambda: in_sync(cluster), what="all replicas in sync")

    def restart_all() -> None:
        rolling_restart(cluster)
        rolling_restart(cluster, kill=True)

    topics = create(cluster, PARTITIONS, 3), create(cluster, PARTITIONS, 3)
    copies(cluster.bootstrap, spark, tmp_path / "checkpoint", topics, PARTITIONS, restart_all, connector="kafka")
