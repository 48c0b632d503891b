"""What `cordwood group describe` says of a group agrees with the broker's metrics, and leaves nothing out."""

import time
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.conftest import Cordwood
from tests.deadline import eventually

from cordwood.embedded import Broker

LOSS = "cordwood_group_time_to_data_loss_seconds"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings={"metrics.listener": "127.0.0.1:0", "lag.check.interval.ms": 100}) as broker:
        yield broker


def produce_by_the_second(broker: Broker, topic: str, records: int, ago_s: int) -> None:
    """One record for each second, the first so long ago."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    first_ms = int(time.time() * 1000) - ago_s * 1000
    for number in range(records):
        producer.produce(topic, b"x" * 100, partition=0, timestamp=first_ms + number * 1000)
        producer.flush(30)


def commit(broker: Broker, group: str, *positions: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=list(positions), asynchronous=False)
    consumer.close()


def metric(broker: Broker, name: str, **labels: str) -> float | None:
    address = broker._calls.server.metrics_address
    assert address is not None
    text = urllib.request.urlopen(f"http://{address[0]}:{address[1]}/metrics").read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


@pytest.mark.parametrize("segment_bytes", [1_000_000, 600])
def test_command_and_metric_agree_on_the_time_to_data_loss(broker: Broker, segment_bytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {"retention.ms": "600000", "segment.bytes": str(segment_bytes)}
    admin.create_topics([NewTopic("t", 1, config=config)])["t"].result(120)
    produce_by_the_second(broker, "t", 120, ago_s=200)
    commit(broker, "readers", TopicPartition("t", 0, 30))
    # A broker that has just started has seen no growth, as a look without a sample sees none.
    broker.stop()
    broker.start()
    began_s = time.monotonic()
    told_s = eventually(lambda: metric(broker, LOSS, group="readers", partition="0"), what="the metric")
    assert told_s is not None
    described = Cordwood(broker.bootstrap_servers).json("group", "describe", "readers", "--sample", "0")
    [row] = described["positions"]
    # A look at another moment: what went by between the two is gone. Even small segments are guessed to a few records.
    elapsed_s = time.monotonic() - began_s
    inexact_s = 1 if segment_bytes == 1_000_000 else 5
    assert told_s - elapsed_s - inexact_s <= row["time_to_data_loss_s"] <= told_s + inexact_s
    assert row["lag"] == 90


def test_an_empty_groups_partitions_without_a_position_are_shown(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("t", 3)])["t"].result(120)
    commit(broker, "readers", TopicPartition("t", 1, 0))
    described = Cordwood(broker.bootstrap_servers).json("group", "describe", "readers", "--sample", "0")
    assert [(row["partition"], row["committed"], row["standing"]) for row in described["positions"]] == [
        (0, None, "never committed"),
        (1, 0, "caught up"),
        (2, None, "never committed"),
    ]


def test_members_of_a_mixed_group_show_which_protocol_they_speak(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("t", 2)])["t"].result(120)
    common = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"}
    consumers = [
        Consumer({**common, "client.id": "new", "group.protocol": "consumer"}),
        Consumer({**common, "client.id": "old", "partition.assignment.strategy": "range"}),
    ]
    for consumer in consumers:
        consumer.subscribe(["t"])

    def shared() -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        return all(len(consumer.assignment()) == 1 for consumer in consumers)

    try:
        eventually(shared, what="both have a partition")
        cli = Cordwood(broker.bootstrap_servers)
        described = cli.json("group", "describe", "readers", "--sample", "0")
        assert {member["client_id"]: member["protocol"] for member in described["members"]} == {
            "new": "consumer",
            "old": "classic",
        }
        assert "1 of 2 members still speaks the classic protocol" in cli(
            "group", "describe", "readers", "--sample", "0"
        )
    finally:
        for consumer in consumers:
            consumer.close()
