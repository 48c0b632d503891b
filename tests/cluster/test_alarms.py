"""Alarms that a real cluster fires: its metrics are scraped in trouble, and promtool judges by the rules."""

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import LocalCluster
from tests.deadline import eventually
from tests.deploy import playing
from tests.deploy.playing import Scrape, check, total
from tests.deploy.prometheus import promtool

EVEN, SKEWED, LATE, SAFE = "even", "skewed", "late", "safe"
ABOUT_TO_LOSE = ("CordwoodGroupAboutToLoseRecords",)
WITH_ALL_BROKERS = ("CordwoodGroupLostRecords", "CordwoodHangingTransaction", "CordwoodHotPartition")
WITH_A_DEAD_BROKER = (
    "CordwoodGroupLostRecords",
    "CordwoodNotScraped",
    "CordwoodBrokerDown",
    "CordwoodUnderReplicated",
    "CordwoodBelowMinInSync",
    "CordwoodWithoutLeader",
    "CordwoodAppendsRefused",
)

pytestmark = pytest.mark.timeout(300)


def scrape(cluster: LocalCluster) -> Scrape:
    """All brokers, as one job of Prometheus."""
    return playing.scrape(
        {
            f'job="cordwood",instance="broker-{node_id}"': re.findall(r"http://(\S+)/metrics", cluster.log_of(node_id))[
                -1
            ]
            for node_id in (1, 2, 3)
        }
    )


def scraped_twice(cluster: LocalCluster) -> tuple[Scrape, Scrape]:
    first = scrape(cluster)
    time.sleep(2)
    return first, scrape(cluster)


def create(admin: AdminClient, name: str, replicas: int = 1, **config: str) -> None:
    texts = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 3, replicas, config=texts)], operation_timeout=30)[name].result(60)


def write(cluster: LocalCluster, topic: str, counts: list[int], within_ms: int = 30_000) -> None:
    """Writes so many records of 10 kB to each partition, or gives up after a time."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": within_ms})
    for index, count in enumerate(counts):
        for _ in range(count):
            producer.produce(topic, bytes(10_000), partition=index)
    producer.flush(60)


def commit_at_start(admin: AdminClient, group: str, topic: str) -> None:
    positions = [TopicPartition(topic, index, 0) for index in range(3)]
    asked = ConsumerGroupTopicPartitions(group, positions)
    eventually(
        lambda: all(
            each.error is None
            for each in admin.alter_consumer_group_offsets([asked])[group].result(120).topic_partitions
        ),
        what="committed positions",
    )


def hang(cluster: LocalCluster) -> Producer:
    """A producer that leaves its transaction open."""
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "hangs", "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(EVEN, b"value", partition=0)
    producer.flush(30)
    return producer


def test_a_cluster_in_trouble_fires_its_alarms_and_one_in_order_does_not(tmp_path: Path) -> None:
    promtool("--version")
    options = ("metrics.listener=127.0.0.1:0", "lag.check.interval.ms=500")
    sets = [word for option in options for word in ("--set", option)]
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor", *sets) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        create(admin, EVEN)
        create(admin, SKEWED)
        create(admin, LATE, retention_ms="600000")
        create(admin, SAFE, replicas=3, min_insync_replicas="3")
        write(cluster, LATE, [1, 1, 1])
        commit_at_start(admin, "behind", LATE)
        for _ in range(3):
            write(cluster, EVEN, [100, 100, 100])
            time.sleep(0.5)
        eventually(
            lambda: total(scrape(cluster), "cordwood_group_lag_records"), to_be=3, what="the lag of 3 partitions"
        )
        check(tmp_path, scraped_twice(cluster), ABOUT_TO_LOSE, {*WITH_ALL_BROKERS, *WITH_A_DEAD_BROKER})

        producer = hang(cluster)
        for index in range(3):
            gone = TopicPartition(LATE, index, 1)
            admin.delete_records([gone])[gone].result(120)
        for _ in range(3):
            write(cluster, SKEWED, [500, 1, 1])
            time.sleep(0.5)
        eventually(lambda: total(scrape(cluster), "cordwood_group_lost_records"), to_be=3, what="3 lost records")
        quiet = set(WITH_A_DEAD_BROKER) - set(WITH_ALL_BROKERS)
        check(tmp_path, scraped_twice(cluster), WITH_ALL_BROKERS, quiet)

        cluster.kill(3)
        eventually(lambda: total(scrape(cluster), "cordwood_brokers_away"), to_be=1, what="a broker that is away")
        eventually(lambda: total(scrape(cluster), "cordwood_partitions_below_min_in_sync") >= 3, what="too few in sync")
        first = scrape(cluster)
        write(cluster, SAFE, [1, 1, 1], within_ms=3_000)
        check(tmp_path, (first, scrape(cluster)), WITH_A_DEAD_BROKER, ())
        del producer
